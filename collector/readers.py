"""What is read: every target and neighbour of a configuration, as sources with their schedules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from alerts.breaker.records import Key
from collector.config import Config
from collector.config.models import TargetConfig, TierConfig
from collector.setups import headers_of, scrape_target
from collector.sources.fetch import FetchLimits
from collector.sources.joined import Companion, JoinedSource, MainSource
from collector.sources.protocols import Place, Source, Tools
from collector.sources.scrape import ScrapeSource
from collector.sources.server.facts import default_facts
from collector.sources.settings import NeighbourConfig, SourceConfig
from collector.sources.stored.server import StoredServer
from collector.sources.stored.settings import PrometheusConfig
from collector.sources.stored.source import PromQLSource
from detectors import wanted_signals
from detectors.signals import NEIGHBOUR_SIGNALS


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """All that decides how something is read: its reader is kept over reloads while it is equal."""

    settings: TargetConfig | NeighbourConfig
    interval_seconds: float
    timeout_seconds: float
    wanted: frozenset[str] = frozenset()
    stored: PrometheusConfig | None = None  # of a target that is read from a server


@dataclass(frozen=True, slots=True)
class Reader:
    """A source, how often it is read, and the companions that are read beside it."""

    plan: ReadPlan
    source: Source
    joined: JoinedSource | None = None
    server: StoredServer | None = None

    @property
    def companions(self) -> tuple[Companion, ...]:
        return self.joined.companions if self.joined else ()


def readers_of(config: Config, known: Mapping[Key, Reader], tools: Tools) -> dict[Key, Reader]:
    """Return a reader for everything the configuration names.

    Args:
        config: What is to be read.
        known: The readers in use; one whose plan has not changed is kept, its counters and all.
        tools: What new sources are built with.
    """
    found: dict[Key, Reader] = {}
    servers = _servers(config, known, tools)
    for name, tier in config.tiers.items():
        wanted = _wanted(tier)
        for target in tier.targets:
            key = Key(name, target.id)
            read_from = target.from_prometheus
            server = servers[read_from.server] if read_from else None
            plan = ReadPlan(
                target,
                config.scrape_interval,
                tools.timeout_seconds,
                wanted,
                server.config if server else None,
            )
            found[key] = _kept(known, key, plan) or _target_reader(key, plan, target, server, tools)
        for neighbour, settings in tier.neighbours.items():
            key = Key(name, neighbour)
            plan = ReadPlan(settings, settings.interval, tools.timeout_seconds)
            place = Place(name, neighbour, neighbour=True)
            found[key] = _kept(known, key, plan) or Reader(plan, settings.build(place, tools))
    return found


def keys_of(config: Config) -> set[Key]:
    """Return the keys of everything that is read: targets and neighbours of every tier."""
    return {
        Key(name, read)
        for name, tier in config.tiers.items()
        for read in (*(target.id for target in tier.targets), *tier.neighbours)
    }


def _wanted(tier: TierConfig) -> frozenset[str]:
    """Return the signals of the tier's targets whose absence is to be told."""
    return wanted_signals(tier.detectors) - NEIGHBOUR_SIGNALS


def _kept(known: Mapping[Key, Reader], key: Key, plan: ReadPlan) -> Reader | None:
    reader = known.get(key)
    return reader if reader is not None and reader.plan == plan else None


def _servers(config: Config, known: Mapping[Key, Reader], tools: Tools) -> dict[str, StoredServer]:
    """Return the servers by name; one whose settings have not changed is kept while it is used."""
    used = {it.server.name: it.server for it in known.values() if it.server is not None}
    servers = {}
    for name, settings in config.prometheus.items():
        server = used.get(name)
        if server is None or server.config != settings:
            server = StoredServer(name, settings, client=tools.client, monotonic=tools.monotonic)
        servers[name] = server
    return servers


def _target_reader(
    key: Key, plan: ReadPlan, target: TargetConfig, server: StoredServer | None, tools: Tools
) -> Reader:
    main = _main_source(key, plan, target, server, tools)
    place = Place(key.tier, target.id, str(target.url), headers=headers_of(target))
    companions = [
        Companion(settings.build(place, tools), settings.interval)
        for settings in _sources_of(target)
    ]
    joined = JoinedSource(main, companions, monotonic=tools.monotonic)
    return Reader(plan, joined, joined, server)


def _sources_of(target: TargetConfig) -> tuple[SourceConfig, ...]:
    """Return the target's own sources, and the one that asks its server about itself.

    A target that is read from a Prometheus server may not be reachable from here at all.
    """
    asks = any(it.kind == "facts" for it in target.sources) or target.from_prometheus is not None
    return target.sources if asks else (*target.sources, default_facts())


def _main_source(
    key: Key, plan: ReadPlan, target: TargetConfig, server: StoredServer | None, tools: Tools
) -> MainSource:
    """Return the source of a target's own metrics: its page, or the server that stores them."""
    if server is not None and target.from_prometheus is not None:
        return PromQLSource(
            scrape_target(key.tier, target),
            server,
            match=target.from_prometheus.match,
            now=tools.now,
            monotonic=tools.monotonic,
            wanted=plan.wanted,
        )
    source = ScrapeSource(
        scrape_target(key.tier, target),
        client=tools.client,
        now=tools.now,
        monotonic=tools.monotonic,
        limits=FetchLimits(timeout_seconds=plan.timeout_seconds),
        wanted=plan.wanted,
    )
    source.share(tools.pools)
    return source
