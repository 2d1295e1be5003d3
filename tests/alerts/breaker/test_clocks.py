"""Clocks that are set, machines that are suspended, processes that stall: nothing lasts longer."""

from __future__ import annotations

from datetime import datetime, timedelta
from random import Random

import pytest

from alerts.breaker.book import TierSetup
from alerts.breaker.clock import Clock as BothClocks
from alerts.breaker.controller import Controller
from alerts.breaker.parameters import BreakerParameters
from alerts.breaker.records import Key, State
from tests.alerts.breaker.scene import QUICK, START, Clock, Scene, targets
from tests.alerts.memory_journal import MemoryJournal

DAY = 86_400.0
DEADLINE = "half-open deadline passed"
pytestmark = pytest.mark.anyio


def reasons(scene: Scene) -> str:
    return "\n".join(transition.reason for transition in scene.disk.transitions)


async def test_after_a_restart_a_half_open_target_has_its_time_for_evidence_anew() -> None:
    scene = await Scene(parameters=QUICK.model_copy(update={"warmup_seconds": 60})).start()
    await scene.wait(60)
    level = (await scene.half_open()).trip_level
    scene.clock.forward(300)

    await scene.restart()
    await scene.wait(1, well=False)
    after = scene.breaker("a")

    assert (after.state, after.trip_level) == (State.HALF_OPEN, level)
    assert after.half_open_deadline is not None
    assert after.half_open_deadline - scene.clock.at > timedelta(seconds=100)
    assert scene.disk.breakers[Key("chat", "a")].half_open_deadline == after.half_open_deadline


@pytest.mark.parametrize("warmup_seconds", [0, 200])
async def test_what_nobody_has_scraped_since_the_start_never_opens_again(
    warmup_seconds: int,
) -> None:
    scene = await Scene(parameters=QUICK.model_copy(update={"warmup_seconds": 0})).start()
    await scene.half_open()
    scene.parameters = QUICK.model_copy(update={"warmup_seconds": warmup_seconds})
    await scene.restart()

    states = set()
    for _ in range(200 + 3 * 125):
        await scene.wait(1, well=False)
        states.add(scene.breaker("a").state)

    assert states == {State.HALF_OPEN, State.CLOSED}  # missing data holds nothing for ever either


async def test_a_half_open_target_that_does_not_answer_still_goes_back_to_open() -> None:
    scene = await Scene().start()
    await scene.half_open()

    for _ in range(26):
        await scene.wait(5, well=False)
        await scene.scrape("a", ok=False)

    assert f"{DEADLINE}: the target does not answer" in reasons(scene)


async def test_during_the_warm_up_not_even_that_opens() -> None:
    scene = await Scene().start()
    await scene.half_open()
    scene.parameters = QUICK.model_copy(update={"warmup_seconds": 300})
    await scene.restart()

    for _ in range(55):
        await scene.wait(5, well=False)
        await scene.scrape("a", ok=False)
    during = scene.breaker("a").state
    for _ in range(10):
        await scene.wait(5, well=False)
        await scene.scrape("a", ok=False)

    assert (during, scene.breaker("a").state) == (State.HALF_OPEN, State.OPEN)


@pytest.mark.parametrize("jump", [200, 3600, DAY])
async def test_a_clock_set_forward_or_a_suspended_machine_opens_no_half_open_target(
    jump: float,
) -> None:
    scene = await Scene().start()
    await scene.half_open()
    await scene.all_well()

    scene.clock.set(jump)
    await scene.wait(3, well=False)

    assert scene.breaker("a").state is State.HALF_OPEN
    assert DEADLINE not in reasons(scene)


async def test_time_in_which_nobody_ticked_does_not_count_against_a_half_open_target() -> None:
    scene = await Scene().start()
    step = (await scene.half_open()).ramp_step
    scene.clock.forward(300)

    await scene.controller.tick()

    after = scene.breaker("a")
    assert (after.state, after.ramp_step) == (State.HALF_OPEN, step)


async def test_ticks_that_are_always_late_do_not_hold_a_half_open_target_for_ever() -> None:
    scene = await Scene().start()
    await scene.half_open()

    for _ in range(80):
        scene.clock.forward(30)
        await scene.controller.tick()

    assert scene.breaker("a").state is State.CLOSED


async def test_a_clock_set_back_lengthens_no_override() -> None:
    scene = await Scene().start()
    await scene.force("forced_open", seconds=900)
    await scene.wait(10)

    scene.clock.set(-DAY)
    await scene.wait(889)
    during = scene.controller.admit("chat", "a")
    kept = scene.disk.breakers[Key("chat", "a")].override
    await scene.wait(2)

    assert during.state == "forced_open"
    assert kept is not None
    assert kept.expires_at - scene.clock.at < timedelta(seconds=2)
    assert scene.breaker("a").override is None
    assert scene.controller.admit("chat", "a").allowed


async def test_an_override_made_right_after_a_jump_has_its_whole_time() -> None:
    scene = await Scene().start()
    await scene.wait(5)
    scene.clock.set(-DAY)

    await scene.force("forced_open", seconds=60)
    await scene.wait(55)

    assert scene.controller.admit("chat", "a").state == "forced_open"


async def test_after_a_restart_under_a_clock_set_back_an_override_lasts_its_length_at_most() -> (
    None
):
    scene = await Scene().start()
    await scene.force("forced_open", seconds=900)
    scene.clock.set(-DAY)

    await scene.restart()
    await scene.wait(902)

    assert scene.breaker("a").override is None


@pytest.mark.parametrize("jump", [-DAY, -3600, -90, 90, 3600])
async def test_no_jump_lengthens_an_open_time(jump: float) -> None:
    scene = await Scene().start()
    opened = await scene.trip("a")
    await scene.wait(3)
    assert opened.open_until is not None
    left = (opened.open_until - scene.clock.at).total_seconds()

    scene.clock.set(jump)
    await scene.wait(left + 2)

    assert scene.breaker("a").state is State.HALF_OPEN


async def test_what_a_clock_set_back_brings_nearer_is_written_and_told_at_once() -> None:
    scene = await Scene().start()
    before = await scene.trip("a")
    scene.clock.set(-DAY)

    await scene.wait(1)

    after = scene.breaker("a")
    assert before.open_until is not None
    assert after.open_until == before.open_until - timedelta(days=1)
    assert scene.disk.breakers[Key("chat", "a")] == after
    assert scene.newest()["seq"] == after.seq
    assert after.lease_expires_at is not None
    assert after.lease_expires_at <= scene.clock.at + timedelta(seconds=60)


async def test_warm_up_and_velocity_and_suppression_do_not_depend_on_the_wall_clock() -> None:
    warm = QUICK.model_copy(update={"warmup_seconds": 60})
    scene = await Scene(size=6, parameters=warm).start()
    scene.clock.set(-5 * 3600)
    await scene.wait(61)

    first = await scene.trip("a")
    scene.clock.set(-5 * 3600)
    await scene.wait(61)
    second = await scene.trip("b")

    assert (first.state, second.state) == (State.OPEN, State.OPEN)


async def test_refusals_are_audited_again_a_minute_later_whatever_the_clock_says() -> None:
    scene = await Scene(size=1).start()
    for _ in range(4):
        await scene.scrape("a", "kv_cache_saturated")
    scene.clock.set(-DAY)
    await scene.wait(61, well=False)

    await scene.scrape("a", "kv_cache_saturated")

    assert scene.kinds().count("suppressed") == 2


async def test_a_clock_set_forward_does_not_make_targets_count_as_down() -> None:
    scene = await Scene().start()
    await scene.all_well()
    scene.clock.set(3600)

    for _ in range(3):
        await scene.scrape("a", "kv_cache_saturated")

    assert scene.breaker("a").state is State.OPEN


@pytest.mark.parametrize("jump", [-DAY, DAY])
async def test_a_jump_makes_no_controller_stale_and_a_stall_does(jump: float) -> None:
    scene = await Scene().start()
    await scene.force("forced_open")
    await scene.controller.tick()
    scene.clock.set(jump)
    await scene.controller.tick()
    jumped = scene.controller.admit("chat", "a").state

    scene.clock.forward(61)
    scene.clock.set(-7200)
    document = scene.controller.state_document()

    assert jumped in {"forced_open", "closed"}
    assert scene.controller.admit("chat", "a").state == "stale"
    assert document.targets[0].admit_ratio == 1.0


async def test_flaps_before_a_clock_was_set_back_are_forgotten_in_half_an_hour() -> None:
    scene = await Scene().start()
    for _ in range(3):
        await scene.half_open()
        await scene.wait(60)
    scene.clock.set(-DAY)
    await scene.wait(1900)

    opened = await scene.trip("a")

    assert opened.open_until is not None
    assert opened.changed_at is not None
    assert opened.open_until - opened.changed_at < timedelta(seconds=60)


async def test_without_a_monotonic_clock_the_wall_clock_set_back_lengthens_nothing_either() -> None:
    clock = Clock()
    setup = TierSetup(targets(3), "enforce", BreakerParameters(warmup_seconds=0))
    controller = Controller(MemoryJournal(), {"chat": setup}, now=clock, rng=Random(1))
    await controller.start()
    key = Key("chat", "a")
    await controller.override(key, "forced_open", actor="ana", reason="test", seconds=100)

    clock.set(-DAY)
    for _ in range(102):
        clock.at += timedelta(seconds=1)
        await controller.tick()

    assert controller.breakers[key].override is None


def test_slow_drift_of_the_clocks_adds_up_to_a_jump() -> None:
    clock = Clock()
    both = BothClocks(clock, clock.monotonic)
    jumps = []
    for _ in range(100):
        clock.forward(10)
        clock.set(-0.05)
        jumps.append(both.jump(both.read()))

    assert [jump for jump in jumps if jump] == [pytest.approx(-2.05)] * 2


def test_the_derived_clock_stands_still_when_the_wall_clock_goes_back() -> None:
    moments = [START, START + timedelta(seconds=5), START - timedelta(days=1), START]
    now = iter(moments)

    def wall() -> datetime:
        return next(now)

    both = BothClocks(wall)

    assert [both.read().seconds for _ in moments] == [0.0, 5.0, 5.0, 5.0 + DAY]
