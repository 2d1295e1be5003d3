"""A tier's breaker: it sheds by its admit ratio, quickly down and slowly back (AIMD).

`closed` is a ratio of 1, `open` a ratio that was lowered, `half_open` one that climbs back.
"""

from __future__ import annotations

from dataclasses import replace

from alerts.breaker.events import Breach, Change, Moment, Tick
from alerts.breaker.records import Breaker, State


def breached(breaker: Breaker, event: Breach, moment: Moment) -> Change | None:
    """Lower the admit ratio, not below the floor."""
    if not event.trips:
        return None
    parameters, before = moment.parameters, breaker.admit_ratio
    lowered = round(max(parameters.shed_floor, before * parameters.shed_factor), 6)
    after = replace(
        breaker,
        state=State.OPEN,
        admit_ratio=min(before, lowered),
        open_until=moment.after(moment.spread(parameters.open_base_seconds)),
        half_open_deadline=None,
        good_evaluations=0,
        cause=event.cause,
    )
    if after.admit_ratio == before and (breaker.state is State.OPEN or before >= 1):
        held = replace(breaker, open_until=after.open_until if breaker.open_until else None)
        return Change(held, silent=True)
    reason = (
        f"admitting {after.admit_ratio:g} of requests: {event.cause.reason or event.cause.code}"
    )
    return Change(after, "shed", reason=reason)


def cleared(breaker: Breaker, moment: Moment) -> Change | None:
    """Raise the admit ratio by one step."""
    return _climbed(breaker, moment, reason="a clean evaluation")


def ticked(breaker: Breaker, event: Tick, moment: Moment) -> Change | None:
    """Climb without evidence too, once nothing was heard for long: missing data never holds."""
    if breaker.state is State.CLOSED:
        return None
    waited = breaker.open_until if breaker.state is State.OPEN else breaker.half_open_deadline
    if waited is not None and moment.now < waited:
        return None
    if event.breaching:
        return None
    return _climbed(breaker, moment, reason="no evaluation for long")


def _climbed(breaker: Breaker, moment: Moment, *, reason: str) -> Change | None:
    if breaker.state is State.CLOSED:
        return None
    parameters = moment.parameters
    ratio = min(1.0, round(breaker.admit_ratio + parameters.shed_step, 6))
    whole = ratio >= 1
    after = replace(
        breaker,
        state=State.CLOSED if whole else State.HALF_OPEN,
        admit_ratio=ratio,
        open_until=None,
        half_open_deadline=None
        if whole
        else moment.after(moment.spread(parameters.open_base_seconds, longer=False)),
        cause=None if whole else breaker.cause,
    )
    kind = "closed" if whole else "half_open"
    return Change(after, kind, reason=f"admitting {ratio:g} of requests: {reason}")
