"""What can happen to a breaker, what comes of it, and the timers that every part shares."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TypeAlias

from alerts.breaker.parameters import BreakerParameters
from alerts.breaker.records import Breaker, Cause, Override, State

Uniform: TypeAlias = Callable[[float, float], float]


@dataclass(frozen=True, slots=True)
class Breach:
    """One evaluation found `cause` critical.

    `trips` says that everything outside the machine agrees to a trip: enough breaches, guards,
    warm-up. Without it a breach only ends a run of good evaluations.
    """

    cause: Cause
    trips: bool


@dataclass(frozen=True, slots=True)
class Clean:
    """One evaluation with evidence found nothing critical. Missing data is no event at all."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passed.

    `breaching`: the newest evaluation was a breach. `may_probe`: no other target of the pool is
    half open. `answering`: the target's last scrape succeeded; `heard`: there was one lately at
    all. `warming`: nothing may open yet.
    """

    breaching: bool = False
    may_probe: bool = True
    answering: bool = True
    heard: bool = True
    warming: bool = False


@dataclass(frozen=True, slots=True)
class Force:
    """A person overrides the breaker."""

    override: Override


@dataclass(frozen=True, slots=True)
class Release:
    """A person ends the override and any latch; traffic comes back over the ramp."""

    actor: str
    reason: str


Event: TypeAlias = Breach | Clean | Tick | Force | Release


@dataclass(frozen=True, slots=True)
class Moment:
    """What a step may use of the world: the tier's parameters, the time, and chance.

    `uniform` draws from a closed interval, as `random.Random.uniform` does.
    """

    parameters: BreakerParameters
    now: datetime
    uniform: Uniform

    def after(self, seconds: float) -> datetime:
        """Return the moment `seconds` from now."""
        return self.now + timedelta(seconds=seconds)

    def spread(self, seconds: float, *, longer: bool = True) -> float:
        """Return `seconds` with jitter to both sides, or only to the shorter one."""
        jitter = self.parameters.jitter
        return seconds * self.uniform(1 - jitter, 1 + jitter if longer else 1)


@dataclass(frozen=True, slots=True)
class Change:
    """A breaker's next value and how to audit it.

    Without `kind` there is nothing to audit; `silent` says that nobody outside needs to know.
    """

    breaker: Breaker
    kind: str = ""
    actor: str = "auto"
    reason: str = ""
    silent: bool = False


def half_opened(breaker: Breaker, moment: Moment, *, ramp_step: int = 0, reason: str) -> Change:
    """Return the change to half open at `ramp_step`, with a deadline that jitter only shortens.

    A tier keeps the admit ratio it has: its breaker climbs back by steps of its own.
    """
    parameters, is_target = moment.parameters, bool(breaker.key.target)
    wait = parameters.half_open_deadline_seconds if is_target else parameters.open_base_seconds
    ratio = parameters.ramp[ramp_step] if is_target else breaker.admit_ratio
    halfway = replace(
        breaker,
        state=State.HALF_OPEN,
        admit_ratio=ratio,
        ramp_step=ramp_step if is_target else 0,
        good_evaluations=0,
        open_until=None,
        half_open_deadline=moment.after(moment.spread(wait, longer=False)),
    )
    return Change(halfway, "half_open", reason=f"admitting {ratio:g} of requests: {reason}")
