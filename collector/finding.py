"""Discovery at work: each list is looked at again and again, and what changes is applied whole."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final, Protocol

from collector.config import Config
from collector.config.discovered import target_of
from collector.config.models import TargetConfig
from collector.discovery.found import Discovery, Finders, Found
from collector.discovery.roster import Roster
from collector.discovery.settings import DiscoveryConfig
from collector.health import Health

_LOG = logging.getLogger(__name__)
REMEMBERED: Final = "discovery:"  # names of sections in the snapshot begin so
DISCOVERY_FAILED: Final = "discovery"


@dataclass(slots=True)
class Finder:
    """One discovery of one tier, and who its targets are."""

    tier: str
    settings: DiscoveryConfig
    discovery: Discovery
    roster: Roster

    @property
    def name(self) -> str:
        return self.discovery.name


Finding = Mapping[tuple[str, int], Finder]


class Sleep(Protocol):
    """`asyncio.sleep` and what stands in for it."""

    def __call__(self, seconds: float, /) -> Awaitable[object]: ...


def finders_of(
    config: Config, known: Finding, remembered: Mapping[str, bytes], tools: Finders
) -> dict[tuple[str, int], Finder]:
    """Return a finder for every discovery of the file.

    Args:
        config: As in the file, without discovered targets.
        known: The finders in use; one whose settings have not changed is kept.
        remembered: Targets known before a restart, by name of the finder.
        tools: What new discoveries are built with.
    """
    found: dict[tuple[str, int], Finder] = {}
    for tier, settings in config.tiers.items():
        for number, one in enumerate(settings.discovery):
            place = (tier, number)
            before = known.get(place)
            if before is not None and before.settings == one:
                found[place] = before
                continue
            discovery = one.build(f"{tier}[{number}]" if number else tier, tools)
            roster = Roster(one.vanish_after)
            roster.restore(_read(remembered.get(REMEMBERED + discovery.name)), tools.monotonic())
            found[place] = Finder(tier, one, discovery, roster)
    return found


def targets_found(config: Config, finding: Finding) -> dict[str, list[TargetConfig]]:
    """Return the discovered targets of each tier, as the tier's template makes them.

    A target that the template makes none of is left out and logged; the others are not held up.
    """
    targets: dict[str, dict[str, TargetConfig]] = {}
    for (tier, _), finder in sorted(finding.items()):
        settings = config.tiers[tier]
        for found in finder.roster.targets:
            try:
                target = target_of(settings.template, found)
            except ValueError as error:
                extra = {"tier": tier, "target": found.id, "problem": str(error)}
                _LOG.warning("discovered target left out, correct 'template'", extra=extra)
                continue
            targets.setdefault(tier, {}).setdefault(target.id, target)
    return {tier: list(named.values()) for tier, named in targets.items()}


def saved(finding: Finding) -> dict[str, bytes]:
    """Return the targets of every finder as sections of the snapshot."""
    return {
        REMEMBERED + finder.name: json.dumps([asdict(it) for it in finder.roster.targets]).encode()
        for finder in finding.values()
    }


def _read(data: bytes | None) -> Sequence[Found]:
    if data is None:
        return ()
    try:
        return [Found(**one) for one in json.loads(data)]
    except (ValueError, TypeError):  # of another release
        return ()


async def look(
    finder: Finder,
    apply: Callable[[], Awaitable[object]],
    *,
    health: Health,
    monotonic: Callable[[], float],
) -> None:
    """Look once; a list that could not be had is told and changes nothing."""
    changed = finder.roster.targets
    with health.watch(finder.name):
        found = await finder.discovery.find()
        finder.roster.update(found, monotonic())
    if finder.roster.targets != changed:
        _LOG.info(
            "targets changed", extra={"part": finder.name, "targets": len(finder.roster.targets)}
        )
        with health.watch(f"{finder.name}:apply"):
            await apply()


async def keep_looking(
    finder: Finder,
    apply: Callable[[], Awaitable[object]],
    *,
    health: Health,
    monotonic: Callable[[], float],
    sleep: Sleep = asyncio.sleep,
) -> None:
    """Look at once and every `refresh` seconds, until cancelled."""
    while True:
        await look(finder, apply, health=health, monotonic=monotonic)
        await sleep(finder.settings.refresh)
