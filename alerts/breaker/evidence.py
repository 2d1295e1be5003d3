"""What one evaluation says, and what is remembered of the last few: pure, bounded, in memory only.

An evaluation is a completed scrape of a target. A failed scrape counts against nothing: it is not a
breach, so missing data never opens, and not a good evaluation, so it never closes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from alerts.breaker.parameters import BreakerParameters
from alerts.breaker.permissions import permission
from alerts.breaker.records import Cause
from detectors.records import Level, Scope, Verdict

CONFIRMED = 2  # a hard cause counts once it was seen so many evaluations in a row


@dataclass(frozen=True, slots=True)
class Finding:
    """What the verdicts of one evaluation may lead to.

    `known` is whether there was evidence at all; `ejects`, `sheds` and `drifts` are the worst
    causes found that may take the target out, shed the tier, or shed it together with harm. `held`
    says that a cause is no breach at this moment, yet not cleared either: no evidence of health.
    """

    known: bool = False
    held: bool = False
    ejects: Cause | None = None
    sheds: Cause | None = None
    drifts: Cause | None = None

    @property
    def clean(self) -> bool:
        return self.known and not self.held and self.ejects is None and self.sheds is None


def find(
    verdicts: Iterable[Verdict], *, target: str, reading_ok: bool, own: Cause | None = None
) -> Finding:
    """Return what `verdicts` of one evaluation of `target` may lead to.

    Args:
        verdicts: Of one completed scrape, or with an empty `target` of one tick.
        target: Whose evaluation this is; verdicts about other targets are left out.
        reading_ok: Whether the scrape succeeded; nothing is found in one that did not.
        own: The cause for which the breaker is open: as long as it cannot be judged, the
            evaluation is not evidence of health.
    """
    scopes = {Scope("target", target), Scope()} if target else {Scope()}
    mine = [verdict for verdict in verdicts if verdict.stream.scope in scopes]
    if not reading_ok:
        return Finding()
    breaching = [verdict for verdict in mine if breaches(verdict)]
    blind = own is not None and any(
        verdict.cause == own.code and verdict.level is Level.UNKNOWN for verdict in mine
    )
    known = any(verdict.level is not Level.UNKNOWN for verdict in mine) and not blind
    by_code = {verdict.cause: verdict for verdict in reversed(breaching)}
    return Finding(
        known=known or bool(breaching),
        held=any(_holds(verdict) for verdict in mine),
        ejects=_worst(v for c, v in by_code.items() if permission(c).may_eject_target),
        sheds=_worst(v for c, v in by_code.items() if permission(c).may_shed_tier),
        drifts=_worst(v for c, v in by_code.items() if permission(c).may_shed_with_harm),
    )


def breaches(verdict: Verdict) -> bool:
    """Return whether this evaluation breached, for counting n of m.

    A soft cause is counted scrape by scrape, from what the detector says of this very one
    (`details["breached"]`): its own level has a hold in it already, and holds do not stack. Hard
    causes and drift count by their level.
    """
    raw = verdict.details.get("breached")
    if raw is not None and permission(verdict.cause).kind == "soft":
        return raw > 0 and verdict.level is not Level.UNKNOWN
    return verdict.level is Level.CRITICAL


def _holds(verdict: Verdict) -> bool:
    """Return whether a cause that may act is raised or rising without being a breach right now."""
    allowed = permission(verdict.cause)
    acts = allowed.may_eject_target or allowed.may_shed_tier
    return acts and verdict.level in {Level.WARNING, Level.CRITICAL} and not breaches(verdict)


def _worst(verdicts: Iterable[Verdict]) -> Cause | None:
    causes = [cause_of(verdict) for verdict in verdicts]
    if not causes:
        return None
    return min(
        causes,
        key=lambda cause: (cause.kind != "hard", not permission(cause.code).latched, cause.code),
    )


def cause_of(verdict: Verdict) -> Cause:
    """Return the cause that a verdict is evidence for, with the numbers that decided."""
    numbers = {
        "value": verdict.statistic,
        "effect": verdict.effect,
        "threshold": verdict.threshold,
        "evidence": verdict.evidence,
        "age_seconds": verdict.age_seconds,
    }
    shown: Mapping[str, float] = {
        name: float(number)
        for name, number in numbers.items()
        if number is not None and math.isfinite(number)
    }
    kind = permission(verdict.cause).kind
    return Cause(verdict.cause, kind, verdict.reason, {verdict.stream.signal: shown})


@dataclass(frozen=True, slots=True)
class Seen:
    """What is remembered of a target's last `breach_m` evaluations.

    `at` is when the last one was, in monotonic seconds. `ejects` and `sheds` hold one flag an
    evaluation, newest last; `hard_in_a_row` counts evaluations that saw a hard cause.
    """

    at: float | None = None
    answering: bool = False
    ejects: tuple[bool, ...] = ()
    sheds: tuple[bool, ...] = ()
    hard_in_a_row: int = 0
    finding: Finding = Finding()

    def saw(
        self, finding: Finding, parameters: BreakerParameters, *, at: float, answering: bool
    ) -> Seen:
        """Return the memory after one more evaluation."""
        m = parameters.breach_m
        hard = finding.ejects is not None and finding.ejects.kind == "hard"
        in_a_row = self.hard_in_a_row + 1 if hard else 0 if finding.known else self.hard_in_a_row
        return Seen(
            at=at,
            answering=answering,
            ejects=(*self.ejects, finding.ejects is not None)[-m:],
            sheds=(*self.sheds, finding.sheds is not None)[-m:],
            hard_in_a_row=min(in_a_row, CONFIRMED),
            finding=finding,
        )

    def enough_to_eject(self, parameters: BreakerParameters) -> bool:
        """Return whether the last evaluation completes n breaches of m, or confirms a hard one."""
        if self.finding.ejects is None:
            return False
        return self.confirmed or sum(self.ejects[-parameters.breach_m :]) >= parameters.breach_n

    def enough_to_shed(self, parameters: BreakerParameters) -> bool:
        if self.finding.sheds is None:
            return False
        confirmed = self.confirmed and self.finding.sheds.kind == "hard"
        return confirmed or sum(self.sheds[-parameters.breach_m :]) >= parameters.breach_n

    @property
    def confirmed(self) -> bool:
        hard = self.finding.ejects is not None and self.finding.ejects.kind == "hard"
        return hard and self.hard_in_a_row >= CONFIRMED

    def fresh(self, at: float, seconds: float) -> bool:
        """Return whether the last evaluation is at most `seconds` old."""
        return self.at is not None and at - self.at <= seconds


@dataclass(slots=True)
class Round:
    """One evaluation of a tier: each of its targets evaluated once. It is filled in place.

    It ends when every target was seen, or when one comes again before the others. `refused` is
    the cause of a target that should have been ejected and was not, one is enough to shed;
    `votes` count causes that may only shed, they need more than half of the targets that were
    seen with evidence (`known`).
    """

    seen: set[str] = field(default_factory=set)
    known: int = 0
    refused: Cause | None = None
    votes: int = 0
    vote: Cause | None = None
    harm: bool = False
    unripe: bool = False

    def saw(
        self, target: str, finding: Finding, wants_shed: Cause | None, *, unripe: bool = False
    ) -> None:
        """Take one more target's evaluation; `wants_shed` is why the tier should shed for it.

        `unripe`: it breaches, but too few evaluations are remembered yet to shed for it (after a
        restart), or it is below its limit and not cleared yet. Such a round is no breach, and no
        evidence of health either: the tier neither sheds more nor lets more in for it.
        """
        self.seen.add(target)
        self.unripe = self.unripe or unripe
        self.known += finding.known
        self.harm = self.harm or finding.sheds is not None
        if wants_shed is None:
            return
        if permission(wants_shed.code).may_eject_target:
            self.refused = self.refused or wants_shed
        else:
            self.votes += 1
            self.vote = self.vote or wants_shed

    def verdict(self, drift: Cause | None) -> Cause | None:
        """Return why the tier should shed, or None.

        `drift` is the critical drift of the tier, given only where it may shed: it counts
        together with a saturation verdict of any target, never alone.
        """
        if self.refused is not None:
            return self.refused
        if self.votes * 2 > self.known:
            return self.vote
        return drift if self.harm else None
