"""What the sequential detector says of each stream: levels, reasons, numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta

import numpy as np

from detectors.baseline import collecting
from detectors.records import Level, Panel, Verdict
from detectors.sequential.grouping import Change, event_words
from detectors.sequential.report import Report
from detectors.sequential.words import evidence_words, time_words
from detectors.sequential_findings import (
    INFORM,
    PAGE,
    TRIP,
    Finding,
    Look,
    events,
    finding,
    harmless,
    held_back,
    reports,
)
from detectors.sequential_judging import SEEN_REQUESTS


def verdicts(look: Look) -> Iterator[Verdict]:
    """Yield a verdict of each stream of the detector's signals, in the order of the panel."""
    obstacles = {place: _obstacle(look, place) for place in range(len(look.judged.rows))}
    found = {
        place: finding(look, place)
        for place, (reason, _) in obstacles.items()
        if not reason and any(look.raised(tier, place) for tier in look.plan.tables)
    }
    standing = events(look, found)
    told = reports(look, found)
    places = {int(row): place for place, row in enumerate(look.judged.rows)}
    for row in sorted([*places, *look.judged.unfit]):
        place = places.get(row)
        if place is None:
            yield _unfit(look, row)
        elif obstacles[place][0]:
            reason, cause = obstacles[place]
            yield _verdict(look, place, Level.UNKNOWN, reason, cause=cause)
        elif place in found:
            yield _changed(look, found[place], told.get(place), standing[place])
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
    if needed > SEEN_REQUESTS:
        few = f"{null.band.requests:,} requests in the baseline, worth {null.effective:,.0f} "
        return f"{few}independent ones: too few to see any change soon", "baseline_missing"
    requests = int(look.memory.requests[place])
    if requests < needed:
        return f"{requests:,} of {needed:,.0f} requests that a verdict needs", rules.cause
    return "", ""


def _changed(
    look: Look, found: Finding, told: Report | None, standing: tuple[tuple[Change, ...], int]
) -> Verdict:
    event, rank = standing
    evidence = float(look.evidence[found.tier][found.place])
    kept = found.held_back or harmless(look, found, told)
    pages = found.tier != INFORM and not kept
    words = [
        told.words
        if told
        else f"changed, evidence {evidence_words(evidence)}; no count is left of when it began",
        f"looks like {told.target}" if told and told.target else "",
        event_words(event, found.place),
        _seen_words(look, found.place, found.tier),
        _baseline_words(look, found.place),
        kept,
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
    kept = held_back(look, place)
    tier = INFORM if kept else PAGE
    evidence = float(look.evidence[tier][place])
    streams = max(look.rules.fleet_streams, len(look.judged.rows))
    words = [
        f"no drift, evidence {evidence_words(evidence)} of 1",
        look.rules.tiers[tier].budget.words(streams),
        _seen_words(look, place, tier),
        _baseline_words(look, place),
        kept,
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
    reference = look.judged.references[place]
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
