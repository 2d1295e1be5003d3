"""Work done again and again: each on a schedule of its own, watched, never ending the process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from collector.health import Health

RESTART_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Every:
    """One piece of work: `name` is the part that breaks and heals, `seconds` the time between."""

    name: str
    seconds: float
    work: Callable[[], Awaitable[object]]


async def repeat(
    every: Every,
    *,
    health: Health,
    monotonic: Callable[[], float],
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> None:
    """Do the work until cancelled. A turn that takes too long costs turns, never a double one."""
    due = monotonic() + every.seconds
    while True:
        await sleep(max(0.0, due - monotonic()))
        with health.watch(every.name):
            await every.work()
        due = max(due + every.seconds, monotonic())


async def keep_running(
    name: str,
    work: Callable[[], Awaitable[object]],
    *,
    health: Health,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> None:
    """Run work that should never end, again after a second whenever it does; until cancelled."""
    while True:
        with health.watch(name):
            await work()
        await sleep(RESTART_SECONDS)


class LoopLag:
    """Measures how late the event loop wakes up: the largest delay since it was last asked."""

    def __init__(self, monotonic: Callable[[], float], *, period_seconds: float = 0.05) -> None:
        self._monotonic = monotonic
        self._period = period_seconds
        self._worst = 0.0

    def take(self) -> float:
        """Return the largest delay since the last call, seconds."""
        worst, self._worst = self._worst, 0.0
        return worst

    async def run(self) -> None:
        """Measure until cancelled."""
        while True:
            before = self._monotonic()
            await asyncio.sleep(self._period)
            self._worst = max(self._worst, self._monotonic() - before - self._period)
