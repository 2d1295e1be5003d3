"""The running service: parts, loops, start, stop and reload. `collector/wiring.py` makes it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from random import Random

import httpx2

from alerts.alertmanager import Pusher
from alerts.breaker.records import Key
from alerts.delivery.worker import DeliveryWorker
from collector.actions import KeepHistory, RaiseAlerts
from collector.config import Config
from collector.following import Following, save_position
from collector.gauges import show_breakers, show_deliveries, show_parts, show_sources
from collector.health import Health
from collector.loops import Every, LoopLag, repeat
from collector.memories import Memories
from collector.parts import Parts
from collector.pipeline import Pipeline
from collector.sources.polling import Schedule, poll
from collector.sources.scrape import ScrapeSource
from collector.store import ticks
from collector.store.lock import ControllerLock
from collector.store.retention import Ages, sweep
from detectors.records import Reading, Tick
from exporters.catalog import (
    EFFECT,
    LOOP_LAG,
    SNAPSHOT_AGE,
    STATISTIC,
    THRESHOLD,
    TICKS_LOST,
    VERDICT_LEVEL,
)

_LOG = logging.getLogger(__name__)
CONTROLLER_SECONDS = 1.0
LOCK_SECONDS = 5.0
SNAPSHOT_SECONDS = 10.0
RETENTION_SECONDS = 600.0
PUSH_SECONDS = 30.0  # how often to look where no Alertmanager is configured, for a reload
SCRAPE_JITTER = 1.0  # spread the targets' first scrapes over a whole interval
TICKS_AT_ONCE = 100
UNSTORED_MOST = 720  # ticks' rows kept for a store that cannot be written: an hour of one lane


@dataclass(frozen=True, slots=True)
class Clients:
    """One HTTP client a purpose, so that no purpose can use up another's connections."""

    scrape: httpx2.AsyncClient
    webhook: httpx2.AsyncClient
    alertmanager: httpx2.AsyncClient

    async def aclose(self) -> None:
        for client in (self.scrape, self.webhook, self.alertmanager):
            await client.aclose()


@dataclass(slots=True)
class Service:
    """Everything that runs. Fields that a reload replaces are replaced between two awaits."""

    config: Config
    parts: Parts
    pipeline: Pipeline
    health: Health
    history: KeepHistory
    alerts: RaiseAlerts
    worker: DeliveryWorker
    memories: Memories
    lock: ControllerLock
    lag: LoopLag
    clients: Clients
    monotonic: Callable[[], float]
    rng: Random
    on_lost_lock: Callable[[], None]
    pusher: Pusher | None = None
    sources: Mapping[Key, ScrapeSource] = field(default_factory=dict)
    followings: tuple[Following, ...] = ()
    unstored: list[Tick] = field(default_factory=list)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)
    _polls: dict[Key, asyncio.Task[None]] = field(default_factory=dict)

    async def start(self) -> None:
        """Load what is kept, then start every loop.

        Raises:
            JournalError: If control state cannot be loaded.
            StoreError: If the history or the baselines cannot be read.
        """
        await self.parts.intake.start()
        await self.history.start()
        await self.parts.keeper.start()
        self.alerts.memory = self.memories.read()
        await self._note_gap()
        await self.parts.controller.start()
        show_breakers(self.parts.page, self.parts.controller.breakers.values())
        for every in self._loops():
            self._run(repeat(every, health=self.health, monotonic=self.monotonic))
        self._run(self.lag.run())
        self._run(self.worker.run())
        for following in self.followings:
            self._run(following.run())
        self.poll_sources()
        self.parts.missing.clear()
        _LOG.info("service started", extra={"targets": len(self.sources)})

    def _loops(self) -> tuple[Every, ...]:
        return (
            Every("tick", self.config.tick, self.close_tick),
            Every("controller", CONTROLLER_SECONDS, self.control),
            Every("lock", LOCK_SECONDS, self.hold_lock),
            Every("snapshot", SNAPSHOT_SECONDS, self.write_snapshot),
            Every("retention", RETENTION_SECONDS, self.sweep),
            Every("alertmanager", self._push_seconds(), self.push),
        )

    def _push_seconds(self) -> float:
        configured = self.config.alertmanager
        return configured.resend if configured else PUSH_SECONDS

    def _run(self, work: Awaitable[None]) -> None:
        self._tasks.append(asyncio.ensure_future(work))

    def poll_sources(self) -> None:
        """Poll exactly the present sources: new ones start, those that are gone stop."""
        for key in [key for key in self._polls if key not in self.sources]:
            self._polls.pop(key).cancel()
        for key, source in self.sources.items():
            if key not in self._polls:
                schedule = Schedule.jittered(self.config.scrape_interval, SCRAPE_JITTER, self.rng)
                self._polls[key] = asyncio.ensure_future(
                    poll(
                        source,
                        self.take_reading,
                        schedule,
                        monotonic=self.monotonic,
                        sleep=asyncio.sleep,
                    )
                )

    async def take_reading(self, reading: Reading) -> None:
        """Judge one completed scrape; nothing that goes wrong ends the polling of its target."""
        with self.health.watch("pipeline"):
            await self.pipeline.take_reading(reading)

    def stop_polling(self) -> None:
        """Stop every poll; `poll_sources` starts those of the present sources."""
        for polling in self._polls.values():
            polling.cancel()
        self._polls.clear()

    async def close_tick(self) -> None:
        """Close the tick, judge it, store its counts, make baselines, settle alerts."""
        now = self.parts.now()
        closed, _ = await self.pipeline.close_tick(now, self.monotonic())
        self._forget_idle()
        changed = self.alerts.settle()
        self._show()
        with self.health.watch("store:ticks"):
            await self._store_ticks(closed)
        with self.health.watch("store:history"):
            await self.history.flush()
        with self.health.watch("baselines"):
            await self.parts.keeper.look()
        if changed:
            with self.health.watch("alertmanager"):
                await self.push()

    def _forget_idle(self) -> None:
        """Let go of lanes without traffic; what others still show of their scope stays."""
        parts = self.parts
        for tier, scope, variant in parts.state.forget_idle(parts.now()):
            parts.newest.forget_lane(tier, scope, variant)
            if not any(lane[:2] == (tier, scope) for lane in parts.state.lanes):
                for metric in (VERDICT_LEVEL, STATISTIC, EFFECT, THRESHOLD):
                    parts.page.remove(metric, tier=tier, target="", segment=scope.name)

    def _show(self) -> None:
        page = self.parts.page
        show_parts(self.parts)
        show_sources(page, self.sources)
        show_deliveries(page, self.worker.health())
        page.set(LOOP_LAG, {}, self.lag.take())
        if self.memories.written_monotonic is not None:
            page.set_since(SNAPSHOT_AGE, {}, self.memories.written_monotonic)

    async def _store_ticks(self, closed: list[Tick]) -> None:
        """Write ticks; while the store fails keep the newest, and count what is let go."""
        self.unstored.extend(closed)
        lost = self.unstored[:-UNSTORED_MOST]
        for tick in lost:
            self.parts.page.add(TICKS_LOST, {"tier": tick.tier, "reason": "store"})
        self.unstored = self.unstored[-UNSTORED_MOST:]
        while self.unstored:
            piece = self.unstored[:TICKS_AT_ONCE]
            await self.parts.store.write(ticks.append, piece)
            self.unstored = self.unstored[len(piece) :]

    async def _note_gap(self) -> None:
        """Say how long nothing was counted before this start."""
        end = await self.parts.store.read(ticks.newest_end)
        if end is None:
            return
        gap = (self.parts.now() - end).total_seconds()
        missing = int(gap // self.config.tick)
        if missing > 0:
            _LOG.warning("no counts since the last tick kept", extra={"gap_seconds": gap})
            for tier in self.parts.tiers:
                labels = {"tier": tier, "reason": "not_running"}
                self.parts.page.add(TICKS_LOST, labels, missing)

    async def control(self) -> None:
        """Let the breakers' timers run."""
        await self.parts.controller.tick()
        show_breakers(self.parts.page, self.parts.controller.breakers.values())
        if self.parts.store.journal.problem:
            await self.parts.store.journal.probe()

    async def hold_lock(self) -> None:
        """Hold the right to decide; stop when another controller has taken it."""
        if not await self.lock.renew():
            _LOG.error("another controller has taken over, stopping")
            self.on_lost_lock()

    async def write_snapshot(self) -> None:
        """Write detector memories to their file."""
        positions = {
            following.name: save_position(following.follower.position)
            for following in self.followings
            if following.follower.position is not None
        }
        await self.memories.write(self.alerts.memory, positions)

    async def sweep(self) -> None:
        """Enforce retention."""
        kept = self.config.retention
        ages = Ages(
            ticks=kept.ticks,
            minutes=kept.minutes,
            verdicts=kept.verdicts,
            transitions=kept.transitions,
            deliveries=kept.deliveries,
        )
        await sweep(self.parts.store, ages, now=self.parts.now())

    async def push(self) -> None:
        """Send what fires to every Alertmanager, where that is switched on."""
        if self.pusher is None:
            return
        pushed = await self.pusher.push(list(self.alerts.memory.alerts.values()), self.parts.now())
        if not pushed.accepted:
            msg = f"no Alertmanager took the alerts: {dict(pushed.problems)}"
            raise OSError(msg)

    async def stop(self) -> None:
        """End the loops, write what is in memory, close everything."""
        running = [*self._tasks, *self._polls.values()]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        with self.health.watch("stop"):
            await self.close_tick()
            await self.write_snapshot()
        await self.parts.intake.close()
        await self.clients.aclose()
        with self.health.watch("lock"):
            await self.lock.release()
        await self.parts.store.close()
        _LOG.info("service stopped")
