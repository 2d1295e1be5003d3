"""Signatures of Standard Webhooks 1.0: HMAC-SHA256 over `id.timestamp.body`, base64, version v1."""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import sha256

SECRET_PREFIX = "whsec_"  # noqa: S105  # how every secret of the standard begins, not one of them
TOLERANCE = timedelta(minutes=5)
_BYTES_LEAST, _BYTES_MOST = 24, 64
_VERSION = "v1"


class SecretError(ValueError):
    """A signing secret that cannot be used; the message never holds the secret."""


@dataclass(frozen=True, slots=True)
class Secret:
    """The bytes of one signing secret, kept out of `repr`."""

    key: bytes = field(repr=False)


def secret(text: str, *, where: str) -> Secret:
    """Return the secret written as `whsec_` and base64 (the prefix may be missing).

    Args:
        text: The secret as configured, blanks around it ignored.
        where: Where it comes from, for the error.

    Raises:
        SecretError: If it is not base64 of 24 to 64 bytes.
    """
    expected = f"expected `{SECRET_PREFIX}` and base64 of {_BYTES_LEAST} to {_BYTES_MOST} bytes"
    remedy = "make one with: openssl rand -base64 32"
    try:
        key = base64.b64decode(text.strip().removeprefix(SECRET_PREFIX), validate=True)
    except binascii.Error as error:
        msg = f"{where}: the secret is not base64; {expected}; {remedy}"
        raise SecretError(msg) from error
    if not _BYTES_LEAST <= len(key) <= _BYTES_MOST:
        msg = f"{where}: the secret has {len(key)} bytes; {expected}; {remedy}"
        raise SecretError(msg)
    return Secret(key)


def sign(secrets: Sequence[Secret], message_id: str, at: datetime, body: bytes) -> str:
    """Return the value of `webhook-signature`: one entry a secret, the newest first.

    >>> from datetime import UTC
    >>> key = secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", where="the standard's example")
    >>> at = datetime.fromtimestamp(1614265330, UTC)
    >>> sign([key], "msg_p5jXN8AQM9LWM0D4loKWxJek", at, b'{"test": 2432232314}')
    'v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE='
    """
    stamp = int(at.timestamp())
    return " ".join(f"{_VERSION},{_mac(one, message_id, stamp, body)}" for one in secrets)


def headers(
    secrets: Sequence[Secret], message_id: str, at: datetime, body: bytes
) -> dict[str, str]:
    """Return the three headers of one attempt; the id stays the same over all attempts."""
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": sign(secrets, message_id, at, body),
    }


@dataclass(frozen=True, slots=True)
class Signed:
    """The three headers as they arrived."""

    message_id: str
    timestamp: str
    signature: str


def verified(secrets: Sequence[Secret], signed: Signed, body: bytes, *, now: datetime) -> bool:
    """Return whether any secret made any `v1` entry, in constant time, within five minutes.

    Nothing in the headers makes this raise: what cannot be read does not verify.
    """
    if not (signed.timestamp.isascii() and signed.timestamp.isdigit()):
        return False
    if len(signed.timestamp) > len("9999999999"):
        return False
    stamp = int(signed.timestamp)
    if abs(now.timestamp() - stamp) > TOLERANCE.total_seconds():
        return False
    wanted = [_mac(one, signed.message_id, stamp, body).encode() for one in secrets]
    good = False
    for entry in signed.signature.split(" "):
        version, _, found = entry.partition(",")
        for one in wanted:
            same = hmac.compare_digest(found.encode("utf-8", "surrogateescape"), one)
            good = good or (same and version == _VERSION)
    return good


def _mac(one: Secret, message_id: str, stamp: int, body: bytes) -> str:
    content = f"{message_id}.{stamp}.".encode("utf-8", "surrogateescape") + body
    return base64.b64encode(hmac.new(one.key, content, sha256).digest()).decode()
