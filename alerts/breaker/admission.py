"""Whether one request is let in: from memory, without waiting, with the lease as the last word."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b

from alerts.breaker.events import Uniform
from alerts.breaker.parameters import BreakerParameters
from alerts.breaker.records import Breaker

LONGEST_OPEN_SECONDS = 60
LONGEST_SHED_SECONDS = 30
_BITS = 64


@dataclass(frozen=True, slots=True)
class Admission:
    """The answer for one request.

    `state` is what decided: `closed`, `half_open`, `open`, `forced_open`, `forced_closed`,
    `stale` (Fusewire has no say: it let everything in) or `unknown` (no such tier: let in).
    `ratio` is the share that is let in, 0..1; `retry_after_seconds` is 0 for who is let in.
    """

    allowed: bool
    ratio: float
    retry_after_seconds: int
    state: str
    reason: str


def let_in(state: str, reason: str) -> Admission:
    """Return the answer for a request that nothing withholds."""
    return Admission(allowed=True, ratio=1.0, retry_after_seconds=0, state=state, reason=reason)


def lapsed(breaker: Breaker, now: datetime) -> bool:
    """Return whether `breaker` withholds traffic without a live lease: then it has no say."""
    lease = breaker.lease_expires_at
    return breaker.effective_ratio < 1 and (lease is None or lease <= now)


def share(key: str, salt: str) -> float:
    """Return where a key lies in 0..1: the same everywhere and for ever, spread evenly."""
    digest = blake2b(f"{salt}\0{key}".encode(), digest_size=_BITS // 8).digest()
    return int.from_bytes(digest, "big") / (1 << _BITS)


def retry_after_seconds(
    breaker: Breaker, parameters: BreakerParameters, now: datetime, rng_uniform: Uniform
) -> int:
    """Return whole seconds after which to come back, spread so that clients do not come together.

    The rest of the open time, at most 60; for a tier that sheds, up to 30 by how much it sheds.
    """
    spread = rng_uniform(1 - parameters.jitter, 1 + parameters.jitter)
    until = breaker.override.expires_at if breaker.override else breaker.open_until
    if not breaker.key.target and breaker.override is None:
        seconds = LONGEST_SHED_SECONDS * (1 - breaker.admit_ratio)
        return _clamped(seconds * spread, LONGEST_SHED_SECONDS)
    if until is None:
        until = breaker.half_open_deadline
    seconds = (until - now).total_seconds() if until else 1.0
    return _clamped(seconds * spread, LONGEST_OPEN_SECONDS)


def _clamped(seconds: float, longest: int) -> int:
    return min(longest, max(1, math.ceil(seconds)))


def admitted(
    breaker: Breaker,
    parameters: BreakerParameters,
    *,
    now: datetime,
    key: str,
    rng_uniform: Uniform,
) -> Admission:
    """Decide about one request at one breaker; the same `key` gets the same answer at one ratio."""
    if lapsed(breaker, now):
        return let_in("stale", "lease_lapsed")
    ratio = breaker.effective_ratio
    lot = share(key, str(breaker.key)) if key else rng_uniform(0, 1)
    allowed = ratio >= 1 or lot < ratio
    reason = "override" if breaker.override else breaker.cause.code if breaker.cause else ""
    wait = 0 if allowed else retry_after_seconds(breaker, parameters, now, rng_uniform)
    return Admission(
        allowed=allowed,
        ratio=ratio,
        retry_after_seconds=wait,
        state=breaker.shown_state,
        reason=reason,
    )
