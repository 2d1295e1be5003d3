"""Who may change something: nobody from outside, unless tokens are configured.

Without a token file only a loopback listener takes mutating calls, and of those only ones that no
web page can have caused (a foreign `Origin`, or a `Host` that is not loopback, is refused).
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from fastapi import HTTPException, Request

from collector.token_file import SHORTEST_TOKEN, token_lines


@dataclass(frozen=True, slots=True)
class Access:
    """Digests of the accepted tokens, and whether the listener is loopback."""

    loopback: bool
    digests: tuple[bytes, ...] = ()

    def refusal(self, request: Request) -> HTTPException | None:
        """Return why `request` may not change anything, or None when it may."""
        if self.digests:
            return self._without_token(request)
        if not self.loopback:
            return HTTPException(
                403,
                detail="this listener is not loopback and no token_file is configured, so nothing "
                "can be changed over it; set 'token_file' and send 'Authorization: Bearer …'",
            )
        if not _is_loopback(request.url.hostname or ""):
            return HTTPException(
                403, detail="the Host header is not a loopback name; call 127.0.0.1 or localhost"
            )
        origin = request.headers.get("origin")
        if origin is not None and origin != f"{request.url.scheme}://{request.url.netloc}":
            return HTTPException(
                403, detail="the Origin header names another site; web pages may not change this"
            )
        return None

    def _without_token(self, request: Request) -> HTTPException | None:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            return HTTPException(
                401,
                detail="a token is needed: send 'Authorization: Bearer …'",
                headers={"www-authenticate": "Bearer"},
            )
        given = hashlib.sha256(token.strip().encode()).digest()
        matches = [hmac.compare_digest(given, digest) for digest in self.digests]
        if any(matches):
            return None
        return HTTPException(403, detail="this token is not in the token file")


def read_access(token_file: Path | None, *, host: str) -> Access:
    """Return the access rule of a listener on `host`.

    Raises:
        ValueError: If the file cannot be read, is empty, or a token is too short.
    """
    loopback = _is_loopback(host)
    if token_file is None:
        return Access(loopback)
    try:
        tokens = token_lines(token_file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        msg = f"token_file {token_file}: cannot be read: {error}"
        raise ValueError(msg) from error
    if not tokens:
        msg = f"token_file {token_file}: holds no token; expected one a line"
        raise ValueError(msg)
    short = [number for number, token in enumerate(tokens, 1) if len(token) < SHORTEST_TOKEN]
    if short:
        msg = (
            f"token_file {token_file}: token {short[0]} is shorter than {SHORTEST_TOKEN} "
            "characters; make one with 'openssl rand -hex 32'"
        )
        raise ValueError(msg)
    return Access(loopback, tuple(hashlib.sha256(token.encode()).digest() for token in tokens))


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
