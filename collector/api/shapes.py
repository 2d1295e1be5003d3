"""What the API answers: one model a thing, made from the records."""

from __future__ import annotations

import math
from datetime import datetime
from typing import TypedDict

from pydantic import BaseModel, ConfigDict

from alerts.breaker.records import Breaker, Transition
from collector.store.baselines import BaselineInfo
from detectors.records import Reading, Verdict
from detectors.remarks import Quantile
from detectors.signals import SIGNALS

_STRICT = ConfigDict(frozen=True, extra="forbid")


class SignalOut(BaseModel):
    """One signal of one target; `value` is null where `absent` says why.

    Of a quantile `between` are the bounds of its bucket, and so of the true value; the upper one is
    null where the last bucket is open. `samples` were observed in its window.
    """

    model_config = _STRICT

    value: float | None
    unit: str
    age_seconds: float
    absent: str | None
    parts: dict[str, float] = {}
    between: tuple[float, float | None] | None = None
    samples: float | None = None


class FindingOut(BaseModel):
    """Something about a target that a person should know and no limit judges."""

    model_config = _STRICT

    code: str
    signal: str
    text: str


class TargetOut(BaseModel):
    """One target with its newest reading; signals are empty before the first scrape.

    A neighbour of a tier (a client, a broker) has the same form; its `engine` is its kind.
    """

    model_config = _STRICT

    id: str
    url: str
    engine: str
    version: str
    model: str
    up: bool | None
    problem: str
    age_seconds: float | None
    signals: dict[str, SignalOut]
    findings: list[FindingOut] = []


class BaselineProgressOut(BaseModel):
    """The baseline of one lane, or how far its collection is."""

    model_config = _STRICT

    scope: str
    variant: str
    baseline: str | None
    stage: str
    requests: int
    needed: int
    progress_ratio: float
    made_at: datetime | None


class TierOut(BaseModel):
    """One tier as it is now."""

    model_config = _STRICT

    tier: str
    role: str
    mode: str
    targets: list[TargetOut]
    baselines: list[BaselineProgressOut]
    neighbours: list[TargetOut] = []


class VerdictOut(BaseModel):
    """One verdict, with everything needed to explain it."""

    model_config = _STRICT

    at: datetime
    tier: str
    scope: str
    signal: str
    variant: str
    detector: str
    level: str
    reason: str
    statistic: float | None
    effect: float | None
    threshold: float | None
    evidence: float | None
    samples: int
    age_seconds: float
    baseline: str
    cause: str
    details: dict[str, float]


class CauseOut(BaseModel):
    """Why a breaker left closed."""

    model_config = _STRICT

    code: str
    kind: str
    reason: str
    signals: dict[str, dict[str, float]]


class OverrideOut(BaseModel):
    """A person's hand on a breaker."""

    model_config = _STRICT

    forced: str
    actor: str
    reason: str
    since: datetime
    expires_at: datetime


class BreakerOut(BaseModel):
    """One breaker; `target` is empty for the breaker of the tier."""

    model_config = _STRICT

    tier: str
    target: str
    state: str
    shown_state: str
    admit_ratio: float
    effective_ratio: float
    trip_level: int
    changed_at: datetime | None
    open_until: datetime | None
    lease_expires_at: datetime | None
    epoch: int
    seq: int
    cause: CauseOut | None
    override: OverrideOut | None


class TransitionOut(BaseModel):
    """One row of the audit."""

    model_config = _STRICT

    at: datetime
    tier: str
    target: str
    kind: str
    actor: str
    reason: str
    before: str
    after: str
    admit_ratio: float
    machine_before: str  # the machine's own state, under an override
    machine_after: str
    machine_ratio: float
    dry_run: bool
    epoch: int
    seq: int


class BaselineOut(BaseModel):
    """One baseline without its counts."""

    model_config = _STRICT

    id: str
    tier: str
    scope: str
    variant: str
    stage: str
    made_at: datetime
    promoted_at: datetime | None
    requests: int
    provenance: str
    author: str
    reason: str


def target_out(*, target: str, url: str, reading: Reading | None, now: datetime) -> TargetOut:
    """Return a target with its newest reading."""
    if reading is None:
        return TargetOut(
            id=target,
            url=url,
            engine="",
            version="",
            model="",
            up=None,
            problem="not scraped yet",
            age_seconds=None,
            signals={},
        )
    age = max((now - reading.at).total_seconds() + reading.age_seconds, 0.0)
    return TargetOut(
        id=target,
        url=url,
        engine=reading.identity.engine,
        version=reading.identity.version,
        model=reading.identity.model,
        up=reading.up,
        problem=reading.problem,
        age_seconds=age,
        signals=_signals(reading, age),
        findings=[
            FindingOut(code=it.code, signal=it.signal, text=it.text) for it in reading.findings
        ],
    )


class _Bucket(TypedDict, total=False):
    between: tuple[float, float | None]
    samples: float


def _bucket(quantile: Quantile | None) -> _Bucket:
    """Return the fields of a signal that only a quantile has; JSON has no infinity."""
    if quantile is None:
        return {}
    upper = quantile.upper if math.isfinite(quantile.upper) else None
    return {"between": (quantile.lower, upper), "samples": quantile.samples}


def _signals(reading: Reading, age: float) -> dict[str, SignalOut]:
    found = {
        name: SignalOut(
            value=value,
            unit=SIGNALS[name].unit,
            age_seconds=age + reading.ages.get(name, 0.0),
            absent=None,
            parts=dict(reading.parts.get(name, {})),
            **_bucket(reading.quantiles.get(name)),
        )
        for name, value in reading.values.items()
        if name in SIGNALS
    }
    missing = {
        name: SignalOut(
            value=None, unit=SIGNALS[name].unit, age_seconds=age, absent=reading.absence(name)
        )
        for name in reading.absent
        if name in SIGNALS and name not in found
    }
    return found | missing


def verdict_out(verdict: Verdict) -> VerdictOut:
    """Return one verdict."""
    stream = verdict.stream
    return VerdictOut(
        at=verdict.at,
        tier=stream.tier,
        scope=str(stream.scope),
        signal=stream.signal,
        variant=stream.variant,
        detector=verdict.detector,
        level=str(verdict.level),
        reason=verdict.reason,
        statistic=verdict.statistic,
        effect=verdict.effect,
        threshold=verdict.threshold,
        evidence=verdict.evidence,
        samples=verdict.samples,
        age_seconds=verdict.age_seconds,
        baseline=verdict.baseline,
        cause=verdict.cause,
        details=dict(verdict.details),
    )


def breaker_out(breaker: Breaker) -> BreakerOut:
    """Return one breaker, override and cause included."""
    cause, override = breaker.cause, breaker.override
    return BreakerOut(
        tier=breaker.key.tier,
        target=breaker.key.target,
        state=str(breaker.state),
        shown_state=breaker.shown_state,
        admit_ratio=breaker.admit_ratio,
        effective_ratio=breaker.effective_ratio,
        trip_level=breaker.trip_level,
        changed_at=breaker.changed_at,
        open_until=breaker.open_until,
        lease_expires_at=breaker.lease_expires_at,
        epoch=breaker.epoch,
        seq=breaker.seq,
        cause=CauseOut(
            code=cause.code,
            kind=cause.kind,
            reason=cause.reason,
            signals={name: dict(facts) for name, facts in cause.signals.items()},
        )
        if cause
        else None,
        override=OverrideOut(
            forced=override.forced,
            actor=override.actor,
            reason=override.reason,
            since=override.since,
            expires_at=override.expires_at,
        )
        if override
        else None,
    )


def transition_out(transition: Transition) -> TransitionOut:
    """Return one audit row."""
    return TransitionOut(
        at=transition.at,
        tier=transition.key.tier,
        target=transition.key.target,
        kind=transition.kind,
        actor=transition.actor,
        reason=transition.reason,
        before=transition.before.shown_state,
        after=transition.after.shown_state,
        admit_ratio=transition.after.effective_ratio,
        machine_before=str(transition.before.state),
        machine_after=str(transition.after.state),
        machine_ratio=transition.after.admit_ratio,
        dry_run=transition.dry_run,
        epoch=transition.after.epoch,
        seq=transition.after.seq,
    )


def baseline_out(info: BaselineInfo) -> BaselineOut:
    """Return what is listed of one baseline."""
    return BaselineOut(
        id=info.id,
        tier=info.tier,
        scope=str(info.scope),
        variant=info.variant,
        stage=str(info.stage),
        made_at=info.made_at,
        promoted_at=info.promoted_at,
        requests=info.requests,
        provenance=info.provenance,
        author=info.author,
        reason=info.reason,
    )
