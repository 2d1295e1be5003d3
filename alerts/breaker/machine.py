"""The breaker as pure functions: one breaker, one event, one moment in; the next breaker out.

Nothing here reads a clock, waits, writes or draws a random number of its own. A target's breaker
opens and comes back over a ramp (`ejection.py`); a tier's sheds by its admit ratio (`shed.py`).
The override lies on top: the machine runs on underneath, and the override alone decides what
gateways see.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from alerts.breaker import ejection, shed
from alerts.breaker.clock import ending_in_time
from alerts.breaker.events import (
    Breach,
    Change,
    Clean,
    Event,
    Force,
    Moment,
    Release,
    Tick,
    Uniform,
    half_opened,
)
from alerts.breaker.parameters import BreakerParameters
from alerts.breaker.permissions import permission
from alerts.breaker.records import Breaker, State, Transition


def step(
    breaker: Breaker,
    event: Event,
    parameters: BreakerParameters,
    now: datetime,
    rng_uniform: Uniform,
) -> tuple[Breaker, tuple[Transition, ...]]:
    """Return the breaker after `event` and what is to be audited (one transition at most).

    `seq` rises if and only if something changed that gateways or a restart must know; what a
    breaker merely counts (good evaluations, level decay) changes without it.

    Args:
        breaker: The present state.
        event: What happened.
        parameters: The tier's parameters.
        now: This moment, aware UTC.
        rng_uniform: Draws from a closed interval, as `random.Random.uniform` does.
    """
    moment = Moment(parameters, now, rng_uniform)
    change = _change(breaker, event, moment)
    if change is None:
        return breaker, ()
    return (change.breaker, ()) if change.silent else _settled(breaker, change, moment)


def reconciled(
    breaker: Breaker, parameters: BreakerParameters, now: datetime, rng_uniform: Uniform
) -> tuple[Breaker, tuple[Transition, ...]]:
    """Return a loaded breaker as a restarted controller goes on with it.

    A target's open time that passed meanwhile becomes half open at its first step: never closed
    directly, never longer than it was. A half-open target has its time for evidence anew: nobody
    could gather any while Fusewire was away.
    """
    moment = Moment(parameters, now, rng_uniform)
    breaker = _plausible(breaker, moment)
    if not breaker.key.target:
        return breaker, ()
    if breaker.state is State.HALF_OPEN:
        wait = moment.spread(parameters.half_open_deadline_seconds, longer=False)
        return replace(breaker, half_open_deadline=moment.after(wait)), ()
    past = breaker.open_until is None or breaker.open_until <= now
    if breaker.state is not State.OPEN or not past:
        return breaker, ()
    reason = "the open time passed while Fusewire was away"
    return _settled(breaker, half_opened(breaker, moment, reason=reason), moment)


def leased(breaker: Breaker, parameters: BreakerParameters, now: datetime) -> Breaker:
    """Return `breaker` with a fresh lease if it withholds traffic, else without one."""
    if breaker.effective_ratio >= 1:
        return replace(breaker, lease_expires_at=None)
    expires = now + timedelta(seconds=parameters.lease_seconds)
    return replace(breaker, lease_expires_at=expires)


def renewed(breaker: Breaker, parameters: BreakerParameters, now: datetime) -> Breaker:
    """Return `breaker` with its lease renewed and `seq` raised."""
    return leased(replace(breaker, seq=breaker.seq + 1), parameters, now)


def renewal_due(
    breaker: Breaker, parameters: BreakerParameters, now: datetime, rng_uniform: Uniform
) -> bool:
    """Return whether the lease of `breaker` is to be renewed now: about every renew_seconds."""
    if breaker.effective_ratio >= 1:
        return False
    if breaker.lease_expires_at is None:
        return True
    left = (breaker.lease_expires_at - now).total_seconds()
    period = parameters.renew_seconds * rng_uniform(1 - parameters.jitter, 1)
    clock_went_back = left > parameters.lease_seconds
    return clock_went_back or left <= parameters.lease_seconds - period


def _settled(
    before: Breaker, change: Change, moment: Moment
) -> tuple[Breaker, tuple[Transition, ...]]:
    """Give a change its number, its lease and its audit row."""
    after = leased(replace(change.breaker, seq=before.seq + 1), moment.parameters, moment.now)
    if after.state is not before.state:
        after = replace(after, changed_at=moment.now)
    if not change.kind:
        return after, ()
    transition = Transition(
        key=before.key,
        kind=change.kind,
        at=moment.now,
        actor=change.actor,
        before=before,
        after=after,
        reason=change.reason,
    )
    return after, (transition,)


def _change(breaker: Breaker, event: Event, moment: Moment) -> Change | None:
    is_target = bool(breaker.key.target)
    match event:
        case Breach():
            breached = ejection.breached if is_target else shed.breached
            return breached(breaker, event, moment)
        case Clean():
            cleared = ejection.cleared if is_target else shed.cleared
            return cleared(breaker, moment)
        case Tick():
            return _ticked(breaker, event, moment)
        case Force(override):
            forced = replace(breaker, override=override)
            until = f" (until {override.expires_at:%Y-%m-%dT%H:%M:%SZ})"
            return Change(forced, override.forced, override.actor, override.reason + until)
        case Release():
            return _released(breaker, event, moment)


def _ticked(breaker: Breaker, event: Tick, moment: Moment) -> Change | None:
    ended = _override_ended(breaker, event, moment)
    if ended is not None:
        return ended
    plausible = _plausible(breaker, moment)
    if plausible != breaker:
        return Change(plausible, silent=True)
    ticked = ejection.ticked if breaker.key.target else shed.ticked
    return ticked(breaker, event, moment)


def _plausible(breaker: Breaker, moment: Moment) -> Breaker:
    """Bring in what lies further off than it can: the clock was set back, or a reload."""
    parameters, is_target = moment.parameters, bool(breaker.key.target)
    cap = parameters.open_cap_seconds if is_target else parameters.open_base_seconds
    longest = cap * (1 + parameters.jitter)
    if breaker.cause is not None and permission(breaker.cause.code).latched:
        longest = parameters.latch_max_seconds
    wait = parameters.half_open_deadline_seconds if is_target else parameters.open_base_seconds
    until, deadline = breaker.open_until, breaker.half_open_deadline
    since, now = breaker.level_since, moment.now
    return replace(
        breaker,
        open_until=until and min(until, moment.after(longest)),
        half_open_deadline=deadline and min(deadline, moment.after(wait)),
        override=ending_in_time(breaker.override, now),
        level_since=since and min(since, now),
        recent_opens=tuple(min(at, now) for at in breaker.recent_opens),
    )


def _released(breaker: Breaker, event: Release, moment: Moment) -> Change | None:
    """End override and latch: a person says that the target is well, the ramp checks it."""
    if breaker.override is None and breaker.state is not State.OPEN:
        return None  # the ramp runs already
    free = replace(breaker, override=None)
    if free.state is not State.CLOSED:
        free = half_opened(free, moment, reason=event.reason).breaker
    return Change(free, "override_ended", event.actor, event.reason)


def _override_ended(breaker: Breaker, event: Tick, moment: Moment) -> Change | None:
    """Drop an override past its end; a latch outlives it, a plain open time does not."""
    override = breaker.override
    if override is None or override.expires_at > moment.now:
        return None
    free = replace(breaker, override=None)
    latched = free.cause is not None and permission(free.cause.code).latched
    reason = f"{override.forced} by {override.actor} ended"
    if free.state is State.HALF_OPEN or (free.state is State.OPEN and event.may_probe):
        if not (free.state is State.OPEN and latched):
            free = half_opened(free, moment, reason=reason).breaker
    elif free.state is State.OPEN and not latched:  # waits for its turn to probe
        free = replace(free, open_until=min(free.open_until or moment.now, moment.now))
    return Change(free, "override_ended", reason=reason)
