"""The three tiers of alarm, and how a budget of the fleet becomes the level of a stream.

Per stream the expected number of false alarms in a time T is at most T / A (`evidence.py`), and
expectations add up over streams whatever their dependence: N streams that may raise X false
alarms in a period P need A = N P / X. Nothing is corrected for how often or how many are looked at.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from detectors.sequential.band import Gate
from detectors.sequential.words import DAY, YEAR, time_words

QUARTER = 90 * DAY


@dataclass(frozen=True, slots=True)
class Budget:
    """At most `alarms` false alarms (expected) in `period_seconds`.

    For the whole fleet, or for each stream where `of_fleet` is false.
    """

    alarms: float
    period_seconds: float
    of_fleet: bool = True

    def __post_init__(self) -> None:
        if not (0 < self.alarms < math.inf and 0 < self.period_seconds < math.inf):
            msg = f"budget: {self.alarms} alarms in {self.period_seconds} s, expected both over 0"
            raise ValueError(msg)

    def level(self, streams: int) -> float:
        """Return A in seconds, for each of so many streams (at least 1)."""
        shared = max(streams, 1) if self.of_fleet else 1
        return shared * self.period_seconds / self.alarms

    def words(self, streams: int) -> str:
        """Say the promise.

        >>> Budget(1, QUARTER).words(2000)
        'at most 1 false alarm in 90 days over 2,000 streams'
        """
        alarms = f"{self.alarms:g} false alarm{'' if self.alarms == 1 else 's'}"
        over = f"over {max(streams, 1):,} streams" if self.of_fleet else "for each stream"
        return f"at most {alarms} in {time_words(self.period_seconds)} {over}"


@dataclass(frozen=True, slots=True)
class Tier:
    """A gate and a budget: all tiers bet on the same counts, each for itself."""

    name: str
    gate: Gate
    budget: Budget


INFORM = Tier("inform", Gate(0.02, 1.5), Budget(1, 30 * DAY, of_fleet=False))
PAGE = Tier("page", Gate(0.05, 2.0), Budget(1, QUARTER))
TRIP = Tier("trip", Gate(0.10, 3.0), Budget(1, 3 * YEAR))
TIERS: tuple[Tier, ...] = (INFORM, PAGE, TRIP)
