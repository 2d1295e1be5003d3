"""Configuration -> what each part needs of it: plain translation, nothing is opened or started."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from alerts.breaker.book import TierSetup
from alerts.breaker.payload import Route
from alerts.delivery.egress import EgressError, Rules
from alerts.delivery.endpoint import Endpoint
from alerts.delivery.signing import SecretError
from alerts.gateways.webhook import endpoint
from collector.access import Access, read_access
from collector.config import Config, ConfigError, Problem
from collector.config.models import TargetConfig
from collector.parts import TierFacts
from collector.sources.credentials import headers_for
from collector.sources.scrape import ScrapeTarget
from collector.store.session import database_file, parse_url
from detectors import reading_detectors, tick_detectors
from detectors.protocols import ReadingDetector, TickDetector


def tier_facts(config: Config) -> dict[str, TierFacts]:
    """Return what the routes tell of each tier."""
    return {
        name: TierFacts(
            role=tier.role,
            mode=config.mode_of(name),
            targets={target.id: str(target.url) for target in tier.targets},
            segments=tier.segments,
            baseline_requests=tier.baseline.requests,
            vocabulary_tokens=tier.vocabulary_tokens,
            neighbours=tuple(tier.neighbours),
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


def shadows_of(config: Config) -> dict[str, list[str]]:
    """Return the shadow tiers of every production tier that has some."""
    found: dict[str, list[str]] = {}
    for name, tier in config.tiers.items():
        if tier.shadow_of is not None:
            found.setdefault(tier.shadow_of, []).append(name)
    return found


def routes(config: Config) -> tuple[Route, ...]:
    """Return the endpoints that are told of breaker changes."""
    return tuple(Route(name, webhook.tiers) for name, webhook in config.webhooks.items())


def scrape_target(tier: str, target: TargetConfig) -> ScrapeTarget:
    """Return a target as its scrapes need it."""
    return ScrapeTarget(
        tier=tier,
        id=target.id,
        url=str(target.url),
        engine=target.engine,
        request_slots=target.request_slots,
        kv_cache_capacity_tokens=target.kv_cache_capacity_tokens,
        batch_token_budget=target.batch_token_budget,
        headers=headers_of(target),
    )


def headers_of(target: TargetConfig) -> Mapping[str, str]:
    """Return what is sent with every request to a target, read from its files each time."""
    return headers_for(str(target.url), target.credentials, insecure_http=target.insecure_http)


def endpoints(config: Config) -> dict[str, Endpoint]:
    """Return the webhooks, ready to be sent to.

    Raises:
        EgressError: If a URL's form is not allowed.
        SecretError: If a secret cannot be used.
    """
    found = {}
    for name, webhook in config.webhooks.items():
        present, *previous = (secret.get_secret_value() for secret in webhook.secrets)
        found[name] = endpoint(
            name,
            str(webhook.url),
            secret_text=present,
            previous_text=previous[0] if previous else "",
            tiers=webhook.tiers,
            rules=Rules(webhook.insecure_http, tuple(map(str, webhook.allow))),
            timeout_seconds=webhook.timeout,
        )
    return found


def checked(config: Config) -> tuple[Access, dict[str, Endpoint]]:
    """Return what is read from files and parsed beyond the configuration's own checks.

    Raises:
        ConfigError: If any of it cannot be used.
    """
    try:
        return read_access(config.token_file, host=config.listen.host), endpoints(config)
    except (EgressError, SecretError, ValueError) as error:
        raise ConfigError((Problem("", None, "", str(error), ""),)) from error


def detectors_by_tier(
    config: Config,
) -> tuple[Mapping[str, Sequence[ReadingDetector[Any]]], Mapping[str, Sequence[TickDetector[Any]]]]:
    """Return the detectors of scrapes and those of ticks, by tier."""
    tiers = config.tiers.items()
    return (
        {name: reading_detectors(tier.detectors) for name, tier in tiers},
        {name: tick_detectors(tier.detectors) for name, tier in tiers},
    )


def without_user(url: str) -> str:
    """Return `url` without user and password, fit to be a label."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def snapshot_path(config: Config) -> Path:
    """Return the snapshot's file: as configured, else beside a SQLite store, else here."""
    if config.snapshot is not None:
        return config.snapshot
    database = database_file(parse_url(config.store))
    return database.with_suffix(".snapshot") if database else Path("fusewire.snapshot")
