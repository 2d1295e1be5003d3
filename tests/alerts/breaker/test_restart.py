"""Restarts, reloads and warm-ups: what stays, what is given back, what has to wait."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from alerts.breaker.parameters import BreakerParameters
from alerts.breaker.records import Key, State
from tests.alerts.breaker.scene import QUICK, START, Scene, a_verdict

A = Key("chat", "a")
pytestmark = pytest.mark.anyio


async def test_after_a_kill_leases_are_renewed_at_a_higher_epoch_and_time_goes_on() -> None:
    scene = await Scene().start()
    before = await scene.trip("a")
    scene.clock.forward(5)

    await scene.restart()

    after = scene.breaker("a")
    assert (after.state, after.open_until) == (State.OPEN, before.open_until)
    assert (after.epoch, after.seq) == (2, before.seq + 1)
    assert after.lease_expires_at == scene.clock.at + timedelta(seconds=60)


async def test_after_a_kill_a_passed_open_time_is_half_open_not_closed() -> None:
    scene = await Scene().start()
    await scene.trip("a")
    scene.clock.forward(3600)

    await scene.restart()

    assert scene.breaker("a").state is State.HALF_OPEN
    assert scene.disk.breakers[A] == scene.breaker("a")


async def test_an_override_survives_a_kill() -> None:
    scene = await Scene().start()
    await scene.controller.override(A, "forced_open", actor="ana", reason="test", seconds=600)

    await scene.restart()

    override = scene.breaker("a").override
    assert override is not None
    assert override.expires_at == START + timedelta(seconds=600)
    assert not scene.controller.admit("chat", "a").allowed


async def test_what_is_no_longer_configured_or_only_observed_is_given_back_at_start() -> None:
    scene = await Scene().start()
    await scene.trip("a")
    scene.mode = "observe"

    await scene.restart()

    assert scene.kinds() == ["open", "closed"]
    newest = max(scene.disk.deliveries.values(), key=lambda row: (row.epoch, row.seq))
    assert json.loads(newest.body)["data"]["admit_ratio"] == 1.0
    assert scene.breaker("a").state is State.CLOSED


async def test_nothing_opens_during_the_warm_up() -> None:
    warm = replace_parameters(QUICK, warmup_seconds=60)
    scene = await Scene(parameters=warm).start()

    await scene.trip("a")
    during = scene.kinds()
    scene.clock.forward(50)
    await scene.trip("a")

    assert during == ["suppressed"]
    assert scene.disk.transitions[0].reason.startswith("warmup:")
    assert scene.breaker("a").state is State.OPEN


def replace_parameters(parameters: BreakerParameters, **changes: float) -> BreakerParameters:
    return parameters.model_copy(update=changes)


async def test_a_reload_keeps_breakers_and_gives_back_what_goes() -> None:
    scene = await Scene().start()
    await scene.trip("a")
    kept = scene.breaker("a")
    scene.size = 4

    await scene.controller.update_tiers({"chat": scene.setup()})
    grown = scene.breaker("a")
    without_a = replace(scene.setup(), targets={"b": "10.0.0.2:8000"})
    await scene.controller.update_tiers({"chat": without_a})

    assert grown == kept
    assert Key("chat", "d") not in scene.controller.breakers
    assert scene.kinds() == ["open", "closed"]
    assert A not in scene.controller.breakers
    await scene.controller.update_tiers({"chat": scene.setup()})
    assert scene.breaker("a").seq > kept.seq  # numbers never go back


async def test_from_enforce_to_observe_everything_is_given_back_and_back_again_closed() -> None:
    scene = await Scene().start()
    await scene.trip("a")
    told = scene.breaker("a").seq
    scene.mode = "observe"

    await scene.reload()
    observed = (scene.kinds(), scene.controller.admit("chat", "a").ratio)
    scene.clock.forward(60)
    await scene.trip("a")
    shadow = scene.controller.shadows[A].state
    scene.mode = "enforce"
    await scene.reload()

    assert observed == (["open", "closed"], 1.0)
    assert shadow is State.OPEN
    assert scene.breaker("a").state is State.CLOSED
    assert scene.breaker("a").seq > told
    assert scene.controller.admit("chat", "a").ratio == 1.0
    assert scene.controller.state_document().targets[0].admit_ratio == 1.0
    assert scene.kinds() == ["open", "closed", "would_open"]
    await scene.wait(5)
    assert not scene.disk.breakers[A].override
    assert scene.disk.breakers[A].state is State.CLOSED


async def test_a_tier_that_was_switched_or_is_new_has_a_warm_up_of_its_own() -> None:
    warm = replace_parameters(QUICK, warmup_seconds=60)
    scene = await Scene(parameters=warm, mode="observe").start()
    scene.clock.forward(61)
    scene.mode = "enforce"
    await scene.reload()
    setups = {"chat": scene.setup(), "code": replace(scene.setup(), targets={"z": "10.0.1.1:80"})}
    await scene.controller.update_tiers(setups)

    await scene.trip("a")
    for _ in range(4):
        verdict = a_verdict("kv_cache_saturated", tier="code", target="z")
        await scene.controller.evaluate("code", "z", [verdict], reading_ok=True)
    during = [(t.key, t.reason.partition(":")[0]) for t in scene.disk.transitions]
    scene.clock.forward(60)
    await scene.controller.update_tiers(setups)  # nothing new: no warm-up
    await scene.trip("a")

    assert during == [(A, "warmup"), (Key("code", "z"), "warmup")]
    assert scene.breaker("a").state is State.OPEN


async def test_a_target_that_goes_in_the_middle_of_a_round_does_not_end_it() -> None:
    scene = await Scene().start()
    for _ in range(3):
        await scene.scrape("a", "slots_saturated")
        await scene.scrape("b")
        await scene.scrape("c")
    await scene.scrape("a", "slots_saturated")
    without_a = replace(scene.setup(), targets={"b": "10.0.0.2:80", "c": "10.0.0.3:80"})
    await scene.controller.update_tiers({"chat": without_a})

    await scene.scrape("b")

    assert scene.controller._watch._tiers["chat"].round.seen == {"b"}
