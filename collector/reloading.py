"""Reload: the new configuration takes effect whole, or the old one stays and says why."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Protocol

from alerts import policy
from alerts.breaker.journal import JournalError
from alerts.breaker.records import Key
from alerts.policy import PolicyMemory
from collector.config import Config, ConfigError, load
from collector.config.discovered import with_targets
from collector.finding import Finder, targets_found
from collector.gauges import show_reload
from collector.parts import Reloaded
from collector.readers import Reader, keys_of
from collector.service import Service
from collector.setups import checked, routes, tier_facts, tier_setups
from collector.wiring import adopt, find_anew
from detectors.records import Scope
from exporters.catalog import (
    ADMIT_RATIO,
    CATALOG,
    OVERRIDE_ACTIVE,
    PART_BROKEN,
    PART_FAILURES,
)

_LOG = logging.getLogger(__name__)
FIXED = ("listen", "store", "snapshot", "controller", "tick", "ingest", "series_limit")


async def reload(service: Service, path: Path, environ: Mapping[str, str]) -> Reloaded:
    """Read the configuration anew and swap it in; nothing changes if it has a problem."""
    try:
        written = await asyncio.to_thread(load, path, environ)
        problems = fixed_changes(service.written, written)
        access, endpoints = checked(written)
    except ConfigError as error:
        return _refused(service, tuple(str(problem) for problem in error.problems))
    if problems:
        return _refused(service, problems)
    async with service.turn:
        before, parts = service.finding, service.parts
        finding = find_anew(service, written)
        try:
            await _apply(service, with_targets(written, targets_found(written, finding)))
        except JournalError as error:  # what was withheld cannot be given back: nothing was changed
            return _refused(service, (f"the breakers cannot take it: {error}",))
        service.written, service.finding = written, finding
        parts.access = access
        parts.deny_status = written.admit.deny_status
        service.worker.update_endpoints(endpoints)
        await _look_anew(service, before)
    outcome = Reloaded(ok=True, at=parts.now())
    parts.last_reload = outcome
    show_reload(parts.page, outcome)
    _LOG.info("configuration reloaded", extra={"targets": len(service.readers)})
    return outcome


async def rediscover(service: Service) -> None:
    """Read the targets that are found now, and no others beside those of the file."""
    async with service.turn:
        found = targets_found(service.written, service.finding)
        config = with_targets(service.written, found)
        if config != service.config:
            await _apply(service, config)


async def _look_anew(service: Service, before: Mapping[tuple[str, int], Finder]) -> None:
    """Let discoveries that are not configured any more end."""
    if service.started:
        service.keep_looking()
    for place, finder in before.items():
        if service.finding.get(place) is not finder:
            for part in (finder.name, f"{finder.name}:apply"):
                _forget_part(service, part)
            await _close(service, finder.name, finder.discovery)


async def _apply(service: Service, config: Config) -> None:
    """Swap in a configuration: breakers, sources, and what is shown of what is gone."""
    old, parts, readers = service.config, service.parts, service.readers
    await parts.controller.update_tiers(tier_setups(config), routes(config))
    await service.stop_polling(_to_stop(service, old, config))
    adopt(service, config)
    parts.tiers = tier_facts(config)
    changed = [key for key, old_one in readers.items() if service.readers.get(key) != old_one]
    await service.stop_polling(changed)
    for key in changed:  # a source that was made anew counts anew: its old series end here
        parts.page.forget(tier=key.tier, target=key.target)
        for source in (readers[key].source, *(it.source for it in readers[key].companions)):
            _forget_part(service, source.name)
        await _close(service, readers[key].source.name, readers[key].source)
        if key in service.readers and _moved(readers[key], service.readers[key]):
            parts.state.forget_target(key.tier, key.target)
    await _forget(service, old, config)
    service.shown = {}  # what was taken off the page is shown again
    if changed:
        service.settling.changed()
    if service.started:
        service.poll_sources()


def _moved(before: Reader, after: Reader) -> bool:
    """Whether another server is read under the old name: its counters are no rise of the old."""
    places = [
        (getattr(it.plan.settings, "url", None), getattr(it.plan.settings, "from_prometheus", None))
        for it in (before, after)
    ]
    return places[0] != places[1]


def fixed_changes(old: Config, new: Config) -> tuple[str, ...]:
    """Return what differs and cannot change while the service runs."""
    return tuple(
        f"{key}: it cannot change while the service runs; restart it, or put the old value back"
        for key in FIXED
        if getattr(old, key) != getattr(new, key)
    )


def targets_of(config: Config) -> set[Key]:
    """Return every target of every tier."""
    return {Key(name, t.id) for name, tier in config.tiers.items() for t in tier.targets}


def detectors_of(config: Config) -> dict[tuple[str, str], object]:
    """Return the settings of every detector by (tier, name)."""
    return {
        (name, settings.build().name): settings
        for name, tier in config.tiers.items()
        for settings in tier.detectors
    }


def _to_stop(service: Service, old: Config, new: Config) -> set[Key]:
    """Return whose polls end: targets that are gone, or all if the interval changed."""
    if old.scrape_interval != new.scrape_interval:
        return set(service.readers)
    return set(service.readers) - keys_of(new)


async def _forget(service: Service, old: Config, new: Config) -> None:
    """Drop everything about targets, segments, detectors and tiers that are not configured now."""
    for key in keys_of(old) - keys_of(new):
        if key.tier in new.tiers:
            await _forget_target(service, key)
    known = detectors_of(new)
    for (tier, name), settings in detectors_of(old).items():
        if tier in new.tiers and known.get((tier, name)) != settings:
            await _forget_detector(service, tier, name)
    for tier in set(old.tiers) - set(new.tiers):
        await _forget_tier(service, tier)
    for tier in set(old.tiers) & set(new.tiers):
        for segment in set(old.tiers[tier].segments) - set(new.tiers[tier].segments):
            _forget_segment(service, tier, segment)
    _forget_breakers(service, old)


async def _forget_target(service: Service, key: Key) -> None:
    parts = service.parts
    parts.state.forget_target(key.tier, key.target)
    parts.newest.forget(
        lambda stream: stream.tier == key.tier and str(stream.scope) == f"target:{key.target}"
    )
    parts.page.forget(tier=key.tier, target=key.target)
    parts.remarks.forget(key.tier, key.target)
    await service.alerts.edit(partial(policy.forget, tier=key.tier, target=key.target))


async def _forget_detector(service: Service, tier: str, name: str) -> None:
    """A detector that is gone, or means another thing now, starts from nothing."""
    parts = service.parts
    parts.state.forget_memories(lambda place: place[:2] == (name, tier))
    parts.newest.forget_detector(tier, name)
    for metric in CATALOG.values():
        if "detector" in metric.labels:
            parts.page.remove(metric, tier=tier, detector=name)

    def change(memory: PolicyMemory) -> PolicyMemory:
        return policy.forget_detector(memory, tier=tier, detector=name)

    await service.alerts.edit(change)
    part = f"detector:{name}"
    if not any(name == known for _, known in detectors_of(service.config)):
        _forget_part(service, part)


async def _forget_tier(service: Service, tier: str) -> None:
    parts = service.parts
    parts.state.forget_tier(tier)
    parts.counting.forget(tier)
    parts.remarks.forget(tier)
    parts.newest.forget(lambda stream: stream.tier == tier)
    for metric in CATALOG.values():
        if "tier" in metric.labels:
            parts.page.remove(metric, tier=tier)
    await service.alerts.edit(partial(policy.forget_tier, tier=tier))


def _forget_segment(service: Service, tier: str, segment: str) -> None:
    """Its requests are `other` from now on."""
    parts, scope = service.parts, Scope("segment", segment)
    parts.state.forget_scope(tier, scope)
    parts.newest.forget(lambda stream: (stream.tier, stream.scope) == (tier, scope))
    for metric in CATALOG.values():
        if {"tier", "segment", "signal"} <= set(metric.labels):
            parts.page.remove(metric, tier=tier, segment=segment)


def _forget_breakers(service: Service, old: Config) -> None:
    """Take breakers off the page that are no more: of shadow tiers, of targets that are gone."""
    parts = service.parts
    known = set(parts.controller.breakers)
    for key in targets_of(old) | {Key(tier) for tier in old.tiers}:
        if key not in known:
            for metric in CATALOG.values():
                if metric.labels[:2] == ("tier", "target") and "breaker" in metric.name:
                    parts.page.remove(metric, tier=key.tier, target=key.target)
            for metric in (ADMIT_RATIO, OVERRIDE_ACTIVE):
                parts.page.remove(metric, tier=key.tier, target=key.target)


class _Closing(Protocol):
    async def close(self) -> None: ...


async def _close(service: Service, name: str, closing: _Closing) -> None:
    """Close what is gone; it is no part any more, so nothing of it is kept or shown."""
    part = f"close:{name}"
    with service.health.watch(part):
        await closing.close()
    _forget_part(service, part)


def _forget_part(service: Service, part: str) -> None:
    service.health.forget(part)
    for metric in (PART_BROKEN, PART_FAILURES):
        service.parts.page.remove(metric, source=part)


def _refused(service: Service, problems: tuple[str, ...]) -> Reloaded:
    outcome = Reloaded(ok=False, at=service.parts.last_reload.at, problems=problems)
    service.parts.last_reload = outcome
    show_reload(service.parts.page, outcome)
    _LOG.error("reload refused, the old configuration stays", extra={"problems": list(problems)})
    return outcome
