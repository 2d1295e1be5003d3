"""Baselines come by themselves: collect, make a candidate, promote when told to.

Ticks are stored first; when a lane (tier, scope, variant) has enough requests the ticks are read
back in order and frozen into a candidate, which serves the inform tier at once. It pages and trips
only after a promotion: by a person, or at once where the tier's `auto_promote` says so.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Protocol

from collector.health import Health
from collector.state import Lane, State
from detectors.baseline import Baseline, Stage, make_baseline, promoted, sufficient
from detectors.records import Scope, Tick

_LOG = logging.getLogger(__name__)
AUTO_AUTHOR = "auto_promote"


class BaselineStore(Protocol):
    """What the keeper needs of the store."""

    async def load_baselines(self) -> list[Baseline]: ...

    async def save_baseline(self, baseline: Baseline) -> None: ...

    async def load_ticks(self, lane: Lane) -> list[Tick]: ...

    async def count_requests(self) -> Mapping[Lane, int]: ...


class BaselineKeeper:
    """Turns stored ticks into baselines, and tells the state which one to judge against."""

    def __init__(
        self,
        *,
        state: State,
        store: BaselineStore,
        now: Callable[[], datetime],
        health: Health,
    ) -> None:
        self._state = state
        self._store = store
        self._now = now
        self._health = health
        self._counted: dict[Lane, int] = {}
        self._auto_promote: Mapping[str, bool] = {}
        self._needed: Mapping[str, int] = {}

    def configure(self, *, auto_promote: Mapping[str, bool], needed: Mapping[str, int]) -> None:
        """Take over the settings of a new configuration."""
        self._auto_promote = auto_promote
        self._needed = needed
        for tier, requests in needed.items():
            self._state.need(tier, requests)

    async def start(self) -> None:
        """Load what is kept: baselines in use. Progress of lanes is read when they are seen."""
        for baseline in await self._store.load_baselines():
            if baseline.stage is not Stage.RETIRED:
                self._use(baseline)
        self._counted = dict(await self._store.count_requests())
        newest: dict[tuple[str, Scope], Baseline] = {}
        for baseline in sorted(self._state.baselines.values(), key=lambda known: known.made_at):
            newest[baseline.tier, baseline.scope] = baseline
        for baseline in newest.values():
            if baseline.tier in self._needed:
                self._state.expect(baseline)

    def _use(self, baseline: Baseline) -> None:
        """An active baseline beats a candidate, a newer one an older one of the same stage."""
        lane = (baseline.tier, baseline.scope, baseline.variant)
        present = self._state.baselines.get(lane)
        rank = {Stage.RETIRED: 0, Stage.CANDIDATE: 1, Stage.ACTIVE: 2}
        if present is None or (rank[baseline.stage], baseline.made_at) >= (
            rank[present.stage],
            present.made_at,
        ):
            self._state.use_baseline(baseline)

    async def look(self) -> list[Baseline]:
        """Make a candidate of every lane that has enough requests; return what was made."""
        made = []
        for lane in self._state.lanes:
            needed = self._needed.get(lane[0])
            if needed is None or lane in self._state.baselines:
                continue
            before = self._counted.pop(lane, 0)  # what was stored before this start
            if before:
                self._state.set_progress(lane, self._state.progress(lane) + before)
            if self._state.progress(lane) >= needed:
                with self._health.watch(f"baseline:{lane[0]}:{lane[1]}"):
                    made.append(await self._make(lane))
        return [baseline for baseline in made if baseline is not None]

    async def _make(self, lane: Lane) -> Baseline | None:
        ticks = await self._store.load_ticks(lane)
        collected = sum(tick.requests for tick in ticks if tick.counts)
        if not sufficient(collected, self._needed[lane[0]]):
            # older ticks were retired, not all were kept, or they hold no signal
            self._state.set_progress(lane, collected)
            return None
        first, last = (f"{tick.start:%Y-%m-%d %H:%MZ}" for tick in (ticks[0], ticks[-1]))
        span = f"ticks {first} to {last}"
        baseline = await asyncio.to_thread(
            make_baseline, ticks, made_at=self._now(), provenance=span
        )
        if self._auto_promote.get(lane[0], False):
            reason = "first baseline of this stream"
            baseline = promoted(baseline, author=AUTO_AUTHOR, reason=reason)
        await self._store.save_baseline(baseline)
        self._use(baseline)
        facts = {
            "tier": baseline.tier,
            "scope": str(baseline.scope),
            "baseline": baseline.id,
            "stage": str(baseline.stage),
            "requests": baseline.requests,
        }
        _LOG.info("baseline made", extra=facts)
        return baseline

    async def adopt(self) -> None:
        """Take over what others promoted in the store (a command that ran beside the service)."""
        for baseline in await self._store.load_baselines():
            if baseline.stage is not Stage.RETIRED:
                self._use(baseline)
