"""The running service: parts, loops, start, stop. `collector/wiring.py` makes it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from random import Random

import httpx2

from alerts.alertmanager import Pusher
from alerts.breaker.records import Breaker, Key
from alerts.delivery.worker import DeliveryWorker
from alerts.policy import Change
from collector import source_memories
from collector.actions import KeepHistory, RaiseAlerts
from collector.annotating import KeepAnnotations
from collector.config import Config
from collector.finding import Finder, keep_looking, saved
from collector.following import Following, save_position
from collector.gauges import (
    Dropped,
    show_breakers,
    show_deliveries,
    show_dropped,
    show_parts,
    show_sources,
)
from collector.health import Health
from collector.loops import Every, LoopLag, keep_running, repeat
from collector.memories import Memories
from collector.parts import Parts
from collector.pipeline import Pipeline
from collector.readers import Reader
from collector.settling import Settling
from collector.sources.page.keys import SeriesPools
from collector.sources.polling import LONGEST_SECONDS, Schedule, poll
from collector.sources.protocols import Source
from collector.store import ticks
from collector.store import verdicts as stored_verdicts
from collector.store.lock import ControllerLock
from collector.store.retention import Ages, sweep
from collector.store.verdicts import KeptVerdict
from detectors.records import TIER_SCOPE, Level, Reading, Stream, Tick, Verdict
from exporters.catalog import LOOP_LAG, SNAPSHOT_AGE, TICKS_LOST

_LOG = logging.getLogger(__name__)
CONTROLLER_SECONDS = 1.0
LOCK_SECONDS = 5.0
SNAPSHOT_SECONDS = 10.0
RETENTION_SECONDS = 600.0
PUSH_LOOK_SECONDS = 5.0
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


async def _no_reconfigure() -> None:
    msg = "targets were found before the service was connected"
    raise RuntimeError(msg)


@dataclass(slots=True)
class Service:
    """Everything that runs. Fields that a reload replaces are replaced between two awaits.

    `written` is the configuration as in its file, `config` the same with discovered targets.
    """

    config: Config
    written: Config
    parts: Parts
    pipeline: Pipeline
    health: Health
    history: KeepHistory
    alerts: RaiseAlerts
    annotations: KeepAnnotations
    worker: DeliveryWorker
    memories: Memories
    lock: ControllerLock
    lag: LoopLag
    settling: Settling
    clients: Clients
    monotonic: Callable[[], float]
    rng: Random
    on_lost_lock: Callable[[], None]
    pusher: Pusher | None = None
    readers: Mapping[Key, Reader] = field(default_factory=dict)
    pools: SeriesPools = field(default_factory=SeriesPools)
    finding: Mapping[tuple[str, int], Finder] = field(default_factory=dict)
    reconfigure: Callable[[], Awaitable[object]] = _no_reconfigure
    followings: tuple[Following, ...] = ()
    shown: Mapping[Key, Breaker] = field(default_factory=dict)  # breakers on the metrics page
    unstored: list[Tick] = field(default_factory=list)
    started: bool = False
    turn: asyncio.Lock = field(
        default_factory=asyncio.Lock
    )  # one change of configuration at a time
    _pushed_at: float = 0.0
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)
    _polls: dict[Key, list[asyncio.Task[None]]] = field(default_factory=dict)
    _looking: dict[tuple[str, int], tuple[Finder, asyncio.Task[None]]] = field(default_factory=dict)

    async def start(self) -> None:
        """Load what is kept, then start every loop.

        Raises:
            JournalError: If control state cannot be loaded.
            StoreError: If the history or the baselines cannot be read.
        """
        await self.parts.intake.start()
        await self.history.start()
        await self.annotations.start()
        await self.parts.keeper.start()
        before = self.memories.last_written()
        self.alerts.memory = self.memories.read()
        await self.parts.controller.start()
        await self._note_gap(before)
        self._show_breakers()
        self.started = True
        for every in self._loops():
            self._run(repeat(every, health=self.health, monotonic=self.monotonic))
        for name, work in (("loop lag", self.lag.run), ("webhooks", self.worker.run)):
            self._run(keep_running(name, work, health=self.health))
        for following in self.followings:
            self._run(keep_running(f"file:{following.name}", following.run, health=self.health))
        self.poll_sources()
        self.keep_looking()
        self.parts.missing.clear()
        self.settling.changed()
        _LOG.info("service started", extra={"targets": len(self.readers)})

    def _loops(self) -> tuple[Every, ...]:
        return (
            Every("tick", self.config.tick, self.close_tick),
            Every("controller", CONTROLLER_SECONDS, self.control),
            Every("lock", LOCK_SECONDS, self.hold_lock),
            Every("snapshot", SNAPSHOT_SECONDS, self.write_snapshot),
            Every("retention", RETENTION_SECONDS, self.sweep),
            Every("alertmanager", PUSH_LOOK_SECONDS, self.push_if_due),
        )

    def _run(self, work: Coroutine[object, object, None]) -> None:
        self._tasks.append(asyncio.create_task(work))

    def poll_sources(self) -> None:
        """Poll every source that is not polled yet."""
        for key, reader in self.readers.items():
            if key not in self._polls:
                self._polls[key] = [self._polling(reader.source, reader.plan.interval_seconds)]
                if reader.joined is not None:
                    self._polls[key] += [
                        self._polling(
                            it.source, it.interval_seconds, partial(reader.joined.keep, n)
                        )
                        for n, it in enumerate(reader.companions)
                    ]

    def _polling(
        self,
        source: Source,
        interval_seconds: float,
        keep: Callable[[Reading], Awaitable[object]] | None = None,
    ) -> asyncio.Task[None]:
        handle = keep or self.take_reading

        async def work() -> None:
            leases = [tier.breaker.lease_seconds / 2 for tier in self.config.tiers.values()]
            schedule = Schedule.jittered(
                interval_seconds,
                SCRAPE_JITTER,
                self.rng,
                longest_seconds=min([LONGEST_SECONDS, *leases]),
            )
            await poll(source, handle, schedule, monotonic=self.monotonic, sleep=asyncio.sleep)

        return asyncio.create_task(keep_running(source.name, work, health=self.health))

    def keep_looking(self) -> None:
        """Look for targets with every finder that does not look yet, and stop the others."""
        for place, (finder, task) in list(self._looking.items()):
            if self.finding.get(place) is not finder:
                task.cancel()
                del self._looking[place]
        for place, finder in self.finding.items():
            if place not in self._looking:
                work = partial(
                    keep_looking,
                    finder,
                    self.reconfigure,
                    health=self.health,
                    monotonic=self.monotonic,
                )
                running = keep_running(finder.name, work, health=self.health)
                self._looking[place] = (finder, asyncio.create_task(running))

    async def take_reading(self, reading: Reading) -> None:
        """Judge one completed scrape; nothing that goes wrong ends the polling of its target."""
        with self.health.watch("pipeline"):
            await self.pipeline.take_reading(self.annotations.with_findings(reading))

    async def stop_polling(self, keys: Iterable[Key]) -> None:
        """Stop polling these targets; what is being judged of them ends first."""
        stopped = [it for key in list(keys) for it in self._polls.pop(key, ())]
        for polling in stopped:
            polling.cancel()
        await asyncio.gather(*stopped, return_exceptions=True)

    async def close_tick(self) -> None:
        """Close the tick, judge it, store its counts, make baselines, settle alerts.

        What was closed is kept for the store before anything else can go wrong.
        """
        closed = self.parts.state.close_tick()
        self.unstored.extend(closed)
        with self.health.watch("judging"):
            await self.pipeline.judge(closed)
        self._forget_idle()
        changed: tuple[Change, ...] = ()
        with self.health.watch("alerts"):
            changed = await self.alerts.settle()
        with self.health.watch("store:ticks"):
            await self._store_ticks()
        with self.health.watch("store:history"):
            await self.history.flush()
        with self.health.watch("store:annotations"):
            await self.annotations.flush()
        with self.health.watch("baselines"):
            await self.parts.keeper.look()
        with self.health.watch("gauges"):
            self._show()
        if changed:
            with self.health.watch("alertmanager"):
                await self.push()

    def _show(self) -> None:
        page = self.parts.page
        show_parts(self.parts)
        show_sources(page, {key: it.source for key, it in self.readers.items()})
        show_deliveries(page, self.worker.health())
        show_dropped(
            page,
            Dropped(
                batches=self.parts.state.refused_batches,
                worker_deaths=self.parts.intake.deaths,
                history=self.history.dropped,
                memory=self.parts.newest.dropped,
                annotations=self.annotations.dropped,
                alert_streams=self.alerts.memory.dropped,
            ),
        )
        page.set(LOOP_LAG, {}, self.lag.take())
        if self.memories.written_monotonic is not None:
            page.set_since(SNAPSHOT_AGE, {}, self.memories.written_monotonic)

    def _forget_idle(self) -> None:
        """Let go of variants that another one has replaced."""
        gone = set(self.parts.state.forget_idle())
        if gone:
            self.parts.newest.forget(lambda s: (s.tier, s.scope, s.variant) in gone)

    async def _store_ticks(self) -> None:
        """Write ticks; while the store fails keep the newest, and count what is let go."""
        for tick in self.unstored[:-UNSTORED_MOST]:
            self.parts.page.add(TICKS_LOST, {"tier": tick.tier, "reason": "store"})
        del self.unstored[:-UNSTORED_MOST]
        while self.unstored:
            piece = self.unstored[:TICKS_AT_ONCE]
            await self.parts.store.write(ticks.append, piece)
            del self.unstored[: len(piece)]

    async def _note_gap(self, before: datetime | None) -> None:
        """Record for how long nothing was counted before this start, if that is known."""
        ends = [await self.parts.store.read(ticks.newest_end), before]
        known = [end for end in ends if end is not None]
        now = self.parts.now()
        if not known or max(known) >= now:
            return
        gap = (now - max(known)).total_seconds()
        missing = int(gap // self.config.tick)
        if missing <= 0:
            return
        _LOG.warning("nothing was counted since the last run", extra={"gap_seconds": gap})
        reason = f"nothing was counted for {gap:.0f} s up to this start: the service did not run"
        gaps = []
        for tier in self.parts.tiers:
            self.parts.page.add(TICKS_LOST, {"tier": tier, "reason": "not_running"}, missing)
            stream = Stream(tier, TIER_SCOPE, "up")
            gaps.append(Verdict("collector", stream, Level.UNKNOWN, now, reason=reason))
        kept = [KeptVerdict(gap_verdict, changed=True) for gap_verdict in gaps]
        with self.health.watch("store:history"):
            await self.parts.store.write(stored_verdicts.record, kept)

    async def control(self) -> None:
        """Let the breakers' timers run."""
        self.settling.look()
        await self.parts.controller.tick()
        self._show_breakers()
        if self.parts.store.journal.problem:
            await self.parts.store.journal.probe()

    def _show_breakers(self) -> None:
        breakers = self.parts.controller.breakers
        show_breakers(self.parts.page, breakers, self.shown)
        self.shown = breakers

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
        kept = {**positions, **saved(self.finding), **source_memories.saved(self.companions())}
        await self.memories.write(self.alerts.memory, kept)

    def companions(self) -> list[Source]:
        """Return every source that is read beside a target's own page."""
        return [it.source for reader in self.readers.values() for it in reader.companions]

    async def sweep(self) -> None:
        """Enforce retention."""
        kept = self.config.retention
        ages = Ages(
            ticks=kept.ticks,
            minutes=kept.minutes,
            verdicts=kept.verdicts,
            transitions=kept.transitions,
            deliveries=kept.deliveries,
            annotations=kept.annotations,
        )
        await sweep(self.parts.store, ages, now=self.parts.now())

    async def push_if_due(self) -> None:
        """Send what fires again, as often as the configuration says."""
        configured = self.config.alertmanager
        if configured and self.monotonic() - self._pushed_at >= configured.resend:
            await self.push()

    async def push(self) -> None:
        """Send what fires to every Alertmanager, where that is switched on."""
        if self.pusher is None:
            return
        self._pushed_at = self.monotonic()
        pushed = await self.pusher.push(list(self.alerts.memory.alerts.values()), self.parts.now())
        if not pushed.accepted:
            msg = f"no Alertmanager took the alerts: {dict(pushed.problems)}"
            raise OSError(msg)

    async def stop(self) -> None:
        """End the loops, write what is in memory, close everything."""
        self.parts.controller.close()
        looking = [task for _, task in self._looking.values()]
        running = [*looking, *self._tasks, *(it for polls in self._polls.values() for it in polls)]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        if self.started:  # a start that failed has nothing that a snapshot should hold
            with self.health.watch("stop"):
                await self.close_tick()
            with self.health.watch("store:annotations"):
                await self.annotations.flush(final=True)
            with self.health.watch("snapshot"):
                await self.write_snapshot()
        await self.parts.intake.close()
        for finder in self.finding.values():
            with self.health.watch(f"close:{finder.name}"):
                await finder.discovery.close()
        for reader in self.readers.values():
            with self.health.watch(f"close:{reader.source.name}"):
                await reader.source.close()
        await self.clients.aclose()
        with self.health.watch("lock"):
            await self.lock.release()
        await self.parts.store.close()
        _LOG.info("service stopped")
