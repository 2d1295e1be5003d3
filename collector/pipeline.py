"""The data path: observation -> state -> detector -> verdict -> actions.

Read `detectors/records.py` first. Two ways in: `take_reading` once per completed scrape of a
target, `take_batch` for generations, which are only counted until `judge` is given closed ticks. A
scrape is judged on the event loop, at once; a tick in a thread, as building the verdicts of many
streams takes longer than the loop may be held (detectors are pure, so nothing is shared). A failing
detector or action is counted and holds up nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from collector.health import Health
from collector.state import State
from detectors.protocols import ReadingDetector, TickDetector
from detectors.records import Batch, Reading, Tick, Verdict


class Action(Protocol):
    """Anything done about verdicts: a metric, a row, an alert, a breaker."""

    name: str

    async def take(self, verdicts: Sequence[Verdict], reading: Reading | None) -> None:
        """Act on the verdicts of one completed scrape (`reading`) or of one tick (None)."""
        ...


class Pipeline:
    """Carries each observation to verdicts, and the verdicts to every action."""

    def __init__(
        self,
        *,
        state: State,
        actions: Sequence[Action],
        health: Health,
    ) -> None:
        self.state = state
        self._actions = actions
        self._health = health
        self._reading_detectors: Mapping[str, Sequence[ReadingDetector[Any]]] = {}
        self._tick_detectors: Mapping[str, Sequence[TickDetector[Any]]] = {}

    def use(
        self,
        reading_detectors: Mapping[str, Sequence[ReadingDetector[Any]]],
        tick_detectors: Mapping[str, Sequence[TickDetector[Any]]],
    ) -> None:
        """Judge with these detectors, by tier, from the next observation on."""
        self._reading_detectors = reading_detectors
        self._tick_detectors = tick_detectors

    async def take_reading(self, reading: Reading) -> list[Verdict]:
        """Judge one completed scrape, at once."""
        self.state.see(reading)
        verdicts: list[Verdict] = []
        known = reading.known
        for detector in self._reading_detectors.get(reading.tier, ()):
            if known.isdisjoint(detector.signals):
                continue  # a client's page says nothing of a KV cache
            with self._health.watch(f"detector:{detector.name}"):
                place = (detector.name, reading.tier, reading.target)
                memory = self.state.memory(place, detector.start)
                memory, found = detector.step(memory, reading)
                self.state.remember(place, memory)
                verdicts.extend(found)
        await self._act(verdicts, reading)
        return verdicts

    def take_batch(self, batch: Batch) -> None:
        """Count generations into the open tick."""
        self.state.count(batch)

    async def judge(self, ticks: Sequence[Tick]) -> list[Verdict]:
        """Judge the ticks that were closed last, tier by tier, and act on the verdicts."""
        verdicts: list[Verdict] = []
        for panel in self.state.panels(ticks):
            for detector in self._tick_detectors.get(panel.tier, ()):
                with self._health.watch(f"detector:{detector.name}"):
                    place = (detector.name, panel.tier, "")
                    memory = self.state.memory(place, detector.start)
                    memory, found = await asyncio.to_thread(detector.step, memory, panel)
                    self.state.remember(place, memory)
                    verdicts.extend(found)
        await self._act(verdicts, None)
        return verdicts

    async def _act(self, verdicts: Sequence[Verdict], reading: Reading | None) -> None:
        for action in self._actions:
            with self._health.watch(f"action:{action.name}"):
                await action.take(verdicts, reading)
