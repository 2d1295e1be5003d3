"""The controller over a journal: evaluations in, breakers and deliveries out."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import timedelta

import pytest

from alerts.breaker.overrides import OverrideError
from alerts.breaker.parameters import BreakerParameters
from alerts.breaker.records import Key, Override, State
from alerts.journal import JournalError
from detectors.records import Level
from tests.alerts.breaker.scene import QUICK, START, Scene, a_verdict

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


async def test_an_override_in_observe_mode_is_refused_with_the_remedy() -> None:
    scene = await Scene(mode="observe").start()

    with pytest.raises(OverrideError, match="mode: enforce"):
        await scene.controller.override(A, "forced_open", actor="a", reason="b", seconds=60)


@pytest.mark.parametrize(
    ("key", "reason", "seconds", "problem"),
    [
        (Key("chat", "z"), "why", 60, "no such breaker"),
        (A, " ", 60, "reason"),
        (A, "why", 0, "more than 0"),
        (A, "why", 90_000, "at most 86400"),
    ],
)
async def test_an_override_that_cannot_be_is_refused(
    key: Key, reason: str, seconds: float, problem: str
) -> None:
    scene = await Scene().start()

    with pytest.raises(OverrideError, match=problem):
        await scene.controller.override(
            key, "forced_open", actor="ana", reason=reason, seconds=seconds
        )


async def test_an_override_rules_until_it_ends_and_its_lease_is_renewed() -> None:
    scene = await Scene().start()
    await scene.controller.override(A, "forced_open", actor="ana", reason="test", seconds=120)

    await scene.wait(119)
    during = scene.controller.admit("chat", "a")
    await scene.wait(2)

    assert (during.allowed, during.state, during.reason) == (False, "forced_open", "override")
    assert scene.controller.admit("chat", "a").allowed
    assert scene.kinds() == ["forced_open", "override_ended"]


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


async def test_without_a_journal_nothing_new_is_withheld() -> None:
    scene = await Scene().start()
    scene.disk.full = True

    await scene.trip("a")

    assert scene.breaker("a").state is State.CLOSED
    assert not scene.controller.journal_writable
    scene.disk.full = False
    await scene.controller.tick()
    assert scene.controller.journal_writable


async def test_without_a_journal_a_lease_ends_with_the_open_time() -> None:
    scene = await Scene().start()
    until = (await scene.trip("a")).open_until
    scene.disk.full = True

    await scene.wait(25)
    late = scene.breaker("a")
    assert late.lease_expires_at == until or scene.clock.at < START + timedelta(seconds=60)
    await scene.wait(100, well=False)

    answer = scene.controller.admit("chat", "a")
    assert (answer.allowed, answer.ratio) == (True, 1.0)


async def test_without_a_journal_traffic_may_come_back_and_is_written_later() -> None:
    scene = await Scene().start()
    await scene.trip("a")
    scene.disk.full = True

    await scene.wait(40)
    in_memory = scene.breaker("a")
    scene.disk.full = False
    await scene.controller.tick()

    assert in_memory.state is State.HALF_OPEN
    assert scene.disk.breakers[A].state is State.HALF_OPEN
    assert "half_open" in scene.kinds()


async def test_without_a_journal_an_override_is_refused_but_a_release_works() -> None:
    scene = await Scene().start()
    await scene.controller.override(A, "forced_open", actor="ana", reason="test", seconds=600)
    scene.disk.full = True

    with pytest.raises(JournalError):
        await scene.controller.override(
            Key("chat"), "forced_open", actor="ana", reason="test", seconds=60
        )
    await scene.controller.release(A, actor="ana", reason="done")

    assert scene.breaker().override is None
    assert scene.controller.admit("chat", "a").allowed
    scene.disk.full = False
    await scene.controller.tick()
    assert scene.disk.breakers[A].override is None


async def test_requests_left_by_commands_are_honoured_once_each() -> None:
    scene = await Scene().start()
    until = scene.clock.at + timedelta(days=30)
    scene.disk.asked[A] = Override("forced_open", "ana", "by hand", scene.clock.at, until)
    scene.disk.asked[Key("chat", "z")] = None

    await scene.controller.tick()
    override = scene.breaker("a").override
    scene.disk.asked[A] = None
    await scene.controller.tick()

    assert override is not None
    assert override.expires_at == scene.clock.at + timedelta(days=1)
    assert scene.breaker("a").override is None
    assert scene.kinds() == ["forced_open", "override_ended", "override_ended"]
    assert scene.disk.transitions[1].key == Key("chat", "z")
    assert "no such breaker" in scene.disk.transitions[1].reason


async def test_a_request_that_changes_nothing_is_answered_in_the_audit_too() -> None:
    scene = await Scene().start()
    scene.disk.asked[A] = None

    await scene.controller.tick()

    (answered,) = scene.disk.transitions
    assert (answered.kind, answered.reason) == ("override_ended", "nothing to release")
    assert scene.breaker("a") == answered.after


async def test_a_request_taken_while_the_disk_is_full_is_kept_until_it_can_be_written() -> None:
    scene = await Scene().start()
    until = scene.clock.at + timedelta(hours=1)
    scene.disk.asked[A] = Override("forced_open", "ana", "by hand", scene.clock.at, until)
    journal = scene.controller._journal
    original = journal.record
    journal.record = failing  # type: ignore[assignment,method-assign]  # only the write fails
    await scene.controller.tick()
    refused = scene.breaker("a").override
    journal.record = original  # type: ignore[method-assign]  # and heals

    await scene.controller.tick()

    assert refused is None
    assert scene.breaker("a").override is not None


async def failing(_entries: object) -> None:
    msg = "journal: the disk is full"
    raise JournalError(msg)


async def test_a_controller_that_no_longer_ticks_lets_everything_in() -> None:
    scene = await Scene().start()
    await scene.controller.override(
        Key("chat"), "forced_open", actor="ana", reason="test", seconds=600
    )
    scene.clock.forward(61)

    answer = scene.controller.admit("chat")

    assert (answer.allowed, answer.state) == (True, "stale")
    assert scene.controller.state_document().tiers[0].admit_ratio == 1.0


async def test_equal_keys_get_equal_answers_and_about_the_admitted_share() -> None:
    scene = await Scene(size=1).start()
    for _ in range(4):
        await scene.scrape("a", "kv_cache_saturated")
    ratio = scene.breaker().admit_ratio

    answers = [scene.controller.admit("chat", key=f"user-{n}") for n in range(1000)]
    again = [scene.controller.admit("chat", key=f"user-{n}").allowed for n in range(1000)]

    assert [answer.allowed for answer in answers] == again
    assert sum(again) / 1000 == pytest.approx(ratio, abs=0.05)
    waits = {answer.retry_after_seconds for answer in answers if not answer.allowed}
    assert len(waits) > 1
    assert max(waits) <= 30
    assert min(waits) >= 1


async def test_an_unknown_tier_or_target_is_let_in() -> None:
    scene = await Scene().start()

    assert scene.controller.admit("nobody").allowed
    assert scene.controller.admit("nobody").state == "unknown"
    assert scene.controller.admit("chat", "z").allowed


async def test_the_document_names_every_tier_and_target_and_its_rev_rises() -> None:
    scene = await Scene().start()
    before = scene.controller.state_document()
    await scene.trip("a")

    document = scene.controller.state_document()

    assert document.rev > before.rev
    assert [target.id for target in document.targets] == ["a", "b", "c"]
    opened = json.loads(document.encode())["targets"][0]
    assert (opened["state"], opened["weight"], opened["tier"]) == ("open", 0, "chat")
    assert opened["cause"] == "kv_cache_saturated"
    assert document.ttl_seconds <= 60
    assert document.tiers[0].mode == "enforce"


async def test_a_long_poll_returns_on_change_or_with_nothing_after_its_timeout() -> None:
    scene = await Scene().start()
    rev = scene.controller.state_document().rev

    nothing = await scene.controller.wait_for(rev, 0.01)
    waiting = asyncio.create_task(scene.controller.wait_for(rev, 5))
    await asyncio.sleep(0)
    await scene.trip("a")
    found = await waiting

    assert nothing is None
    assert found is not None
    assert found.rev > rev
    assert await scene.controller.wait_for(rev, 5) is not None


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
    scene.mode = "observe"

    await scene.controller.update_tiers({"chat": scene.setup()})

    assert scene.kinds() == ["open", "closed"]
    assert scene.controller.admit("chat", "a").ratio == 1.0
    assert scene.controller.shadows[A].state is State.CLOSED


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
