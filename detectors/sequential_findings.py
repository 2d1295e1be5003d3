"""What the sequential detector finds in one tick: alarms, since when, and what goes with what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from detectors.baseline import Stage
from detectors.records import FloatArray, Panel
from detectors.sequential import history
from detectors.sequential.evidence import leading
from detectors.sequential.grouping import Change, grouped
from detectors.sequential.history import Onset
from detectors.sequential.memory import Memory
from detectors.sequential.report import Report, Subject, report
from detectors.sequential.targets import Target
from detectors.sequential.tiers import Tier
from detectors.sequential.watch import Plan
from detectors.sequential_judging import Judged
from detectors.signals import grid_of

Harm: TypeAlias = Literal["up", "down", "both"]
MOST_REPORTS = 200  # of a tick, the strongest first: each takes about a millisecond
INFORM, PAGE, TRIP = "inform", "page", "trip"


@dataclass(frozen=True, slots=True)
class Rules:
    """What turns evidence into a level.

    `paging_requests` is the least m / tau of a baseline that may page; `harmful` the direction by
    signal, "both" where it is not named; `streams` those that the budgets of `tiers` are for.
    """

    detector: str
    cause: str
    stale_seconds: float
    paging_requests: float
    harmful: Mapping[str, Harm]
    tiers: Mapping[str, Tier]
    fleet_streams: int


@dataclass(frozen=True)
class Look:
    """One tick, after evidence was taken in: `evidence` (S,) by tier, `plan` that of the tick."""

    panel: Panel
    judged: Judged
    plan: Plan
    memory: Memory
    evidence: Mapping[str, FloatArray]
    rules: Rules
    tick_seconds: float

    def raised(self, tier: str, place: int) -> bool:
        return bool(self.memory.watch.evidence[tier].raised[place] >= 0)


@dataclass(frozen=True)
class Finding:
    """A stream that stands in an alarm: the tier that is told, what it looks like, since when."""

    place: int
    tier: str
    target: int
    since: Onset | None
    nats: float
    held_back: str


def held_back(look: Look, place: int) -> str:
    """Say why a stream informs only, whatever its evidence; empty if it may page."""
    reference, null = look.judged.references[place], look.judged.nulls[place]
    if reference.stage is not Stage.ACTIVE:
        return "candidate baseline: informs only"
    if not null.known:
        return "the baseline does not say how its requests depend on each other: informs only"
    if null.effective < look.rules.paging_requests:
        worth = f"{null.band.requests:,} requests are worth {null.effective:,.0f} independent ones"
        return f"baseline of {worth}, {look.rules.paging_requests:,.0f} may page: informs only"
    return ""


def finding(look: Look, place: int) -> Finding:
    """Return what an alarm is told by: the page tier where it may page, else the narrowest."""
    kept = held_back(look, place)
    order = (INFORM, PAGE, TRIP) if kept else (PAGE, TRIP, INFORM)
    tier = next(name for name in order if look.raised(name, place))
    table, some = look.plan.tables[tier], look.memory.watch.evidence[tier]
    target = leading(some, table, look.plan.placed, place)
    log_bets = table.log_bets[look.plan.placed.which[place]][:, target].astype(np.float64)
    since = history.onset(look.memory.watch.history, place, log_bets)
    if since is not None and since.requests == 0:
        since = None
    tau = look.judged.nulls[place].tau
    nats = 0.0 if since is None else float(since.counts @ log_bets) / tau
    return Finding(place, tier, target, since, nats, kept)


def events(
    look: Look, findings: Mapping[int, Finding]
) -> Mapping[int, tuple[tuple[Change, ...], int]]:
    """Return of each finding its event and its place in it, 0 in front."""
    changes = [_change(look, found) for found in findings.values()]
    return {
        change.row: (event, rank) for event in grouped(changes) for rank, change in enumerate(event)
    }


def _change(look: Look, found: Finding) -> Change:
    """Return a finding as a member of an event; without a count left it begins now."""
    stream = look.panel.streams[int(look.judged.rows[found.place])]
    wide = stream.scope.kind == "tier"
    return Change(
        row=found.place,
        name=stream.signal if wide else f"{stream.signal} of {stream.scope}",
        onset=(look.memory.watch.number or 0) if found.since is None else found.since.number,
        nats=found.nats,
        wide=wide,
    )


def reports(look: Look, findings: Mapping[int, Finding]) -> Mapping[int, Report]:
    """Return the reports of the strongest findings, by place."""
    strongest = sorted(findings.values(), key=lambda found: (-found.nats, found.place))
    now = look.memory.watch.number or 0
    return {
        found.place: report(
            _subject(look, found),
            evidence=float(look.evidence[found.tier][found.place]),
            target=found.target,
            since=found.since,
            now=now,
        )
        for found in strongest[:MOST_REPORTS]
        if found.since is not None
    }


def _subject(look: Look, found: Finding) -> Subject:
    null, signal = look.judged.nulls[found.place], look.judged.signals[found.place]
    return Subject(
        signal=signal,
        edges=grid_of(signal).array,
        bets=null.bets[found.tier],
        tau=null.tau,
        level=look.plan.tables[found.tier].level,
        tick_seconds=look.tick_seconds,
    )


def harmless(look: Look, found: Finding, told: Report | None) -> str:
    """Say that a change goes the way that does no harm; empty if it does or may."""
    signal = look.judged.signals[found.place]
    harm = look.rules.harmful.get(signal, "both")
    target = look.judged.nulls[found.place].bets[found.tier].targets[found.target]
    way = _way(target)
    if harm == "both" or way in (harm, "both"):
        return ""
    if told is not None and told.deviation.above == (harm == "up"):
        return ""
    return f"{signal} going {way} does no harm: informs only"


def _way(target: Target) -> Harm:
    """Return where a change moves values to."""
    if target.kind == "shift":
        return "up" if target.size > 0 else "down"
    if target.kind == "above":
        return "up"
    return "down" if target.kind == "below" else "both"
