"""A target's breaker: closed, open with growing times, half open over a ramp, closed."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import timedelta

from alerts.breaker.events import Breach, Change, Moment, Tick, half_opened
from alerts.breaker.permissions import permission
from alerts.breaker.records import Breaker, Cause, State

FLAP_WINDOW = timedelta(minutes=30)


def breached(breaker: Breaker, event: Breach, moment: Moment) -> Change | None:
    """Return what a breach does to a target's breaker."""
    if breaker.state is State.CLOSED:
        if event.trips:
            return opened(breaker, event.cause, moment, level=2 if _hard(event.cause) else 1)
        return Change(replace(breaker, level_since=moment.now), silent=True)
    if breaker.state is State.HALF_OPEN:
        if event.trips:
            return opened(breaker, event.cause, moment, level=1)
        return Change(replace(breaker, good_evaluations=0), silent=True)
    worse = _latched(event.cause) and not _latched(breaker.cause)
    return opened(breaker, event.cause, moment, level=0) if event.trips and worse else None


def cleared(breaker: Breaker, moment: Moment) -> Change | None:
    """Return what an evaluation without a breach does to a target's breaker."""
    if breaker.state is State.CLOSED:
        decayed = _decayed(breaker, moment)
        return None if decayed == breaker else Change(decayed, silent=True)
    if breaker.state is State.OPEN:
        return None
    good = breaker.good_evaluations + 1
    if good < moment.parameters.ramp_evaluations:
        return Change(replace(breaker, good_evaluations=good), silent=True)
    return _climbed(breaker, moment, reason=f"{good} good evaluations in a row")


def ticked(breaker: Breaker, event: Tick, moment: Moment) -> Change | None:
    """Return what the passing of time does to a target's breaker."""
    if breaker.state is State.OPEN:
        return _open_time_passed(breaker, event, moment)
    deadline = breaker.half_open_deadline
    if breaker.state is State.CLOSED or (deadline is not None and moment.now < deadline):
        return None
    if event.answering and not event.breaching:
        return _climbed(breaker, moment, reason="no evidence against it until the deadline")
    if event.warming:  # neither evidence nor the right to open yet: wait until there is either
        return None
    if not event.heard:  # missing data opens nothing, and holds nothing for ever
        return _climbed(breaker, moment, reason="nothing was heard of it until the deadline")
    cause = breaker.cause or Cause("target_down", "soft", "the target does not answer")
    reason = "breaching" if event.breaching else "the target does not answer"
    return opened(breaker, cause, moment, level=1, reason=f"half-open deadline passed: {reason}")


def opened(
    breaker: Breaker, cause: Cause, moment: Moment, *, level: int, reason: str = ""
) -> Change:
    """Return the change to open, `level` trip levels up, for a time that grows with the level.

    The time is `open_base_seconds` times the level up to `open_cap_seconds`, spread by the
    jitter; a flapping target stays out for the longest time, a latched cause for
    `latch_max_seconds`.
    """
    parameters, now = moment.parameters, moment.now
    risen = _raised(_decayed(breaker, moment), level, moment)
    recent = tuple(at for at in breaker.recent_opens if now - at < FLAP_WINDOW)
    recent = (*recent, now)[-(parameters.flap_opens + 1) :]
    flapping = len(recent) > parameters.flap_opens
    seconds = _open_seconds(risen.trip_level, moment, longest=flapping)
    if _latched(cause):
        seconds = parameters.latch_max_seconds
    after = replace(
        risen,
        state=State.OPEN,
        admit_ratio=0.0,
        ramp_step=0,
        good_evaluations=0,
        open_until=moment.after(seconds),
        half_open_deadline=None,
        cause=cause,
        recent_opens=recent,
    )
    flap = "; flapping: longest open time" if flapping else ""
    return Change(after, "open", reason=(reason or cause.reason or cause.code) + flap)


def _open_time_passed(breaker: Breaker, event: Tick, moment: Moment) -> Change | None:
    if breaker.open_until is not None and moment.now < breaker.open_until:
        return None
    if event.breaching and not _latched(breaker.cause):
        risen = _raised(breaker, 1, moment)
        seconds = _open_seconds(risen.trip_level, moment)
        return Change(replace(risen, open_until=moment.after(seconds)))
    if not event.may_probe:
        return None
    return half_opened(breaker, moment, reason="the open time passed")


def _climbed(breaker: Breaker, moment: Moment, *, reason: str) -> Change:
    following = breaker.ramp_step + 1
    if following < len(moment.parameters.ramp):
        return half_opened(breaker, moment, ramp_step=following, reason=reason)
    closed = replace(
        breaker,
        state=State.CLOSED,
        admit_ratio=1.0,
        ramp_step=0,
        good_evaluations=0,
        half_open_deadline=None,
        cause=None,
        level_since=moment.now,
    )
    return Change(closed, "closed", reason=reason)


def _open_seconds(level: int, moment: Moment, *, longest: bool = False) -> float:
    parameters = moment.parameters
    seconds = min(parameters.open_cap_seconds, parameters.open_base_seconds * max(1, level))
    return moment.spread(parameters.open_cap_seconds if longest else seconds)


def _raised(breaker: Breaker, by: int, moment: Moment) -> Breaker:
    parameters = moment.parameters
    highest = max(1, math.ceil(parameters.open_cap_seconds / parameters.open_base_seconds))
    level = min(highest, breaker.trip_level + by)
    return replace(breaker, trip_level=level, level_since=moment.now)


def _decayed(breaker: Breaker, moment: Moment) -> Breaker:
    """Take one trip level off for each `level_decay_seconds` that the breaker was closed."""
    since = breaker.level_since or breaker.changed_at
    if breaker.state is not State.CLOSED or breaker.trip_level == 0 or since is None:
        return breaker
    step = moment.parameters.level_decay_seconds
    levels = int((moment.now - since).total_seconds() // step)
    if levels < 1:
        return breaker
    left = max(0, breaker.trip_level - levels)
    return replace(breaker, trip_level=left, level_since=since + timedelta(seconds=levels * step))


def _hard(cause: Cause) -> bool:
    return cause.kind == "hard"


def _latched(cause: Cause | None) -> bool:
    return cause is not None and permission(cause.code).latched
