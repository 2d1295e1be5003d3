"""Reads a source for ever on its own schedule: one read at a time, and no catching up."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from collector.sources.protocols import Readable
from detectors.records import Reading
from detectors.remarks import Finding

SPARED_AFTER: Final = 3  # failures in a row, as many as a detector wants to be sure
MOST_INTERVALS: Final = 4
LONGEST_SECONDS: Final = 30.0  # half of a lease: two reads fit in, and a live target keeps it


@dataclass(frozen=True, slots=True)
class Schedule:
    """Reads at `delay_seconds` after the start and every `interval_seconds` from there.

    A source that is too weak to answer is read every second, then every fourth interval, as long as
    that is within `longest_seconds`.
    """

    interval_seconds: float
    delay_seconds: float = 0.0
    longest_seconds: float = LONGEST_SECONDS

    @classmethod
    def jittered(
        cls,
        interval_seconds: float,
        jitter: float,
        rng: Random,
        *,
        longest_seconds: float = LONGEST_SECONDS,
    ) -> Schedule:
        """Return a schedule that starts within the first `jitter` (0..1) of an interval."""
        return cls(interval_seconds, interval_seconds * jitter * rng.random(), longest_seconds)

    def intervals(self, overloads: int) -> int:
        """Return how many intervals to let pass after so many overloaded reads in a row.

        >>> [Schedule(5.0).intervals(n) for n in range(7)]
        [1, 1, 1, 2, 4, 4, 4]
        """
        if overloads < SPARED_AFTER:
            return 1
        wanted = min(MOST_INTERVALS, 2 << (overloads - SPARED_AFTER))
        return max(1, min(wanted, int(self.longest_seconds // self.interval_seconds)))


async def poll(
    source: Readable,
    handle: Callable[[Reading], Awaitable[object]],
    schedule: Schedule,
    *,
    monotonic: Callable[[], float],
    sleep: Callable[[float], Awaitable[object]],
) -> None:
    """Read `source` and hand each reading to `handle`, until cancelled.

    The schedule stays fixed: a read that outlasts its interval loses the slots it covers, and no
    other target's. `handle` is awaited before the next read and must not raise; give it one that
    watches over its parts (`collector/health.py`).
    """
    start = monotonic() + schedule.delay_seconds
    slot, overloads = 0, 0
    while True:
        await sleep(max(0.0, start + slot * schedule.interval_seconds - monotonic()))
        begun = monotonic()
        reading = await source.read()
        took = monotonic() - begun
        if reading.up and took > schedule.interval_seconds:
            finding = _slow(took, schedule.interval_seconds)
            reading = replace(reading, findings=(*reading.findings, finding))
        await handle(reading)
        overloads = min(overloads + 1, SPARED_AFTER + MOST_INTERVALS) if reading.overloaded else 0
        next_slot = math.ceil((monotonic() - start) / schedule.interval_seconds)
        slot = max(slot + schedule.intervals(overloads), next_slot)


def _slow(took_seconds: float, interval_seconds: float) -> Finding:
    text = (
        f"reading it took {took_seconds:.1f} s, longer than its interval of {interval_seconds:g} s:"
        " it is read as often as it answers, never twice at a time; set a longer interval, "
        "or see what keeps its server busy"
    )
    return Finding("slow_page", "scrape_seconds", text)
