"""The guards of a pool: how much of it automation may take out, and how fast.

Every guard judges the pool as it would be after the trip. Checking before it let a proxy eject all
of three hosts (docs/breaker.md names the case).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from alerts.breaker.parameters import BreakerParameters
from alerts.breaker.records import CauseKind

MINUTE_SECONDS = 60.0
_PAIR = 2
_HAIR = 1e-9  # 0.29 * 100 is 28.999999999999996: the floor must not lose a target to that


@dataclass(frozen=True, slots=True)
class Pool:
    """A pool as seen by a target that is about to be taken out.

    `size` counts every configured target, the candidate too. `withheld` counts the others that do
    not take full traffic for any reason: open, half open, forced, down or never seen.
    `trips` are the moments of the pool's latest trips, in monotonic seconds.
    """

    size: int
    withheld: int
    trips: tuple[float, ...] = ()


def limit(size: int, kind: CauseKind, parameters: BreakerParameters) -> int:
    """Return how many targets of a pool of `size` may be out at once for a cause of `kind`.

    A pool of one loses none, a pool of two loses one only to a hard cause, none loses its last.

    >>> [limit(n, "soft", BreakerParameters()) for n in (1, 2, 3, 4, 5, 6, 8, 10, 16)]
    [0, 0, 1, 1, 1, 2, 2, 3, 5]
    >>> [limit(n, "hard", BreakerParameters()) for n in (1, 2, 3, 4, 5, 6, 8, 10, 16)]
    [0, 1, 1, 2, 2, 3, 4, 5, 8]
    """
    if kind == "quality" or size <= 1 or (size == _PAIR and kind != "hard"):
        return 0
    fraction = parameters.hard_max_fraction if kind == "hard" else parameters.soft_max_fraction
    return min(math.floor(size * fraction + _HAIR), size - 1)


def velocity(size: int, parameters: BreakerParameters) -> int:
    """Return how many trips a minute a pool of `size` may see, at least 1."""
    return parameters.trips_per_minute or max(1, math.ceil(size / 10 - _HAIR))


def within_minute(moments: Iterable[float], at: float) -> tuple[float, ...]:
    """Return those of `moments` that are less than a minute old, all in monotonic seconds."""
    return tuple(moment for moment in moments if at - moment < MINUTE_SECONDS)


def refusal(pool: Pool, kind: CauseKind, parameters: BreakerParameters, at: float) -> str:
    """Return why a trip must not happen, or an empty string when it may.

    The text begins with the guard's name and a colon: `pool_guard` or `velocity`.
    """
    most = limit(pool.size, kind, parameters)
    if pool.withheld + 1 > most:
        return (
            f"pool_guard: {pool.withheld} of {pool.size} targets are out already, "
            f"a {kind} cause may have {most} out"
        )
    trips = len(within_minute(pool.trips, at))
    fastest = velocity(pool.size, parameters)
    if trips + 1 > fastest:
        return f"velocity: {trips} trips in the last minute, {fastest} allowed"
    return ""
