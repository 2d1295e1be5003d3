"""What a person's override must be before it is taken."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from alerts.breaker.book import Book
from alerts.breaker.records import Key, Override


class OverrideError(ValueError):
    """An override that cannot be: unknown breaker, wrong length, no reason, or observe mode."""


def check_known(book: Book, key: Key, reason: str) -> None:
    """Check that the breaker exists and that a reason is given.

    Raises:
        OverrideError: If not.
    """
    if key not in book.machines:
        known = ", ".join(str(place) for place in list(book.machines)[:10])
        msg = f"breaker {str(key)!r}: no such breaker; known are {known or 'none'}"
        raise OverrideError(msg)
    if not reason.strip():
        msg = f"breaker {str(key)!r}: no reason given, one is expected; say why in a few words"
        raise OverrideError(msg)


def check_force(book: Book, key: Key, *, reason: str, seconds: float) -> None:
    """Check that the breaker may be forced for `seconds`.

    Raises:
        OverrideError: If it is unknown or only observed, or the length or the reason is wrong.
    """
    check_known(book, key, reason)
    longest = book.parameters(key.tier).override_max_seconds
    if not 0 < seconds <= longest:
        msg = (
            f"breaker {str(key)!r}: an override of {seconds:g} s, expected more than 0 and at "
            f"most {longest:g} s"
        )
        raise OverrideError(msg)
    if book.observes(key.tier):
        msg = (
            f"breaker {str(key)!r}: the tier is in observe mode, which sends nothing outward; "
            "set `mode: enforce` first"
        )
        raise OverrideError(msg)


def bounded(book: Book, key: Key, asked: Override, now: datetime) -> Override:
    """Return the override that a command left, ending no later than the longest allowed one."""
    longest = timedelta(seconds=book.parameters(key.tier).override_max_seconds)
    return replace(asked, expires_at=min(asked.expires_at, now + longest))
