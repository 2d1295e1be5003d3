"""What the keeper of baselines needs from the store (`collector/baselines.py: BaselineStore`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime

from collector.store import baselines, ticks
from collector.store.store import Store
from collector.store.ticks import Lane
from detectors.baseline import Baseline
from detectors.records import Tick


class BaselineShelf:
    """Baselines and the ticks they are made of, in the store."""

    def __init__(self, store: Store, *, now: Callable[[], datetime]) -> None:
        self._store = store
        self._now = now

    async def load_baselines(self) -> list[Baseline]:
        """Return candidates and active baselines, oldest first (`StoreError`)."""
        return await self._store.read(baselines.in_use)

    async def save_baseline(self, baseline: Baseline) -> None:
        """Keep a baseline; durable when this returns (`StoreError`)."""
        await self._store.control(baselines.add, baseline, now=self._now())

    async def load_ticks(self, lane: Lane) -> list[Tick]:
        """Return the kept ticks of a lane, in order of time (`StoreError`)."""
        return await self._store.read(ticks.load, lane)

    async def count_requests(self) -> Mapping[Lane, int]:
        """Return how many requests are kept of each lane (`StoreError`)."""
        return await self._store.read(ticks.count_requests)
