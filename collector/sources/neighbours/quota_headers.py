"""Rate-limit headers as providers send them, read into one form.

Understood are the families `x-ratelimit-{limit,remaining,reset}-KIND` (OpenAI, Azure, Groq and
what imitates them), `anthropic-ratelimit-KIND-{limit,remaining,reset}`, and the unnamed
`[x-]ratelimit-{limit,remaining,reset}` of proxies and of the IETF drafts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

MAX_QUOTAS: Final = 32
_UNIX_FROM: Final = 1_000_000_000.0  # a plain number so large is a moment, not a duration
_NAMED = re.compile(r"x-ratelimit-(limit|remaining|reset)-([a-z0-9-]{1,40})")
_ANTHROPIC = re.compile(r"anthropic-ratelimit-([a-z0-9-]{1,40})-(limit|remaining|reset)")
_PLAIN = re.compile(r"(?:x-)?ratelimit-(limit|remaining|reset)")
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|us|µs|ns|d|h|m|s))+")
_PIECE = re.compile(r"(\d+(?:\.\d+)?)(ms|us|µs|ns|d|h|m|s)")
_UNITS: Final[Mapping[str, float]] = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "ms": 0.001,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
    "d": 86_400.0,
}


@dataclass(frozen=True, slots=True)
class Quota:
    """One quota; `reset_seconds` until all of it is there again. None is what was not told."""

    name: str
    limit: float | None = None
    remaining: float | None = None
    reset_seconds: float | None = None

    @property
    def used_ratio(self) -> float | None:
        """The share that is used, 0..1; None where limit or remainder are not known."""
        if self.limit is None or self.remaining is None or self.limit <= 0.0:
            return None
        return min(max(1.0 - self.remaining / self.limit, 0.0), 1.0)


def quotas_of(headers: Mapping[str, str], now: datetime) -> tuple[Quota, ...]:
    """Return the quotas that the headers of an answer tell of, by name.

    Args:
        headers: Names in small letters.
        now: The aware UTC moment of the answer; resets may be told as a moment.
    """
    told: dict[str, dict[str, str]] = {}
    for header, value in headers.items():
        place = _place(header)
        if place is not None and (place[0] in told or len(told) < MAX_QUOTAS):
            told.setdefault(place[0], {})[place[1]] = value
    return tuple(
        Quota(
            name=name,
            limit=_number(parts.get("limit", "")),
            remaining=_number(parts.get("remaining", "")),
            reset_seconds=reset_seconds(parts.get("reset", ""), now),
        )
        for name, parts in sorted(told.items())
    )


def _place(header: str) -> tuple[str, str] | None:
    """Return (quota, limit | remaining | reset) of a header's name."""
    if found := _NAMED.fullmatch(header):
        return found[2], found[1]
    if found := _ANTHROPIC.fullmatch(header):
        return found[1], found[2]
    if found := _PLAIN.fullmatch(header):
        return "requests", found[1]
    return None


def _number(text: str) -> float | None:
    """Return the number that a header begins with: `100`, or `100, 100;w=60`."""
    found = re.match(r"\s*(\d{1,15}(?:\.\d{1,9})?)\s*(?:[,;].*)?$", text, flags=re.ASCII)
    return float(found[1]) if found else None


def reset_seconds(text: str, now: datetime) -> float | None:
    """Return the seconds until a reset, 0 or more; None if the text is in no known form.

    >>> moment = datetime(2026, 11, 29, 12, tzinfo=UTC)
    >>> [reset_seconds(it, moment) for it in ("6m0s", "1s", "120ms", "17", "2026-11-29T12:00:30Z")]
    [360.0, 1.0, 0.12, 17.0, 30.0]
    """
    text = text.strip()[:64]
    if _DURATION.fullmatch(text):
        return sum(float(number) * _UNITS[unit] for number, unit in _PIECE.findall(text))
    number = _number(text)
    if number is not None:
        return max(number - now.timestamp(), 0.0) if number >= _UNIX_FROM else number
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max((moment - now).total_seconds(), 0.0)
