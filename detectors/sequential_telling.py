"""What the sequential detector says of each stream: levels, reasons, numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal, TypeAlias

import numpy as np

from detectors.baseline import SignalBaseline, Stage, collecting
from detectors.records import FloatArray, Level, Panel, Verdict
from detectors.sequential import history
from detectors.sequential.evidence import leading
from detectors.sequential.grouping import Change, event_words, grouped
from detectors.sequential.history import Onset
from detectors.sequential.memory import Memory
from detectors.sequential.report import Report, Subject, report
from detectors.sequential.targets import Target
from detectors.sequential.tiers import Tier
from detectors.sequential.watch import Plan
from detectors.sequential.words import evidence_words, time_words
from detectors.sequential_judging import SEEN_REQUESTS, Judged
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


def verdicts(look: Look) -> Iterator[Verdict]:
    """Yield a verdict of each stream of the detector's signals, in the order of the panel."""
    obstacles = {place: _obstacle(look, place) for place in range(len(look.judged.rows))}
    findings = {
        place: _finding(look, place)
        for place, (reason, _) in obstacles.items()
        if not reason and any(look.raised(tier, place) for tier in look.plan.tables)
    }
    events = _events(look, findings)
    reports = _reports(look, findings)
    places = {int(row): place for place, row in enumerate(look.judged.rows)}
    for row in sorted([*places, *look.judged.unfit]):
        place = places.get(row)
        if place is None:
            yield _unfit(look, row)
        elif obstacles[place][0]:
            reason, cause = obstacles[place]
            yield _verdict(look, place, Level.UNKNOWN, reason, cause=cause)
        elif place in findings:
            yield _changed(look, findings[place], reports.get(place), events[place])
        else:
            yield _quiet(look, place)


def _unfit(look: Look, row: int) -> Verdict:
    """Return the verdict of a stream without a baseline that it could be judged by."""
    panel, rules = look.panel, look.rules
    words = look.judged.unfit[row] or collecting(int(panel.progress[row]), panel.needed)
    reference = panel.references[row]
    return Verdict(
        rules.detector,
        panel.streams[row],
        Level.UNKNOWN,
        _closed(panel),
        reason=words,
        cause="baseline_missing",
        age_seconds=float(panel.ages_seconds[row]),
        baseline="" if reference is None else reference.baseline,
    )


def _obstacle(look: Look, place: int) -> tuple[str, str]:
    """Say why a stream cannot be judged, and under which cause; ("", "") if it can."""
    panel, rules, null = look.panel, look.rules, look.judged.nulls[place]
    age = float(panel.ages_seconds[look.judged.rows[place]])
    if not age <= rules.stale_seconds:
        seen = f"no request for {age:.0f} s" if np.isfinite(age) else "no request yet"
        return f"{seen}, at most {rules.stale_seconds:g} s is judged", rules.cause
    if any(look.raised(tier, place) for tier in look.plan.tables):
        return "", ""
    needed = null.needed(INFORM, look.plan.tables[INFORM].level)
    if not np.isfinite(needed):
        few = f"{null.band.requests:,} requests in the baseline, worth {null.effective:,.0f} "
        return f"{few}independent ones: too few to find any change by", "baseline_missing"
    requests = int(look.memory.requests[place])
    if requests < needed:
        return f"{requests:,} of {needed:,.0f} requests that a verdict needs", rules.cause
    return "", ""


def _held_back(look: Look, place: int) -> str:
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


def _finding(look: Look, place: int) -> Finding:
    """Return what an alarm is told by: the page tier where it may page, else the narrowest."""
    held_back = _held_back(look, place)
    order = (INFORM, PAGE, TRIP) if held_back else (PAGE, TRIP, INFORM)
    tier = next(name for name in order if look.raised(name, place))
    table, some = look.plan.tables[tier], look.memory.watch.evidence[tier]
    target = leading(some, table, look.plan.placed, place)
    log_bets = table.log_bets[look.plan.placed.which[place]][:, target].astype(np.float64)
    since = history.onset(look.memory.watch.history, place, log_bets)
    if since is not None and since.requests == 0:
        since = None
    tau = look.judged.nulls[place].tau
    nats = 0.0 if since is None else float(since.counts @ log_bets) / tau
    return Finding(place, tier, target, since, nats, held_back)


def _events(
    look: Look, findings: Mapping[int, Finding]
) -> Mapping[int, tuple[tuple[Change, ...], int]]:
    """Return of each finding its event and its place in it, 0 in front."""
    now = look.memory.watch.number or 0
    changes = (
        Change(
            place,
            _name(look, place),
            now if found.since is None else found.since.number,
            found.nats,
        )
        for place, found in findings.items()
    )
    return {
        change.row: (event, rank) for event in grouped(changes) for rank, change in enumerate(event)
    }


def _name(look: Look, place: int) -> str:
    stream = look.panel.streams[int(look.judged.rows[place])]
    return stream.signal if stream.scope.kind == "tier" else f"{stream.signal} of {stream.scope}"


def _reports(look: Look, findings: Mapping[int, Finding]) -> Mapping[int, Report]:
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


def _harmless(look: Look, found: Finding, told: Report | None) -> str:
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


def _changed(
    look: Look, found: Finding, told: Report | None, standing: tuple[tuple[Change, ...], int]
) -> Verdict:
    event, rank = standing
    evidence = float(look.evidence[found.tier][found.place])
    held_back = found.held_back or _harmless(look, found, told)
    pages = found.tier != INFORM and not held_back
    words = [
        told.words
        if told
        else f"changed, evidence {evidence_words(evidence)}; no count is left of when it began",
        f"looks like {told.target}" if told and told.target else "",
        event_words(event, found.place),
        _seen_words(look, found.place, found.tier),
        _baseline_words(look, found.place),
        held_back,
    ]
    trip = pages and look.raised(TRIP, found.place)
    verdict = _verdict(
        look,
        found.place,
        Level.CRITICAL if pages else Level.WARNING,
        "; ".join(word for word in words if word),
        evidence=evidence,
    )
    details = {
        **verdict.details,
        "breached": 1.0,
        "trip": float(trip),
        "event_streams": float(len(event)),
        "event_rank": float(rank),
        "nats_since": found.nats,
        **_numbers(told),
    }
    if told is None:
        return replace(verdict, details=details)
    return replace(verdict, details=details, effect=told.distance.value, samples=told.requests)


def _numbers(told: Report | None) -> dict[str, float]:
    if told is None:
        return {}
    gap, most = told.distance, told.deviation
    return {
        "onset_seconds": told.seconds,
        "requests_since": float(told.requests),
        "distance": gap.value,
        "distance_lower": gap.lower,
        "distance_upper": gap.upper,
        "edge": most.edge,
        "above": float(most.above),
        "baseline_ratio": most.baseline[0],
        "gate_ratio": most.gate,
        "live_ratio": most.live[0],
    }


def _quiet(look: Look, place: int) -> Verdict:
    held_back = _held_back(look, place)
    tier = INFORM if held_back else PAGE
    evidence = float(look.evidence[tier][place])
    streams = max(look.rules.fleet_streams, len(look.judged.rows))
    words = [
        f"no drift, evidence {evidence_words(evidence)} of 1",
        look.rules.tiers[tier].budget.words(streams),
        _seen_words(look, place, tier),
        _baseline_words(look, place),
        held_back,
    ]
    reason = "; ".join(word for word in words if word)
    return _verdict(look, place, Level.OK, reason, evidence=evidence)


def _seen_words(look: Look, place: int, tier: str) -> str:
    """Say how blind the tier is: the smallest changes that it sees soon."""
    return f"seen within {SEEN_REQUESTS:,.0f} requests: {look.judged.seen[place, tier] or 'none'}"


def _baseline_words(look: Look, place: int) -> str:
    """Say by which baseline, and how old it is."""
    reference = look.judged.references[place]
    if reference.made_at is None:
        return f"baseline {reference.baseline}"
    age = max((_closed(look.panel) - reference.made_at).total_seconds(), 0.0)
    return f"baseline {reference.baseline}, {time_words(age)} old"


def _closed(panel: Panel) -> datetime:
    """Return the close of the tick."""
    return panel.start + timedelta(seconds=panel.duration_seconds)


def _verdict(
    look: Look,
    place: int,
    level: Level,
    reason: str,
    *,
    evidence: float | None = None,
    cause: str = "",
) -> Verdict:
    row = int(look.judged.rows[place])
    reference: SignalBaseline = look.judged.references[place]
    told = level is not Level.UNKNOWN
    details = {
        "breached": 0.0,
        "trip": 0.0,
        "design_effect": float(look.plan.tau[place]),
        **{f"{name}_evidence": float(some[place]) for name, some in look.evidence.items()},
    }
    return Verdict(
        look.rules.detector,
        look.panel.streams[row],
        level,
        _closed(look.panel),
        reason=reason,
        statistic=evidence,
        threshold=1.0 if told else None,
        evidence=evidence,
        samples=int(look.memory.requests[place]),
        age_seconds=float(look.panel.ages_seconds[row]),
        baseline=reference.baseline,
        cause=cause or look.rules.cause,
        details=details if told else {},
    )
