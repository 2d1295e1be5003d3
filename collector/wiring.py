"""Configuration -> running parts. The only file that knows concrete parts and the real clock."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random, SystemRandom
from types import MappingProxyType

import httpx2

from alerts.alertmanager import Pusher, PushSettings
from alerts.breaker.controller import Controller
from alerts.breaker.records import Entry
from alerts.delivery.egress import resolve_by_system
from alerts.delivery.endpoint import Endpoint
from alerts.delivery.worker import DeliveryWorker, a_client
from alerts.policy import PolicySettings
from collector import source_memories
from collector.access import Access
from collector.actions import KeepHistory, RaiseAlerts, ShowMetrics, TellBreakers
from collector.annotating import KeepAnnotations
from collector.api.ingest import defaults_of
from collector.baselines import BaselineKeeper
from collector.config import Config, FollowConfig
from collector.config.discovered import with_targets
from collector.counting import Counting
from collector.discovery.found import Finders
from collector.finding import Finder, finders_of, targets_found
from collector.following import Following, load_position
from collector.gauges import show_build, show_condition, show_entry, show_reload
from collector.health import Health
from collector.ingest.follower import Follower
from collector.ingest.intake import Intake
from collector.ingest.records import Limits
from collector.ingest.rotated import Position
from collector.loops import LoopLag
from collector.memories import Memories, saved_positions
from collector.parts import Parts, Reloaded
from collector.pipeline import Pipeline
from collector.readers import readers_of
from collector.remarks import LogRemarks, tell_entry
from collector.service import Clients, Service
from collector.settling import Settling
from collector.setups import (
    checked,
    detectors_by_tier,
    routes,
    shadows_of,
    snapshot_path,
    tier_facts,
    tier_setups,
    without_user,
)
from collector.sources.connections import KeptConnections
from collector.sources.protocols import Tools
from collector.state import Lane, State
from collector.store import Store, ticks
from collector.store import baselines as stored_baselines
from collector.store.lock import ControllerLock, ControllerLockedError, take_lock
from collector.store.thinning import Thinning
from collector.verdicts import NewestVerdicts
from detectors.baseline import Baseline
from detectors.records import Tick
from exporters.catalog import ALERTMANAGER_PUSHES
from exporters.prometheus import MetricsPage

_LOG = logging.getLogger(__name__)
SCRAPE_CONNECTIONS = 2000


def utc_now() -> datetime:
    """Return the real time, aware UTC."""
    return datetime.now(UTC)  # noqa: TID251  # the one real clock


def make_pusher(config: Config, client: httpx2.AsyncClient, page: MetricsPage) -> Pusher | None:
    """Return the push to Alertmanager, or None where none is configured."""
    if config.alertmanager is None:
        return None

    def count(member: str, outcome: str) -> None:
        page.add(ALERTMANAGER_PUSHES, {"gateway": without_user(member), "reason": outcome})

    settings = PushSettings(
        members=tuple(map(str, config.alertmanager.urls)),
        controller=config.controller,
        link=f"http://{config.listen}/",
        timeout_seconds=config.alertmanager.timeout,
        resend_seconds=config.alertmanager.resend,
    )
    return Pusher(client, settings, count)


class StoredBaselines:
    """The keeper's view of the store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def load_baselines(self) -> list[Baseline]:
        return await self._store.read(stored_baselines.in_use)

    async def save_baseline(self, baseline: Baseline) -> None:
        await self._store.control(stored_baselines.add, baseline, now=utc_now())

    async def load_ticks(self, lane: Lane) -> list[Tick]:
        return await self._store.read(ticks.load, lane)

    async def count_requests(self) -> Mapping[Lane, int]:
        return await self._store.read(ticks.count_requests)


@dataclass(frozen=True, slots=True)
class Outside:
    """What the service asks of the process: to stop when another controller took over."""

    on_lost_lock: Callable[[], None]


async def make_service(config: Config, outside: Outside) -> Service:
    """Open the store, take the lock, and connect all parts; nothing runs yet.

    Raises:
        ConfigError: If a token file or webhook cannot be used.
        ControllerLockedError: If another process decides on this store.
        StoreError: If the store cannot be opened.
    """
    access, endpoints = checked(config)
    store = await Store.open(config.store, now=utc_now)
    try:
        lock = await take_lock(store, pid=os.getpid(), now=utc_now)
    except ControllerLockedError:
        await store.close()
        raise
    return _connect(config, outside, Opened(store, lock, access, endpoints))


@dataclass(frozen=True, slots=True)
class Opened:
    """What was opened before anything is connected."""

    store: Store
    lock: ControllerLock
    access: Access
    endpoints: Mapping[str, Endpoint]


def _connect(written: Config, outside: Outside, opened: Opened) -> Service:
    positions = saved_positions(snapshot_path(written))
    page = MetricsPage(monotonic=time.monotonic, series_limit=written.series_limit)
    health = Health(on_change=lambda part, condition: show_condition(page, part, condition))
    clients = Clients(
        scrape=httpx2.AsyncClient(
            trust_env=False,
            transport=KeptConnections(monotonic=time.monotonic, most=SCRAPE_CONNECTIONS),
        ),
        webhook=a_client(),
        alertmanager=httpx2.AsyncClient(trust_env=False),
    )
    finding = finders_of(written, {}, positions, _finders(clients))
    config = with_targets(written, targets_found(written, finding))
    worker = _worker(config, opened, clients)
    parts = _parts(config, opened, page, worker, health)
    alerts = RaiseAlerts(
        page=page, now=utc_now, monotonic=time.monotonic, settings=PolicySettings()
    )
    history = KeepHistory(opened.store, Thinning(), now=utc_now)
    annotations = KeepAnnotations(opened.store, now=utc_now)
    pipeline = Pipeline(
        state=parts.state,
        actions=(
            TellBreakers(parts.controller),
            parts.newest,
            ShowMetrics(page),
            alerts,
            history,
            annotations,
            parts.remarks,
        ),
        health=health,
    )
    parts.take_batch = pipeline.take_batch
    memories = Memories(snapshot_path(config), parts.state, now=utc_now, monotonic=time.monotonic)
    service = Service(
        config=config,
        written=written,
        finding=finding,
        parts=parts,
        pipeline=pipeline,
        health=health,
        history=history,
        alerts=alerts,
        annotations=annotations,
        worker=worker,
        memories=memories,
        settling=Settling(monotonic=time.monotonic),
        lock=opened.lock,
        lag=LoopLag(time.monotonic),
        clients=clients,
        monotonic=time.monotonic,
        rng=Random(),  # noqa: S311  # spreads scrapes, guards nothing
        on_lost_lock=outside.on_lost_lock,
    )
    adopt(service, config, positions)
    service.followings = tuple(
        _following(service, follow, positions) for follow in config.ingest.files
    )
    show_build(page)
    show_reload(page, parts.last_reload)
    return service


def adopt(
    service: Service, config: Config, kept: Mapping[str, bytes] = MappingProxyType({})
) -> None:
    """Give the service what a configuration may change while it runs: detectors, sources, push.

    `kept` is what a snapshot holds, for sources that remember something over a restart.
    """
    readings, panels = detectors_by_tier(config)
    service.config = config
    service.pipeline.use(readings, panels)
    service.memories.use({name: [*readings[name], *panels[name]] for name in config.tiers})
    service.parts.keeper.configure(
        auto_promote={name: tier.baseline.auto_promote for name, tier in config.tiers.items()},
        needed={name: tier.baseline.requests for name, tier in config.tiers.items()},
    )
    clock, timeout = (utc_now, time.monotonic), config.scrape_timeout
    tools = Tools(service.clients.scrape, *clock, timeout, service.pools)
    remembered = source_memories.saved(service.companions())
    service.readers = readers_of(config, service.readers, tools)
    source_memories.restore(service.companions(), remembered or kept)
    service.annotations.use(shadows_of(config))
    service.pusher = make_pusher(config, service.clients.alertmanager, service.parts.page)
    service.alerts.listeners = (service.pusher.note,) if service.pusher else ()


def find_anew(service: Service, written: Config) -> dict[tuple[str, int], Finder]:
    """Return the discoveries of a file that is read anew; those that have not changed are kept."""
    return finders_of(written, service.finding, {}, _finders(service.clients))


def _finders(clients: Clients) -> Finders:
    return Finders(clients.scrape, utc_now, time.monotonic)


def _worker(config: Config, opened: Opened, clients: Clients) -> DeliveryWorker:
    return DeliveryWorker(
        opened.store.journal,
        opened.endpoints,
        client=clients.webhook,
        now=utc_now,
        rng=SystemRandom(),
        resolve=resolve_by_system,
        controller=config.controller,
    )


def _controller(
    config: Config, store: Store, page: MetricsPage, worker: DeliveryWorker
) -> Controller:
    def changed(entry: Entry) -> None:
        show_entry(page, entry)
        tell_entry(entry)
        worker.wake()

    return Controller(
        store.journal,
        tier_setups(config),
        now=utc_now,
        rng=SystemRandom(),
        controller=config.controller,
        endpoints=routes(config),
        on_change=changed,
        monotonic=time.monotonic,
    )


def _parts(
    config: Config, opened: Opened, page: MetricsPage, worker: DeliveryWorker, health: Health
) -> Parts:
    state = State(tick_seconds=config.tick, now=utc_now, monotonic=time.monotonic)
    limits = Limits(
        max_line_bytes=config.ingest.max_line_bytes, max_batch_bytes=config.ingest.max_batch_bytes
    )
    return Parts(
        access=opened.access,
        tiers=tier_facts(config),
        deny_status=config.admit.deny_status,
        max_body_bytes=config.ingest.max_batch_bytes,
        page=page,
        state=state,
        controller=_controller(config, opened.store, page, worker),
        intake=Intake(monotonic=time.monotonic, workers=config.ingest.workers, limits=limits),
        counting=Counting(page, monotonic=time.monotonic, tick_seconds=config.tick),
        store=opened.store,
        keeper=BaselineKeeper(
            state=state, store=StoredBaselines(opened.store), now=utc_now, health=health
        ),
        newest=NewestVerdicts(now=utc_now),
        remarks=LogRemarks(),
        now=utc_now,
        last_reload=Reloaded(ok=True, at=utc_now()),
        missing=["starting"],
    )


def _saved_position(name: str, positions: Mapping[str, bytes]) -> Position | None:
    saved = positions.get(name)
    if saved is None:
        return None
    try:
        return load_position(saved)
    except ValueError as error:
        _LOG.warning("file position left aside", extra={"file": name, "problem": str(error)})
        return None


def _following(service: Service, follow: FollowConfig, positions: Mapping[str, bytes]) -> Following:
    name = str(follow.path)
    follower = Follower(
        follow.path,
        max_line_bytes=service.config.ingest.max_line_bytes,
        position=_saved_position(name, positions),
        from_end=follow.read_from == "end",
    )
    return Following(
        name=name,
        follower=follower,
        intake=service.parts.intake,
        defaults=lambda: defaults_of(
            service.parts,
            tier=follow.tier,
            target=follow.target or "",
            segment=follow.segment or "",
        ),
        take_batch=service.pipeline.take_batch,
        counting=service.parts.counting,
        page=service.parts.page,
        health=service.health,
    )
