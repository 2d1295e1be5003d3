"""From live state to the status page: plain values, nothing computed but ages."""

from __future__ import annotations

from importlib.metadata import version

from alerts.breaker.records import Breaker, Transition
from collector.api.shapes import BaselineProgressOut, SignalOut, TargetOut
from collector.api.tiers import tier_out
from collector.health import Health
from collector.parts import Parts, TierFacts
from collector.web.view import (
    BaselineView,
    BreakerView,
    FindingView,
    HealthView,
    OverrideView,
    PartView,
    SignalView,
    StatusView,
    TargetView,
    TierView,
    TransitionView,
    VerdictView,
)
from detectors.records import Verdict

MOST_VERDICTS = 200
MOST_TRANSITIONS = 20


def status_view(
    parts: Parts, health: Health, transitions: list[Transition], *, refresh_seconds: int = 5
) -> StatusView:
    """Return the page's content as of now; `transitions` newest first."""
    return StatusView(
        at=parts.now(),
        version=version("fusewire"),
        tiers=tuple(_tier(parts, tier, facts) for tier, facts in parts.tiers.items()),
        transitions=tuple(map(_transition, transitions[:MOST_TRANSITIONS])),
        health=_health(parts, health),
        refresh_seconds=refresh_seconds,
    )


def _health(parts: Parts, health: Health) -> HealthView:
    journal = "" if parts.controller.journal_writable else "the journal cannot be written"
    reload = parts.last_reload
    return HealthView(
        parts=tuple(
            PartView(name, condition.failures, condition.problem)
            for name, condition in sorted(health.conditions.items())
            if condition.failures
        ),
        journal_problem=journal,
        config_problem="; ".join(reload.problems),
        config_loaded_at=reload.at,
    )


def _tier(parts: Parts, tier: str, facts: TierFacts) -> TierView:
    shown = tier_out(parts, tier)
    breakers = parts.controller.breakers
    return TierView(
        name=tier,
        mode=facts.mode,
        role=facts.role,
        targets=tuple(map(_target, shown.targets)),
        neighbours=tuple(map(_target, shown.neighbours)),
        verdicts=tuple(map(_verdict, parts.newest.listed(tier=tier, limit=MOST_VERDICTS))),
        breakers=tuple(_breaker(breakers[key]) for key in sorted(breakers) if key.tier == tier),
        baselines=tuple(map(_baseline, shown.baselines)),
    )


def _target(target: TargetOut) -> TargetView:
    return TargetView(
        id=target.id,
        url=target.url,
        engine=" ".join(filter(None, (target.engine, target.version))),
        up=target.up,
        age_seconds=target.age_seconds,
        problem=target.problem,
        signals=tuple(_signal(name, signal) for name, signal in target.signals.items()),
        findings=tuple(FindingView(it.code, it.signal, it.text) for it in target.findings),
    )


def _signal(name: str, signal: SignalOut) -> SignalView:
    return SignalView(
        name,
        signal.value,
        signal.unit,
        signal.age_seconds,
        signal.absent or "",
        signal.between,
    )


def _verdict(verdict: Verdict) -> VerdictView:
    return VerdictView(
        scope=str(verdict.stream.scope),
        signal=verdict.stream.signal,
        detector=verdict.detector,
        level=str(verdict.level),
        reason=verdict.reason,
        age_seconds=verdict.age_seconds,
        baseline=verdict.baseline,
        cause=verdict.cause,
        variant=verdict.stream.variant,
    )


def _breaker(breaker: Breaker) -> BreakerView:
    cause, override = breaker.cause, breaker.override
    return BreakerView(
        target=breaker.key.target,
        shown_state=breaker.shown_state,
        admit_ratio=breaker.admit_ratio,
        effective_ratio=breaker.effective_ratio,
        cause=cause.code if cause else "",
        reason=cause.reason if cause else "",
        open_until=breaker.open_until,
        lease_expires_at=breaker.lease_expires_at,
        override=OverrideView(override.forced, override.actor, override.reason, override.expires_at)
        if override
        else None,
    )


def _baseline(progress: BaselineProgressOut) -> BaselineView:
    return BaselineView(
        scope=progress.scope,
        stage=progress.stage,
        requests=progress.requests,
        needed=progress.needed,
        id=progress.baseline or "",
        variant=progress.variant,
    )


def _transition(transition: Transition) -> TransitionView:
    return TransitionView(
        at=transition.at,
        tier=transition.key.tier,
        target=transition.key.target,
        kind=transition.kind,
        reason=transition.reason,
        actor=transition.actor,
        dry_run=transition.dry_run,
    )
