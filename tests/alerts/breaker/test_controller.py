"""The controller over a journal: evaluations in, breakers and deliveries out."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from alerts.breaker.records import Key, State
from detectors.records import Level
from tests.alerts.breaker.scene import Scene, a_verdict

A = Key("chat", "a")
pytestmark = pytest.mark.anyio


async def test_three_breaches_of_five_open_a_target_durably_and_tell_its_gateway() -> None:
    scene = await Scene().start()

    breaker = await scene.trip("a")

    assert (breaker.state, breaker.effective_ratio) == (State.OPEN, 0.0)
    assert scene.kinds() == ["open"]
    assert scene.disk.breakers[A] == breaker
    (delivery,) = scene.disk.deliveries.values()
    data = json.loads(delivery.body)["data"]
    assert (delivery.endpoint, delivery.key, delivery.seq) == ("gw", A, breaker.seq)
    assert (data["state"], data["admit_ratio"], data["epoch"]) == ("open", 0.0, 1)
    assert data["target"] == {"id": "a", "address": "10.0.0.1:8000"}
    assert data["lease"]["seconds"] == 60
    assert data["cause"]["code"] == "kv_cache_saturated"
    assert scene.changes[-1].breaker == breaker


async def test_two_breaches_of_five_do_not() -> None:
    scene = await Scene().start()
    await scene.all_well()
    for causes in (["kv_cache_saturated"], [], ["kv_cache_saturated"], [], [], ["queue_growing"]):
        await scene.scrape("a", *causes)

    assert scene.breaker("a").state is State.CLOSED


async def test_a_hard_cause_opens_when_the_next_evaluation_confirms_it() -> None:
    scene = await Scene().start()
    await scene.all_well()

    await scene.scrape("a", "engine_stalled")
    once = scene.breaker("a").state
    await scene.scrape("a", ok=False)
    await scene.scrape("a", "engine_stalled")

    assert once is State.CLOSED
    assert scene.breaker("a").state is State.OPEN


async def test_a_hard_cause_that_the_next_evaluation_denies_opens_nothing() -> None:
    scene = await Scene().start()
    await scene.all_well()
    for _ in range(2):
        await scene.scrape("a", "engine_stalled")
        await scene.scrape("a")

    assert scene.breaker("a").state is State.CLOSED


@pytest.mark.parametrize("cause", ["input_drift", "output_drift", "target_down", "made_up"])
async def test_what_may_only_alert_opens_and_sheds_nothing(cause: str) -> None:
    scene = await Scene().start()
    for _ in range(10):
        for target in "abc":
            await scene.scrape(target, cause)
        await scene.wait(5, well=False)

    assert scene.kinds() == []


async def test_failed_scrapes_open_nothing_however_long() -> None:
    scene = await Scene().start()
    await scene.scrape("a", "kv_cache_saturated")
    await scene.scrape("a", "kv_cache_saturated")
    for _ in range(20):
        await scene.scrape("a", "kv_cache_saturated", ok=False)

    assert scene.kinds() == []


async def test_verdicts_about_another_target_do_not_count() -> None:
    scene = await Scene().start()
    await scene.all_well()
    for _ in range(5):
        verdict = a_verdict("kv_cache_saturated", target="b")
        await scene.controller.evaluate("chat", "a", [verdict], reading_ok=True)

    assert scene.kinds() == []


async def test_recovery_is_a_ramp_back_to_closed() -> None:
    scene = await Scene().start()
    await scene.trip("a")

    await scene.wait(100)

    assert scene.kinds() == ["open", "half_open", "half_open", "half_open", "closed"]
    assert scene.breaker("a").effective_ratio == 1.0
    assert scene.controller.admit("chat", "a").allowed


async def test_a_breach_that_the_guard_refuses_sheds_the_tier_instead() -> None:
    scene = await Scene(size=1).start()

    for _ in range(4):
        await scene.scrape("a", "kv_cache_saturated")
        scene.clock.forward(5)

    assert scene.breaker("a").state is State.CLOSED
    assert scene.breaker().admit_ratio == pytest.approx(0.49)
    assert scene.kinds() == ["suppressed", "shed", "shed"]
    assert scene.disk.transitions[0].reason.startswith("pool_guard:")


async def test_a_refusal_is_audited_once_a_minute_not_each_scrape() -> None:
    scene = await Scene(size=1).start()

    for _ in range(30):
        await scene.scrape("a", "kv_cache_saturated")
        scene.clock.forward(5)

    assert scene.kinds().count("suppressed") == 3


async def test_the_second_target_of_three_is_not_ejected_and_the_tier_sheds() -> None:
    scene = await Scene().start()
    await scene.trip("a")
    scene.clock.forward(60)

    for _ in range(3):
        await scene.scrape("a", "kv_cache_saturated")
        await scene.scrape("c")
        await scene.scrape("b", "kv_cache_saturated")

    assert scene.breaker("b").state is State.CLOSED
    assert scene.breaker().state is State.OPEN


async def test_a_target_that_does_not_answer_counts_as_out() -> None:
    scene = await Scene().start()
    for _ in range(5):
        await scene.scrape("b")
        await scene.scrape("c", ok=False)
        await scene.scrape("a", "kv_cache_saturated")

    assert scene.breaker("a").state is State.CLOSED


async def test_full_slots_shed_only_when_most_targets_have_them() -> None:
    scene = await Scene().start()
    for _ in range(5):
        await scene.scrape("a", "slots_saturated")
        await scene.scrape("b")
        await scene.scrape("c")
    one = scene.breaker().admit_ratio
    for _ in range(3):
        await scene.scrape("a", "slots_saturated")
        await scene.scrape("b", "slots_saturated")
        await scene.scrape("c")

    assert one == 1.0
    assert scene.breaker().admit_ratio == 0.7
    assert scene.breaker("a").state is State.CLOSED


@pytest.mark.parametrize(
    ("configured", "harm", "ratio"), [(True, True, 0.7), (True, False, 1.0), (False, True, 1.0)]
)
async def test_input_drift_sheds_only_where_configured_and_with_harm(
    configured: bool, harm: bool, ratio: float
) -> None:
    scene = await Scene(drift_may_shed=configured).start()
    drift = [a_verdict("input_drift", target="")]
    await scene.controller.evaluate("chat", "", drift, reading_ok=True)

    await scene.scrape("a", *(["kv_cache_saturated"] if harm else []))
    await scene.scrape("b")
    await scene.scrape("c")

    assert scene.breaker().admit_ratio == ratio
    assert scene.breaker("a").state is State.CLOSED


async def test_observe_decides_and_audits_and_withholds_nothing() -> None:
    scene = await Scene(mode="observe").start()

    await scene.trip("a")

    (transition,) = scene.disk.transitions
    assert (transition.kind, transition.dry_run) == ("would_open", True)
    assert scene.breaker("a").state is State.CLOSED
    assert scene.controller.shadows[A].state is State.OPEN
    assert scene.disk.deliveries == {}
    assert scene.controller.admit("chat", "a").ratio == 1.0
    assert {t.state for t in scene.controller.state_document().targets} == {"closed"}
    await scene.wait(120)
    assert scene.disk.deliveries == {}


async def test_a_lease_is_renewed_and_each_renewal_is_a_newer_delivery() -> None:
    scene = await Scene().start()
    first = await scene.trip("a")

    await scene.wait(20)

    renewed = scene.breaker("a")
    assert renewed.seq == first.seq + 1
    assert renewed.lease_expires_at == scene.clock.at + timedelta(seconds=60) or renewed.seq > 1
    newest = max(scene.disk.deliveries.values(), key=lambda row: row.seq)
    assert json.loads(newest.body)["type"] == "fusewire.breaker.renewed"
    assert sum(row.status == "pending" for row in scene.disk.deliveries.values()) == 1


async def test_levels_below_critical_are_good_evaluations() -> None:
    scene = await Scene().start()
    await scene.all_well()
    for _ in range(5):
        await scene.scrape("a", level=Level.WARNING)
        await scene.scrape("b", level=Level.UNKNOWN)

    assert scene.kinds() == []


async def test_while_its_own_cause_cannot_be_judged_the_ramp_waits() -> None:
    scene = await Scene().start()
    await scene.trip("a", "engine_stalled")
    await scene.scrape("a")
    await scene.wait(70, well=False)
    assert scene.breaker("a").state is State.HALF_OPEN
    verdicts = [
        a_verdict("engine_stalled", Level.UNKNOWN),
        a_verdict("kv_cache_saturated", Level.OK),
    ]
    for _ in range(6):
        await scene.controller.evaluate("chat", "a", verdicts, reading_ok=True)

    assert scene.breaker("a").ramp_step == 0


async def test_an_unknown_tier_is_not_evaluated() -> None:
    scene = await Scene().start()

    await scene.controller.evaluate("nobody", "a", [a_verdict("queue_growing")], reading_ok=True)
    await scene.controller.evaluate("chat", "z", [a_verdict("queue_growing")], reading_ok=True)

    assert scene.kinds() == []
