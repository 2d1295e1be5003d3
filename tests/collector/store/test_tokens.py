"""Tokens are found by their secret, which is not kept."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session

from collector.store import tokens
from collector.store.session import StoreError
from collector.store.store import Store
from collector.store.tokens import Token, token_hash
from tests.builders import START

pytestmark = pytest.mark.anyio

TOKEN = Token(
    id="tok_1",
    hash=token_hash("sesame"),
    role="operate",
    scopes=("chat", "code/a"),
    note="on call",
    created_at=START,
    expires_at=START + timedelta(days=1),
)


async def test_a_token_is_found_by_its_secret_only(store: Store) -> None:
    await store.write(tokens.add, TOKEN)

    assert await store.read(tokens.find, "sesame") == TOKEN
    assert await store.read(tokens.find, "sesam") is None
    assert await store.read(tokens.listed) == [TOKEN]


async def test_the_secret_is_not_in_the_row(store: Store) -> None:
    await store.write(tokens.add, TOKEN)

    def whole(session: Session) -> str:
        return str(session.execute(text("SELECT * FROM token")).all())

    assert "sesame" not in await store.read(whole)


async def test_a_revoked_token_opens_nothing(store: Store) -> None:
    await store.write(tokens.add, TOKEN)

    await store.write(tokens.revoke, "tok_1", now=START + timedelta(hours=1))
    await store.write(tokens.revoke, "tok_1", now=START + timedelta(hours=2))

    found = await store.read(tokens.find, "sesame")
    assert found is not None
    assert found.revoked_at == START + timedelta(hours=1)
    assert not found.valid(START)


def test_a_token_is_valid_until_it_expires() -> None:
    assert TOKEN.valid(START + timedelta(hours=23))
    assert not TOKEN.valid(START + timedelta(days=1))


async def test_revoking_an_unknown_token_is_said(store: Store) -> None:
    with pytest.raises(StoreError, match="token 'x' is not in the store"):
        await store.write(tokens.revoke, "x", now=START)
