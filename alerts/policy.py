"""From verdicts to alerts: one for each (tier, cause), with what was found listed inside.

Pure: `step` takes the verdicts since the last call, or none at all to let time pass. Only streams
that are not plainly ok are remembered, so memory is small in good times and bounded in bad ones.
Call it once a tick: it costs about 5 µs for each remembered stream (in a thread, if these may be
thousands).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TypeAlias

import msgspec

from detectors.records import Level, Scope, Stream, Verdict
from detectors.signals import SIGNALS, Kind

SIGNALS_UNKNOWN = "signals_unknown"
BASELINE_MISSING = "baseline_missing"
TARGET_DOWN = "target_down"
UNNAMED_CAUSE = "unnamed"


class PolicySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long a state must last. Holds are for readings; evidence of drift is sequential already.

    Seconds; `shown` is how many findings an alert lists, `streams` how many are remembered. Not
    knowing of requests (a tier without traffic, a missing baseline) is given longer than not
    knowing of a target's readings.
    """

    raise_hold_seconds: float = 10.0
    clear_hold_seconds: float = 60.0
    unknown_after_seconds: float = 300.0
    requests_unknown_after_seconds: float = 86_400.0
    forget_after_seconds: float = 3_600.0
    shown: int = 20
    streams: int = 20_000


@dataclass(frozen=True, slots=True)
class Finding:
    """One stream that is bad, or not known, inside an alert."""

    detector: str
    scope: str
    signal: str
    level: Level
    reason: str
    statistic: float | None = None
    threshold: float | None = None


@dataclass(frozen=True, slots=True)
class AlertState:
    """A raised alert. `since` is when it reached this level; `more` counts findings not listed."""

    tier: str
    cause: str
    level: Level
    since: datetime
    findings: tuple[Finding, ...]
    more: int = 0


@dataclass(frozen=True, slots=True)
class Change:
    """An alert was raised (`before` is None), changed its level, or cleared (`after` is None)."""

    tier: str
    cause: str
    before: AlertState | None
    after: AlertState | None
    at: datetime


@dataclass(frozen=True, slots=True)
class Watched:
    """What is remembered of a stream that is not plainly ok.

    `level` is what the alert counts, `last` the newest verdict's level; `differs_since` is when
    the two began to differ; `unknown_since` when knowledge ended, None also where a detector names
    no cause: then it needs what was neither told nor configured, which is no trouble.
    """

    finding: Finding
    cause: str
    level: Level
    last: Level
    seen_at: datetime
    differs_since: datetime | None = None
    unknown_since: datetime | None = None
    unknown_cause: str = SIGNALS_UNKNOWN


Place: TypeAlias = tuple[str, Stream]  # detector and stream
Title: TypeAlias = tuple[str, str]  # tier and cause


@dataclass(frozen=True, slots=True)
class PolicyMemory:
    """Everything the policy remembers; `dropped` counts streams that found no room."""

    watched: Mapping[Place, Watched] = field(default_factory=dict)
    alerts: Mapping[Title, AlertState] = field(default_factory=dict)
    dropped: int = 0


def step(
    memory: PolicyMemory,
    verdicts: Sequence[Verdict],
    now: datetime,
    settings: PolicySettings = PolicySettings(),  # noqa: B008  # frozen
) -> tuple[PolicyMemory, tuple[Change, ...]]:
    """Take verdicts in, let time pass to `now`, and return what was raised, changed or cleared."""
    watched = dict(memory.watched)
    dropped = memory.dropped
    for verdict in verdicts:
        place = (verdict.detector, verdict.stream)
        known = watched.get(place)
        if known is None and verdict.level is Level.OK:
            continue
        if known is None and len(watched) >= settings.streams:
            dropped += 1
            continue
        watched[place] = _seen(known, verdict, now)
    settled = _settle(watched, now, settings)
    alerts = _roll_up(memory.alerts, settled, now, settings)
    changes = _changes(memory.alerts, alerts, now)
    return PolicyMemory(settled, alerts, dropped), changes


def forget(memory: PolicyMemory, *, tier: str, target: str) -> PolicyMemory:
    """Drop what is remembered of a target that vanished; its alert clears at the next step."""
    gone = Scope("target", target)
    watched = {
        place: seen
        for place, seen in memory.watched.items()
        if (place[1].tier, place[1].scope) != (tier, gone)
    }
    return replace(memory, watched=watched)


def save(memory: PolicyMemory) -> bytes:
    """Return `memory` as bytes for the snapshot."""
    rows = [(place, seen) for place, seen in memory.watched.items()]
    return msgspec.json.encode((rows, list(memory.alerts.values()), memory.dropped))


def load(data: bytes) -> PolicyMemory:
    """Read back what `save` wrote.

    Raises:
        ValueError: If these are not bytes of this release; start with an empty memory then.
    """
    kind = tuple[list[tuple[Place, Watched]], list[AlertState], int]
    try:
        rows, alerts, dropped = msgspec.json.decode(data, type=kind)
    except msgspec.DecodeError as error:
        msg = f"memory of the alert policy: {error}; expected what save() of this release wrote"
        raise ValueError(msg) from error
    return PolicyMemory(dict(rows), {(row.tier, row.cause): row for row in alerts}, dropped)


def _seen(known: Watched | None, verdict: Verdict, now: datetime) -> Watched:
    """Return what is known of a stream after one more verdict."""
    finding = Finding(
        detector=verdict.detector,
        scope=str(verdict.stream.scope),
        signal=verdict.stream.signal,
        level=verdict.level,
        reason=verdict.reason,
        statistic=verdict.statistic,
        threshold=verdict.threshold,
    )
    if known is None:
        cause = verdict.cause or UNNAMED_CAUSE
        known = Watched(finding, cause, Level.OK, Level.OK, now)
    if verdict.level is Level.UNKNOWN:
        missing = verdict.cause == BASELINE_MISSING
        return replace(
            known,
            finding=finding if known.level is Level.OK else known.finding,
            last=Level.UNKNOWN,
            seen_at=now,
            differs_since=None,
            unknown_since=(known.unknown_since or now) if verdict.cause else None,
            unknown_cause=BASELINE_MISSING if missing else SIGNALS_UNKNOWN,
        )
    side, before = _side(verdict.level, known.level), _side(known.last, known.level)
    since = now if known.last is Level.UNKNOWN or side != before else known.differs_since or now
    bad = verdict.level is not Level.OK
    return replace(
        known,
        finding=finding if bad else known.finding,
        cause=(verdict.cause or known.cause) if bad and known.level is Level.OK else known.cause,
        last=verdict.level,
        seen_at=now,
        differs_since=since if side else None,
        unknown_since=None,
    )


def _side(level: Level, than: Level) -> int:
    """Return 1 where `level` is worse, -1 where it is better, 0 where it is the same."""
    return (level.number > than.number) - (level.number < than.number)


def _settle(
    watched: Mapping[Place, Watched], now: datetime, settings: PolicySettings
) -> dict[Place, Watched]:
    """Move each stream to its last level where the hold is over; drop what is plainly ok."""
    settled: dict[Place, Watched] = {}
    for place, seen in watched.items():
        if now - seen.seen_at > timedelta(seconds=settings.forget_after_seconds):
            continue
        moved = seen
        if seen.differs_since is not None:
            hold = timedelta(seconds=_hold(place[1].signal, seen, settings))
            if now - seen.differs_since >= hold:
                moved = replace(seen, level=seen.last, differs_since=None)
        if moved.level is not Level.OK or moved.last is not Level.OK:
            settled[place] = moved
    return settled


def _hold(signal: str, seen: Watched, settings: PolicySettings) -> float:
    if _is_of_requests(signal):
        return 0.0
    worse = _side(seen.last, seen.level) > 0
    return settings.raise_hold_seconds if worse else settings.clear_hold_seconds


def _roll_up(
    before: Mapping[Title, AlertState],
    watched: Mapping[Place, Watched],
    now: datetime,
    settings: PolicySettings,
) -> dict[Title, AlertState]:
    """Return the alerts that these streams make, worst findings first."""
    found: dict[Title, list[Finding]] = {}
    down = {
        (stream.tier, stream.scope)
        for (_, stream), seen in watched.items()
        if seen.cause == TARGET_DOWN and seen.level is not Level.OK
    }
    for (_, stream), seen in watched.items():
        if seen.level is not Level.OK:
            finding = _at(seen.finding, seen.level)
            found.setdefault((stream.tier, seen.cause), []).append(finding)
        known_down = (stream.tier, stream.scope) in down  # says it all
        if not known_down and _unknown_lasts(stream, seen, now, settings):
            finding = _at(seen.finding, Level.UNKNOWN)
            found.setdefault((stream.tier, seen.unknown_cause), []).append(finding)
    alerts = {}
    for (tier, cause), findings in sorted(found.items()):
        findings.sort(key=lambda row: (-row.level.number, row.scope, row.signal, row.detector))
        level = findings[0].level if findings[0].level is Level.CRITICAL else Level.WARNING
        known = before.get((tier, cause))
        since = known.since if known is not None and known.level is level else now
        listed = tuple(findings[: settings.shown])
        alerts[tier, cause] = AlertState(
            tier, cause, level, since, listed, len(findings) - len(listed)
        )
    return alerts


def _at(finding: Finding, level: Level) -> Finding:
    return finding if finding.level is level else replace(finding, level=level)


def _unknown_lasts(stream: Stream, seen: Watched, now: datetime, settings: PolicySettings) -> bool:
    if seen.unknown_since is None:
        return False
    after = settings.unknown_after_seconds
    if _is_of_requests(stream.signal):
        after = settings.requests_unknown_after_seconds
    return now - seen.unknown_since >= timedelta(seconds=after)


def _is_of_requests(signal: str) -> bool:
    known = SIGNALS.get(signal)
    return known is not None and known.kind is Kind.REQUEST


def _changes(
    before: Mapping[Title, AlertState], after: Mapping[Title, AlertState], now: datetime
) -> tuple[Change, ...]:
    changes = []
    for tier, cause in sorted({*before, *after}):
        old, new = before.get((tier, cause)), after.get((tier, cause))
        if (old.level if old else None) is not (new.level if new else None):
            changes.append(Change(tier, cause, old, new, now))
    return tuple(changes)


def counts(memory: PolicyMemory) -> Iterable[tuple[str, str, int]]:
    """Yield (tier, cause, 1 warning or 2 critical) of each raised alert, for the metrics page."""
    for (tier, cause), alert in memory.alerts.items():
        yield tier, cause, alert.level.number
