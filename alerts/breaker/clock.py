"""The two clocks of the breaker: the wall's for what is stored and shown, the monotonic for waits.

Lengths (warm-up, velocity, staleness) are counted on the monotonic clock. Deadlines that must
outlive the process stand as wall times in the breakers; when the wall clock is set, they follow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from alerts.breaker.records import Breaker, Override, State

JUMP_SECONDS = 2.0  # the clocks may part by so much: slewing and scheduling, not a set clock
WATCHED_SECONDS = 5.0  # of the time between two ticks at most so much counts as watched


@dataclass(frozen=True, slots=True)
class Instant:
    """One moment on both clocks; `seconds` is monotonic and means nothing by itself."""

    wall: datetime
    seconds: float


class Clock:
    """Reads both clocks together and notices when they part.

    Without a monotonic clock one is derived from `now`: it goes on with it and stands still when
    it goes back. Then a clock set forward cannot be told from time that passed.
    """

    def __init__(
        self, now: Callable[[], datetime], monotonic: Callable[[], float] | None = None
    ) -> None:
        self._now = now
        self._monotonic = monotonic
        self._derived: Instant | None = None
        self._reference: Instant | None = None

    def read(self) -> Instant:
        """Return this moment."""
        wall = self._now()
        if self._monotonic is not None:
            return Instant(wall, self._monotonic())
        last = self._derived or Instant(wall, 0.0)
        passed = max(0.0, (wall - last.wall).total_seconds())
        self._derived = Instant(wall, last.seconds + passed)
        return self._derived

    def jump(self, at: Instant) -> float:
        """Return by how many seconds the wall clock was set since the last jump, or 0."""
        reference = self._reference or at
        passed = timedelta(seconds=at.seconds - reference.seconds)
        moved = (at.wall - reference.wall - passed).total_seconds()
        if abs(moved) <= JUMP_SECONDS:
            self._reference = reference
            return 0.0
        self._reference = at
        return moved


def shifted(breaker: Breaker, jump_seconds: float) -> Breaker:
    """Return `breaker` after the wall clock was set by `jump_seconds`.

    Set back, everything moves along: what was to end in a minute still does. Set forward, leases,
    open times and overrides keep their moments, which come sooner (a suspended machine looks the
    same, and there the time did pass); only the time for evidence is given back, for nobody
    watched.
    """
    by = timedelta(seconds=jump_seconds)
    deadline = breaker.half_open_deadline and breaker.half_open_deadline + by
    if jump_seconds > 0:
        return replace(breaker, half_open_deadline=deadline)
    return replace(
        breaker,
        changed_at=breaker.changed_at and breaker.changed_at + by,
        open_until=breaker.open_until and breaker.open_until + by,
        half_open_deadline=deadline,
        lease_expires_at=breaker.lease_expires_at and breaker.lease_expires_at + by,
        override=breaker.override and _moved(breaker.override, by),
        level_since=breaker.level_since and breaker.level_since + by,
        recent_opens=tuple(at + by for at in breaker.recent_opens),
    )


def extended(breaker: Breaker, unwatched_seconds: float) -> Breaker:
    """Return a half-open `breaker` with the time back in which nobody watched it."""
    if breaker.state is not State.HALF_OPEN or breaker.half_open_deadline is None:
        return breaker
    later = breaker.half_open_deadline + timedelta(seconds=unwatched_seconds)
    return replace(breaker, half_open_deadline=later)


def ending_in_time(override: Override | None, now: datetime) -> Override | None:
    """Return `override` so that it ends no later than its own length from now."""
    if override is None or override.since <= now:
        return override
    return _moved(override, now - override.since)


def _moved(override: Override, by: timedelta) -> Override:
    return replace(override, since=override.since + by, expires_at=override.expires_at + by)
