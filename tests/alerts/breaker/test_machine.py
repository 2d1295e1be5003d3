"""The machine, one event at a time."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from alerts.breaker.events import Breach, Clean, Event, Force, Release, Tick
from alerts.breaker.machine import reconciled, renewal_due, renewed, step
from alerts.breaker.parameters import BreakerParameters
from alerts.breaker.records import Breaker, Cause, Key, Override, State
from tests.alerts.breaker.scene import START

PARAMETERS = BreakerParameters()
TARGET, TIER = Breaker(Key("chat", "a")), Breaker(Key("chat"))
SOFT = Cause("kv_cache_saturated", "soft", "0.98, trip at 0.95")
STALLED = Cause("engine_stalled", "hard", "no token for 60 s")
CORRUPTED = Cause("logits_corrupted", "hard", "NaN logits")


def middle(low: float, high: float) -> float:
    return (low + high) / 2


def after(breaker: Breaker, *events: Event, seconds: float = 0, now: datetime = START) -> Breaker:
    for event in events:
        breaker, _ = step(breaker, event, PARAMETERS, now + timedelta(seconds=seconds), middle)
    return breaker


def opened(cause: Cause = SOFT, breaker: Breaker = TARGET) -> Breaker:
    return after(breaker, Breach(cause, trips=True))


def test_a_trip_opens_with_a_lease_and_an_audited_reason() -> None:
    breaker, (transition,) = step(TARGET, Breach(SOFT, trips=True), PARAMETERS, START, middle)

    assert (breaker.state, breaker.admit_ratio, breaker.seq) == (State.OPEN, 0.0, 1)
    assert breaker.open_until == START + timedelta(seconds=30)
    assert breaker.lease_expires_at == START + timedelta(seconds=60)
    assert (transition.kind, transition.actor) == ("open", "auto")
    assert transition.reason == "0.98, trip at 0.95"
    assert (transition.before, transition.after) == (TARGET, breaker)


def test_a_breach_that_may_not_trip_changes_nothing_outside() -> None:
    breaker = after(TARGET, Breach(SOFT, trips=False))

    assert (breaker.state, breaker.seq) == (State.CLOSED, 0)


def test_open_time_grows_with_each_trip_up_to_the_cap() -> None:
    breaker, times = TARGET, []
    for _ in range(12):
        breaker = after(breaker, Breach(SOFT, trips=True))
        assert breaker.open_until is not None
        times.append((breaker.open_until - START).total_seconds())
        breaker = replace(breaker, state=State.HALF_OPEN, recent_opens=())

    assert times == [30, 60, 90, 120, 150, 180, 210, 240, 270, 300, 300, 300]


def test_a_hard_cause_starts_two_levels_up() -> None:
    assert opened(STALLED).trip_level == 2


def test_the_jitter_spreads_the_open_time() -> None:
    longest, _ = step(TARGET, Breach(SOFT, trips=True), PARAMETERS, START, lambda _low, high: high)

    assert longest.open_until == START + timedelta(seconds=36)


def test_the_trip_level_decays_by_one_per_clean_minute_closed() -> None:
    breaker = replace(TARGET, trip_level=3, level_since=START)

    assert after(breaker, Clean(), seconds=59).trip_level == 3
    assert after(breaker, Clean(), seconds=121).trip_level == 1
    assert after(breaker, Clean(), seconds=6000).trip_level == 0


def test_a_breach_without_a_trip_makes_the_clean_minute_begin_anew() -> None:
    breaker = replace(TARGET, trip_level=3, level_since=START)

    breaker = after(breaker, Breach(SOFT, trips=False), seconds=50)

    assert after(breaker, Clean(), seconds=100).trip_level == 3


def test_a_flapping_target_stays_out_for_the_longest_time() -> None:
    breaker = replace(TARGET, recent_opens=tuple(START - timedelta(minutes=m) for m in (20, 9, 5)))

    flapping, (transition,) = step(breaker, Breach(SOFT, trips=True), PARAMETERS, START, middle)
    old = after(breaker, Breach(SOFT, trips=True), seconds=15 * 60)

    assert flapping.open_until == START + timedelta(seconds=300)
    assert "flapping" in transition.reason
    assert old.open_until == START + timedelta(seconds=15 * 60 + 30)


def test_the_way_back_is_a_ramp_of_good_evaluations() -> None:
    breaker = after(opened(), Tick(), seconds=30)
    ratios = [breaker.admit_ratio]
    while breaker.state is State.HALF_OPEN:
        breaker = after(breaker, Clean(), Clean(), Clean(), seconds=40)
        ratios.append(breaker.admit_ratio)

    assert ratios == [0.05, 0.25, 0.5, 1.0]
    assert (breaker.state, breaker.cause, breaker.lease_expires_at) == (State.CLOSED, None, None)


def test_before_its_time_nothing_half_opens() -> None:
    assert after(opened(), Tick(), seconds=29.9).state is State.OPEN


def test_good_evaluations_must_come_in_a_row_for_a_breach_reopens() -> None:
    half = after(opened(), Tick(), Clean(), Clean(), seconds=30)

    again = after(half, Breach(SOFT, trips=True), seconds=31)

    assert (again.state, again.trip_level, again.good_evaluations) == (State.OPEN, 2, 0)


def test_a_breach_that_persists_at_the_end_of_the_open_time_extends_it_without_an_event() -> None:
    breaker, transitions = step(
        opened(), Tick(breaching=True), PARAMETERS, START + timedelta(seconds=30), middle
    )

    assert (breaker.state, breaker.trip_level, breaker.seq) == (State.OPEN, 2, 2)
    assert breaker.open_until == START + timedelta(seconds=90)
    assert transitions == ()


def test_only_one_target_of_a_pool_probes_at_a_time() -> None:
    waiting = after(opened(), Tick(may_probe=False), seconds=1000)

    assert waiting.state is State.OPEN
    assert after(waiting, Tick(), seconds=1001).state is State.HALF_OPEN


@pytest.mark.parametrize(
    ("tick", "state", "ratio"),
    [
        (Tick(answering=True), State.HALF_OPEN, 0.25),
        (Tick(answering=False), State.OPEN, 0.0),
        (Tick(breaching=True), State.OPEN, 0.0),
    ],
    ids=["idle", "silent", "breaching"],
)
def test_half_open_never_waits_beyond_its_deadline(tick: Tick, state: State, ratio: float) -> None:
    half = after(opened(), Tick(), seconds=30)

    breaker = after(half, tick, seconds=30 + 120)

    assert (breaker.state, breaker.admit_ratio) == (state, ratio)


def test_a_latched_cause_holds_until_its_longest_time_whatever_the_evaluations_say() -> None:
    breaker = opened(CORRUPTED)

    held = after(breaker, Clean(), Tick(), seconds=3600)
    ended = after(held, Tick(), seconds=4 * 3600)

    assert held.state is State.OPEN
    assert ended.state is State.HALF_OPEN


def test_a_stalled_engine_is_not_latched() -> None:
    assert after(opened(STALLED), Tick(), seconds=60).state is State.HALF_OPEN


def test_a_latched_cause_takes_over_from_a_soft_one() -> None:
    worse = after(opened(), Breach(CORRUPTED, trips=True), seconds=5)

    assert worse.cause == CORRUPTED
    assert after(worse, Tick(), seconds=1000).state is State.OPEN


def test_a_person_releases_a_latch_into_the_ramp() -> None:
    breaker, (transition,) = step(
        opened(CORRUPTED), Release("ana", "replaced the GPU"), PARAMETERS, START, middle
    )

    assert (breaker.state, breaker.admit_ratio) == (State.HALF_OPEN, 0.05)
    assert (transition.kind, transition.actor) == ("override_ended", "ana")


def an_override(forced: str, seconds: float = 600) -> Force:
    until = START + timedelta(seconds=seconds)
    return Force(Override(forced, "ana", "load test", START, until))  # type: ignore[arg-type]  # both values


def test_under_an_override_the_machine_runs_on_and_gateways_see_the_override() -> None:
    breaker = after(TARGET, an_override("forced_closed"), Breach(SOFT, trips=True))

    assert (breaker.state, breaker.effective_ratio) == (State.OPEN, 1.0)
    assert breaker.shown_state == "forced_closed"
    assert breaker.lease_expires_at is None


@pytest.mark.parametrize(
    ("before", "tick", "state"),
    [
        (TARGET, Tick(), State.CLOSED),
        (opened(), Tick(), State.HALF_OPEN),
        (opened(), Tick(may_probe=False), State.OPEN),
        (opened(CORRUPTED), Tick(), State.OPEN),
    ],
    ids=["closed", "open", "another probes", "latched"],
)
def test_an_override_ends_by_itself(before: Breaker, tick: Tick, state: State) -> None:
    forced = after(before, an_override("forced_open", 600))

    ended, (transition,) = step(forced, tick, PARAMETERS, START + timedelta(seconds=600), middle)

    assert (ended.override, ended.state) == (None, state)
    assert transition.kind == "override_ended"


def test_a_tier_sheds_by_a_factor_and_climbs_back_by_steps() -> None:
    lowered = [after(TIER, *[Breach(SOFT, trips=True)] * n).admit_ratio for n in range(1, 7)]
    floor = after(TIER, *[Breach(SOFT, trips=True)] * 9)
    back = after(floor, Clean())
    whole = after(floor, *[Clean()] * 16)

    assert lowered == [0.7, 0.49, 0.343, 0.2401, 0.2, 0.2]
    assert floor.seq == 5  # at the floor nothing changes any more
    assert (back.state, back.admit_ratio) == (State.HALF_OPEN, 0.25)
    assert (whole.state, whole.admit_ratio, whole.cause) == (State.CLOSED, 1.0, None)


def test_a_tier_that_hears_nothing_climbs_back_by_itself() -> None:
    shedding = after(TIER, Breach(SOFT, trips=True))

    assert after(shedding, Tick(), seconds=29) == shedding
    climbing = after(shedding, Tick(), seconds=30)
    assert (climbing.state, climbing.admit_ratio) == (State.HALF_OPEN, 0.75)
    assert after(climbing, Tick(), seconds=61).admit_ratio == 0.8
    assert after(shedding, Tick(breaching=True), seconds=30).admit_ratio == 0.7


def test_a_restart_makes_a_passed_open_time_half_open_and_never_longer() -> None:
    late = START + timedelta(seconds=31)

    passed, (transition,) = reconciled(opened(), PARAMETERS, late, middle)
    running, none = reconciled(opened(), PARAMETERS, START + timedelta(seconds=10), middle)

    assert (passed.state, passed.admit_ratio) == (State.HALF_OPEN, 0.05)
    assert transition.kind == "half_open"
    assert (running, none) == (opened(), ())


def test_a_clock_set_back_does_not_keep_a_target_out_for_longer() -> None:
    breaker = after(opened(), Tick(), seconds=-86_400)

    assert breaker.open_until is not None
    assert breaker.open_until - (START - timedelta(days=1)) <= timedelta(seconds=360)


def test_a_lease_is_renewed_about_every_twenty_seconds_and_seq_rises() -> None:
    def due(seconds: float) -> bool:
        return renewal_due(opened(), PARAMETERS, START + timedelta(seconds=seconds), middle)

    later = renewed(opened(), PARAMETERS, START + timedelta(seconds=20))

    assert [due(5), due(15), due(19), due(70)] == [False, False, True, True]
    assert not renewal_due(TARGET, PARAMETERS, START, middle)
    assert later.lease_expires_at == START + timedelta(seconds=80)
    assert later.seq == opened().seq + 1


def test_an_override_from_ahead_of_the_clock_is_brought_in_with_its_length() -> None:
    forced = after(TARGET, an_override("forced_open", 900))
    back = START - timedelta(days=1)

    brought_in = after(forced, Tick(), now=back).override
    later = after(forced, Tick(), Tick(), now=back)

    assert brought_in is not None
    assert (brought_in.since, brought_in.expires_at) == (back, back + timedelta(seconds=900))
    assert after(later, Tick(), now=back, seconds=899).override is not None
    assert after(later, Tick(), now=back, seconds=900).override is None


@pytest.mark.parametrize(
    ("tick", "state"),
    [
        (Tick(answering=False, heard=False), State.HALF_OPEN),
        (Tick(answering=False, heard=False, warming=True), None),
        (Tick(answering=False, warming=True), None),
        (Tick(breaching=True, warming=True), None),
        (Tick(answering=True, warming=True), State.HALF_OPEN),
    ],
    ids=["unheard", "unheard, warming", "silent, warming", "breaching, warming", "well, warming"],
)
def test_what_was_not_heard_or_may_not_open_is_no_reason_to_open(
    tick: Tick, state: State | None
) -> None:
    half = after(opened(), Tick(), seconds=30)

    breaker = after(half, tick, seconds=30 + 121)

    assert breaker.ramp_step == (0 if state is None else 1)
    assert breaker.state is State.HALF_OPEN


def test_a_restart_gives_a_half_open_target_its_time_for_evidence_anew() -> None:
    half = after(opened(), Tick(), seconds=30)

    again, none = reconciled(half, PARAMETERS, START + timedelta(seconds=500), middle)

    assert none == ()
    assert (again.state, again.ramp_step, again.seq) == (half.state, half.ramp_step, half.seq)
    assert again.half_open_deadline is not None
    assert again.half_open_deadline > START + timedelta(seconds=600)
