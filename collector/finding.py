"""Discovery at work: each list is looked at again and again, and what changes is applied whole."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias

import msgspec
from pydantic import JsonValue

from collector.config import Config
from collector.config.discovered import target_of
from collector.config.models import TargetConfig
from collector.discovery.found import Discovery, DiscoveryError, Finders, Found
from collector.discovery.roster import Roster
from collector.discovery.settings import DiscoveryConfig
from collector.health import Health

_LOG = logging.getLogger(__name__)
REMEMBERED: Final = "discovery:"  # names of sections in the snapshot begin so


_Said: TypeAlias = tuple[Found, frozenset[tuple[str, str]]]  # with its labels


@dataclass(slots=True)
class Finder:
    """One discovery of one tier, and who its targets are; `due` while they are not applied yet.

    `made` are the targets that `template` made of them at the last time.
    """

    tier: str
    settings: DiscoveryConfig
    discovery: Discovery
    roster: Roster
    due: bool = False
    template: Mapping[str, JsonValue] = field(default_factory=dict)
    made: Mapping[_Said, TargetConfig | None] = field(default_factory=dict)

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
        known: The finders in use; one whose settings have not changed is kept, and what one found
            that has changed or moved in the list stays until the new one has looked.
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
            predecessor = _predecessor(known, place, one)
            if predecessor is not None:
                roster.restore(predecessor.roster.targets, tools.monotonic())
            roster.restore(_read(remembered.get(REMEMBERED + discovery.name)), tools.monotonic())
            found[place] = Finder(tier, one, discovery, roster)
    return found


def _predecessor(
    known: Finding, place: tuple[str, int], settings: DiscoveryConfig
) -> Finder | None:
    """Return the finder that found what one with these settings is to find: it may have moved."""
    of_tier = [it for (tier, _), it in known.items() if tier == place[0]]
    moved = next((it for it in of_tier if it.settings == settings), None)
    before = known.get(place)
    if moved is None and before is not None and before.settings.kind == settings.kind:
        return before
    return moved


def targets_found(config: Config, finding: Finding) -> dict[str, list[TargetConfig]]:
    """Return the discovered targets of each tier, as the tier's template makes them.

    A target that the template makes none of is left out and logged; the others are not held up.
    """
    targets: dict[str, dict[str, TargetConfig]] = {}
    for (tier, _), finder in sorted(finding.items()):
        for target in _made(finder, config.tiers[tier].template):
            targets.setdefault(tier, {}).setdefault(target.id, target)
    return {tier: list(named.values()) for tier, named in targets.items()}


def _made(finder: Finder, template: Mapping[str, JsonValue]) -> list[TargetConfig]:
    """Return the targets of a finder; those known are not made again, so a fleet costs little."""
    known = finder.made if finder.template == template else {}
    made: dict[_Said, TargetConfig | None] = {}
    for found in finder.roster.targets:
        said = found, frozenset(found.labels.items())
        made[said] = known[said] if said in known else _target(finder.tier, template, found)
    finder.template, finder.made = template, made
    return [it for it in made.values() if it is not None]


def _target(tier: str, template: Mapping[str, JsonValue], found: Found) -> TargetConfig | None:
    try:
        return target_of(template, found)
    except ValueError as error:
        extra = {"tier": tier, "target": found.id, "problem": str(error)}
        _LOG.warning("discovered target left out, correct 'template'", extra=extra)
        return None


def saved(finding: Finding) -> dict[str, bytes]:
    """Return the targets of every finder as sections of the snapshot."""
    return {
        REMEMBERED + finder.name: msgspec.json.encode(finder.roster.targets)
        for finder in finding.values()
    }


def _read(data: bytes | None) -> Sequence[Found]:
    if data is None:
        return ()
    try:
        return msgspec.json.decode(data, type=list[Found])
    except msgspec.DecodeError:  # of another release
        return ()


async def look(
    finder: Finder,
    apply: Callable[[], Awaitable[object]],
    *,
    health: Health,
    monotonic: Callable[[], float],
) -> None:
    """Look once; a list that could not be had is told and changes nothing.

    What was found and could not be applied is applied at the next look.
    """
    roster = finder.roster
    with health.watch(finder.name, foreseen=DiscoveryError):
        if roster.update(await finder.discovery.find(), monotonic()):
            finder.due = True
            extra = {"part": finder.name, "targets": len(roster.targets)}
            _LOG.info("targets changed", extra=extra)
        if roster.refused:
            msg = (
                f"{finder.name}: {roster.refused} targets beyond the first {roster.most} are not "
                "read; narrow the discovery, or spread it over several tiers"
            )
            raise DiscoveryError(msg)
    if finder.due:
        with health.watch(f"{finder.name}:apply"):
            await apply()
            finder.due = False


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
