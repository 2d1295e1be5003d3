"""Access tokens: only hashes are kept."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from collector.store.models import TokenRow
from collector.store.session import StoreError


@dataclass(frozen=True, slots=True)
class Token:
    """What is kept of a token. `scopes` are tiers and targets; empty means all."""

    id: str
    hash: str
    role: str
    scopes: tuple[str, ...]
    note: str
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None

    def valid(self, now: datetime) -> bool:
        """Whether it opens anything at this moment (aware UTC)."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


def token_hash(secret: str) -> str:
    """Return what is kept of a secret; secrets are long and random, so one round is enough."""
    return hashlib.sha256(secret.encode()).hexdigest()


def add(session: Session, token: Token) -> None:
    """Keep a token."""
    session.add(TokenRow(**{name: getattr(token, name) for name in Token.__slots__}))
    session.flush()


def find(session: Session, secret: str) -> Token | None:
    """Return the token of a secret, also an expired or revoked one, or None."""
    row = session.scalars(select(TokenRow).where(TokenRow.hash == token_hash(secret))).one_or_none()
    return None if row is None else _token(row)


def listed(session: Session) -> list[Token]:
    """Return every token, oldest first."""
    rows = session.scalars(select(TokenRow).order_by(TokenRow.created_at, TokenRow.id))
    return [_token(row) for row in rows]


def revoke(session: Session, identity: str, *, now: datetime) -> None:
    """End a token for good.

    Raises:
        StoreError: If there is no such token.
    """
    row = session.get(TokenRow, identity)
    if row is None:
        msg = f"token {identity!r} is not in the store; 'fusewire token list' shows what is"
        raise StoreError(msg)
    row.revoked_at = row.revoked_at or now


def _token(row: TokenRow) -> Token:
    return Token(
        id=row.id,
        hash=row.hash,
        role=row.role,
        scopes=row.scopes,
        note=row.note,
        created_at=row.created_at,
        expires_at=row.expires_at,
        revoked_at=row.revoked_at,
    )
