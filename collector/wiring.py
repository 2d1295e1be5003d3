"""Configuration -> running parts. The only file that knows concrete parts and the real clock."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from random import Random, SystemRandom

import httpx2

from alerts.alertmanager import Pusher, PushSettings
from alerts.breaker.book import TierSetup
from alerts.breaker.controller import Controller
from alerts.breaker.payload import Route
from alerts.breaker.records import Key
from alerts.delivery.worker import DeliveryWorker
from alerts.policy import PolicySettings
from collector.actions import KeepHistory, RaiseAlerts, ShowMetrics, TellBreakers
from collector.api.access import Access, read_access
from collector.api.parts import Parts, Reloaded, TierFacts
from collector.baselines import BaselineKeeper
from collector.config import Config
from collector.gauges import show_build, show_condition, show_entry, show_reload
from collector.health import Health
from collector.ingest.intake import Intake
from collector.loops import LoopLag
from collector.memories import Memories
from collector.pipeline import Pipeline
from collector.service import Service
from collector.sources.fetch import FetchLimits
from collector.sources.scrape import ScrapeSource, ScrapeTarget
from collector.state import State
from collector.store import Store
from collector.store.lock import ControllerLock, take_lock
from collector.store.session import database_file
from collector.store.thinning import Thinning
from collector.verdicts import NewestVerdicts
from detectors import reading_detectors, tick_detectors
from exporters.prometheus import MetricsPage

SCRAPE_CONNECTIONS = 2000


def utc_now() -> datetime:
    """Return the real time, aware UTC."""
    return datetime.now(UTC)  # noqa: TID251  # the one real clock


def tier_facts(config: Config) -> dict[str, TierFacts]:
    """Return what the routes tell of each tier."""
    return {
        name: TierFacts(
            role=tier.role,
            mode=config.mode_of(name),
            targets={target.id: str(target.url) for target in tier.targets},
            segments=tier.segments,
            baseline_requests=tier.baseline.requests,
        )
        for name, tier in config.tiers.items()
    }


def tier_setups(config: Config) -> dict[str, TierSetup]:
    """Return each tier as its breakers need it; shadow tiers take no traffic and have none."""
    return {
        name: TierSetup(
            targets={target.id: str(target.url) for target in tier.targets},
            mode=config.mode_of(name),
            parameters=tier.breaker,
            drift_may_shed=tier.drift_may_shed,
        )
        for name, tier in config.tiers.items()
        if tier.role == "production"
    }


def routes(config: Config) -> tuple[Route, ...]:
    """Return the endpoints that are told of breaker changes."""
    return tuple(Route(name, webhook.tiers) for name, webhook in config.webhooks.items())


def scrape_targets(config: Config) -> dict[Key, ScrapeTarget]:
    """Return every target of every tier."""
    return {
        Key(name, target.id): ScrapeTarget(
            tier=name,
            id=target.id,
            url=str(target.url),
            engine=target.engine,
            request_slots=target.request_slots,
            kv_cache_capacity_tokens=target.kv_cache_capacity_tokens,
            batch_token_budget=target.batch_token_budget,
        )
        for name, tier in config.tiers.items()
        for target in tier.targets
    }


def make_source(config: Config, target: ScrapeTarget, client: httpx2.AsyncClient) -> ScrapeSource:
    """Return the source of one target."""
    detectors = reading_detectors(config.tiers[target.tier].detectors)
    wanted: frozenset[str] = frozenset().union(*(detector.signals for detector in detectors))
    return ScrapeSource(
        target,
        client=client,
        now=utc_now,
        monotonic=time.monotonic,
        limits=FetchLimits(timeout_seconds=config.scrape_timeout),
        wanted=wanted,
    )
