"""Reload: the new configuration takes effect whole, or the old one stays and says why."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from alerts import policy
from alerts.breaker.records import Key
from collector.config import Config, ConfigError, load
from collector.gauges import show_reload
from collector.parts import Reloaded
from collector.service import Service
from collector.setups import checked, routes, tier_facts, tier_setups
from collector.wiring import adopt

_LOG = logging.getLogger(__name__)
FIXED = ("listen", "store", "snapshot", "controller", "tick", "ingest", "series_limit")


async def reload(service: Service, path: Path, environ: Mapping[str, str]) -> Reloaded:
    """Read the configuration anew and swap it in; nothing changes if it has a problem."""
    try:
        config = load(path, environ)
        problems = fixed_changes(service.config, config)
        access, endpoints = checked(config)
    except ConfigError as error:
        return _refused(service, tuple(str(problem) for problem in error.problems))
    if problems:
        return _refused(service, problems)
    parts = service.parts
    gone = set(service.sources) - {
        Key(name, target.id) for name, tier in config.tiers.items() for target in tier.targets
    }
    await parts.controller.update_tiers(tier_setups(config), routes(config))
    service.stop_polling()
    adopt(service, config)
    parts.access = access
    parts.tiers = tier_facts(config)
    parts.deny_status = config.admit.deny_status
    service.worker.update_endpoints(endpoints)
    for key in gone:
        forget(service, key)
    service.poll_sources()
    outcome = Reloaded(ok=True, at=parts.now())
    parts.last_reload = outcome
    show_reload(parts.page, outcome)
    _LOG.info("configuration reloaded", extra={"targets": len(service.sources)})
    return outcome


def fixed_changes(old: Config, new: Config) -> tuple[str, ...]:
    """Return what differs and cannot change while the service runs."""
    return tuple(
        f"{key}: it cannot change while the service runs; restart it, or put the old value back"
        for key in FIXED
        if getattr(old, key) != getattr(new, key)
    )


def forget(service: Service, key: Key) -> None:
    """Drop everything about a target that is not configured any more."""
    parts = service.parts
    parts.state.forget_target(key.tier, key.target)
    parts.newest.forget_target(key.tier, key.target)
    parts.page.forget(tier=key.tier, target=key.target)
    service.alerts.memory = policy.forget(service.alerts.memory, tier=key.tier, target=key.target)


def _refused(service: Service, problems: tuple[str, ...]) -> Reloaded:
    outcome = Reloaded(ok=False, at=service.parts.last_reload.at, problems=problems)
    service.parts.last_reload = outcome
    show_reload(service.parts.page, outcome)
    _LOG.error("reload refused, the old configuration stays", extra={"problems": list(problems)})
    return outcome
