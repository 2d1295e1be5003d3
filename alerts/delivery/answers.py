"""What a gateway's answer means. An answer is data: nothing in it can raise."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    """What became of one attempt; the `reason` label of the attempts counter."""

    CONFIRMED = "confirmed"  # in force, said the gateway
    DELIVERED = "delivered"  # accepted, not said to be in force
    SUPERSEDED = "superseded"  # the gateway holds a newer state
    DEPOSED = "deposed"  # the gateway follows a newer epoch: another controller decides
    RETRY = "retry"  # a passing trouble
    BROKEN = "broken"  # a fault of ours: it was not sent, or its outcome not understood
    MISCONFIGURED = "misconfigured"  # repeating would not help


_RETRIED = frozenset({408, 425, 429})
_APPLIED, _CONFLICT = 200, 409
_TEXT_MOST = 200


@dataclass(frozen=True, slots=True)
class Answer:
    """A gateway's answer as far as it was read: status, and at most 64 KiB of body."""

    status: int
    body: bytes = b""
    retry_after: str = ""


@dataclass(frozen=True, slots=True)
class Meaning:
    """What to do about an attempt, and what to show people."""

    outcome: Outcome
    problem: str = ""
    wait_seconds: float | None = None


def meaning(answer: Answer, *, epoch: int, seq: int) -> Meaning:
    """Return what the answer to a message numbered (epoch, seq) means."""
    status = answer.status
    if 200 <= status < 300:  # noqa: PLR2004  # the class of HTTP statuses
        applied = status == _APPLIED and _confirms(answer.body, epoch, seq)
        return Meaning(Outcome.CONFIRMED if applied else Outcome.DELIVERED)
    if status == _CONFLICT:
        return _conflict(answer.body, epoch)
    if status in _RETRIED or status >= 500:  # noqa: PLR2004  # the class of HTTP statuses
        wait = float(answer.retry_after) if _is_seconds(answer.retry_after) else None
        return Meaning(Outcome.RETRY, f"answered {status}", wait)
    kind = "a redirect, which is never followed" if 300 <= status < 400 else "a refusal"  # noqa: PLR2004  # the class of HTTP statuses
    return Meaning(Outcome.MISCONFIGURED, f"answered {status}, {kind}: check URL and secret")


def _is_seconds(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= len("99999")


def _members(body: bytes) -> dict[str, object]:
    try:
        found: object = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _confirms(body: bytes, epoch: int, seq: int) -> bool:
    members = _members(body)
    if members.get("applied") is not True:
        return False
    numbers = (members.get("epoch", epoch), members.get("seq", seq))
    return numbers == (epoch, seq)


def _conflict(body: bytes, epoch: int) -> Meaning:
    current = _members(body).get("current")
    theirs = current.get("epoch") if isinstance(current, dict) else None
    if isinstance(theirs, int) and theirs > epoch:
        return Meaning(
            Outcome.DEPOSED,
            f"the gateway follows epoch {theirs}, this is {epoch}: another controller is in charge",
        )
    return Meaning(Outcome.SUPERSEDED)
