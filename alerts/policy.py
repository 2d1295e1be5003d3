"""From verdicts to alerts: one for each (tier, cause), with what was found listed inside.

Pure: `step` takes the verdicts since the last call, or none at all to let time pass. Only streams
that are not plainly ok are remembered, so memory is small in good times and bounded in bad ones.
Call it once a tick: it costs about 8 µs for each remembered stream (in a thread, if these may be
thousands).

Time is the monotonic clock's, added up from step to step, so a clock that is set forward or back
neither delays an alert nor clears one, and the time in which Fusewire did not run counts for
nothing. Datetimes are only shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TypeAlias

import msgspec

from detectors.records import Level, Scope, Stream, Verdict
from detectors.signals import SIGNALS, Kind

SIGNALS_UNKNOWN = "signals_unknown"
BASELINE_MISSING = "baseline_missing"
TARGET_DOWN = "target_down"
UNNAMED_CAUSE = "unnamed"


class PolicySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long a state must last. Holds are for readings; drift has lasted when it is told.

    Seconds of watched time; `shown` is how many findings an alert lists, `streams` how many are
    remembered. Not knowing of requests (a tier without traffic, a missing baseline) is given
    longer than not knowing of a target's readings.
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

    `level` is what the alert counts, `last` the newest verdict's level. Seconds of watched time:
    `silent_seconds` since the newest verdict; `differs_seconds` since the two levels began to
    differ, None while they do not; `unknown_seconds` since knowledge ended, None while it lasts,
    and also where a detector names no cause: then it needs what was neither told nor configured,
    which is no trouble.
    """

    finding: Finding
    cause: str
    level: Level
    last: Level
    silent_seconds: float = 0.0
    differs_seconds: float | None = None
    unknown_seconds: float | None = None
    unknown_cause: str = SIGNALS_UNKNOWN


Place: TypeAlias = tuple[str, Stream]  # detector and stream
Title: TypeAlias = tuple[str, str]  # tier and cause


@dataclass(frozen=True, slots=True)
class PolicyMemory:
    """Everything the policy remembers.

    `dropped` counts streams that found no room. `stepped_seconds` is the monotonic time of the
    last step, None when nothing was watched before; it says when, not what, and does not count
    when two memories are compared.
    """

    watched: Mapping[Place, Watched] = field(default_factory=dict)
    alerts: Mapping[Title, AlertState] = field(default_factory=dict)
    dropped: int = 0
    stepped_seconds: float | None = field(default=None, compare=False)


def step(
    memory: PolicyMemory,
    verdicts: Sequence[Verdict],
    now: datetime,
    monotonic_seconds: float,
    settings: PolicySettings = PolicySettings(),  # noqa: B008  # frozen
) -> tuple[PolicyMemory, tuple[Change, ...]]:
    """Let time pass, take verdicts in, and return what was raised, changed or cleared.

    Args:
        memory: What the step before returned, or `load`.
        verdicts: Those since the step before, none at all to let time pass only.
        now: What is shown as the time of this step, UTC; nothing is computed from it.
        monotonic_seconds: The time of this step, from which every interval comes.
        settings: How long states must last.
    """
    before = memory.stepped_seconds
    passed = max(monotonic_seconds - before, 0.0) if before is not None else 0.0
    watched = {place: _older(seen, passed) for place, seen in memory.watched.items()}
    dropped = memory.dropped
    for verdict in verdicts:
        place = (verdict.detector, verdict.stream)
        known = watched.get(place)
        if known is None and verdict.level is Level.OK:
            continue
        if known is None and len(watched) >= settings.streams:
            dropped += 1
            continue
        watched[place] = _seen(known, verdict)
    settled = _settle(watched, settings)
    alerts = _roll_up(memory.alerts, settled, now, settings)
    changes = _changes(memory.alerts, alerts, now)
    return PolicyMemory(settled, alerts, dropped, monotonic_seconds), changes


def forget(memory: PolicyMemory, *, tier: str, target: str) -> PolicyMemory:
    """Drop what is remembered of a target that vanished; its alert clears at the next step."""
    gone = Scope("target", target)
    return _without(memory, lambda _, stream: (stream.tier, stream.scope) == (tier, gone))


def forget_tier(memory: PolicyMemory, *, tier: str) -> PolicyMemory:
    """Drop what is remembered of a tier that is gone; its alerts clear at the next step."""
    return _without(memory, lambda _, stream: stream.tier == tier)


def forget_detector(memory: PolicyMemory, *, tier: str, detector: str) -> PolicyMemory:
    """Drop what a detector that a tier no longer has said; its alerts clear at the next step."""
    return _without(memory, lambda name, stream: (stream.tier, name) == (tier, detector))


def _without(memory: PolicyMemory, gone: Callable[[str, Stream], bool]) -> PolicyMemory:
    watched = {place: seen for place, seen in memory.watched.items() if not gone(*place)}
    return replace(memory, watched=watched)


def save(memory: PolicyMemory) -> bytes:
    """Return `memory` as bytes for the snapshot."""
    rows = [(place, seen) for place, seen in memory.watched.items()]
    return msgspec.json.encode((rows, list(memory.alerts.values()), memory.dropped))


def load(data: bytes) -> PolicyMemory:
    """Read back what `save` wrote; the time in between was watched by nobody and counts not.

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


def _older(seen: Watched, passed: float) -> Watched:
    """Return what is known of a stream `passed` seconds later."""
    differs, unknown = seen.differs_seconds, seen.unknown_seconds
    return replace(
        seen,
        silent_seconds=seen.silent_seconds + passed,
        differs_seconds=None if differs is None else differs + passed,
        unknown_seconds=None if unknown is None else unknown + passed,
    )


def _seen(known: Watched | None, verdict: Verdict) -> Watched:
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
        known = Watched(finding, cause, Level.OK, Level.OK)
    if verdict.level is Level.UNKNOWN:
        missing = verdict.cause == BASELINE_MISSING
        return replace(
            known,
            finding=finding if known.level is Level.OK else known.finding,
            last=Level.UNKNOWN,
            silent_seconds=0.0,
            differs_seconds=None,
            unknown_seconds=(known.unknown_seconds or 0.0) if verdict.cause else None,
            unknown_cause=BASELINE_MISSING if missing else SIGNALS_UNKNOWN,
        )
    side, before = _side(verdict.level, known.level), _side(known.last, known.level)
    anew = known.last is Level.UNKNOWN or side != before
    differs = 0.0 if anew else known.differs_seconds or 0.0
    bad = verdict.level is not Level.OK
    return replace(
        known,
        finding=finding if bad else known.finding,
        cause=(verdict.cause or known.cause) if bad and known.level is Level.OK else known.cause,
        last=verdict.level,
        silent_seconds=0.0,
        differs_seconds=differs if side else None,
        unknown_seconds=None,
    )


def _side(level: Level, than: Level) -> int:
    """Return 1 where `level` is worse, -1 where it is better, 0 where it is the same."""
    return (level.number > than.number) - (level.number < than.number)


def _settle(watched: Mapping[Place, Watched], settings: PolicySettings) -> dict[Place, Watched]:
    """Move each stream to its last level where the hold is over; drop what is plainly ok."""
    settled: dict[Place, Watched] = {}
    for place, seen in watched.items():
        if seen.silent_seconds > settings.forget_after_seconds:
            continue
        moved, differs = seen, seen.differs_seconds
        if differs is not None and differs >= _hold(place[1].signal, seen, settings):
            moved = replace(seen, level=seen.last, differs_seconds=None)
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
        if not known_down and _unknown_lasts(stream, seen, settings):
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


def _unknown_lasts(stream: Stream, seen: Watched, settings: PolicySettings) -> bool:
    if seen.unknown_seconds is None:
        return False
    after = settings.unknown_after_seconds
    if _is_of_requests(stream.signal):
        after = settings.requests_unknown_after_seconds
    return seen.unknown_seconds >= after


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
