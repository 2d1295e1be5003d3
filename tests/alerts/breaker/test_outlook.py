"""What gateways are answered: admission, the state document, the long poll."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict, replace

import pytest

from alerts.breaker.records import Key
from tests.alerts.breaker.scene import Scene

A = Key("chat", "a")
pytestmark = pytest.mark.anyio


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


async def test_the_document_is_built_once_for_a_rev_and_its_age_is_taken_off_its_ttl() -> None:
    scene = await Scene().start()
    await scene.trip("a")
    await scene.controller.tick()

    first = scene.controller.state_document()
    scene.clock.forward(3)
    second = scene.controller.state_document()

    assert second.rows is first.rows
    assert second.ttl_seconds == first.ttl_seconds - 3
    assert second.generated_at == scene.clock.at
    decoded = json.loads(second.encode())
    assert list(decoded) == [
        "controller",
        "epoch",
        "rev",
        "generated_at",
        "ttl_seconds",
        "tiers",
        "targets",
    ]
    assert decoded["targets"][0] == asdict(second.targets[0])
    assert decoded["tiers"] == [asdict(row) for row in second.tiers]
    assert replace(second, rows=b"").encode() == second.encode()


async def test_a_document_that_was_kept_never_withholds_beyond_a_lease() -> None:
    scene = await Scene().start()
    await scene.force("forced_open")
    held = scene.controller.state_document().targets[0]

    scene.clock.forward(60)
    after = scene.controller.state_document().targets[0]

    assert (held.state, held.admit_ratio) == ("forced_open", 0.0)
    assert (after.state, after.admit_ratio, after.weight) == ("stale", 1.0, 100)
    assert after.retry_after_seconds == 0


async def test_the_wait_that_a_document_names_is_a_few_seconds_old_at_most() -> None:
    scene = await Scene().start()
    await scene.force("forced_open", seconds=40)
    first = scene.controller.state_document().targets[0].retry_after_seconds

    scene.clock.forward(20)
    later = scene.controller.state_document().targets[0].retry_after_seconds

    assert later < first - 10


async def test_when_the_service_stops_whoever_waits_is_let_go() -> None:
    scene = await Scene().start()
    rev = scene.controller.state_document().rev
    waiting = [asyncio.create_task(scene.controller.wait_for(rev, 60)) for _ in range(3)]
    await asyncio.sleep(0)

    scene.controller.close()
    let_go = await asyncio.wait_for(asyncio.gather(*waiting), 1)

    assert let_go == [None, None, None]
    assert await asyncio.wait_for(scene.controller.wait_for(rev, 60), 1) is None
    assert await asyncio.wait_for(scene.controller.wait_for(rev - 1, 60), 1) is None
