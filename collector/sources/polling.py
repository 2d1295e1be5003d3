"""Reads a source for ever on its own schedule: one read at a time, and no catching up."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random

from collector.sources.protocols import Readable
from detectors.records import Reading


@dataclass(frozen=True, slots=True)
class Schedule:
    """Reads at `delay_seconds` after the start and every `interval_seconds` from there."""

    interval_seconds: float
    delay_seconds: float = 0.0

    @classmethod
    def jittered(cls, interval_seconds: float, jitter: float, rng: Random) -> Schedule:
        """Return a schedule that starts within the first `jitter` (0..1) of an interval."""
        return cls(interval_seconds, interval_seconds * jitter * rng.random())


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
    slot = 0
    while True:
        await sleep(max(0.0, start + slot * schedule.interval_seconds - monotonic()))
        await handle(await source.read())
        slot = max(slot + 1, math.ceil((monotonic() - start) / schedule.interval_seconds))
