"""Writes that went through and were reported as failed: a connection lost in the commit."""

from __future__ import annotations

import pytest

from alerts.breaker.records import DeliveryStatus, Key, State
from alerts.embed.receiver import Ledger as Receiver
from alerts.journal import JournalError
from tests.alerts.breaker.scene import Scene

A, B = Key("chat", "a"), Key("chat", "b")
pytestmark = pytest.mark.anyio


async def nearly_closed() -> Scene:
    """Return a scene whose target `a` closes with its next good evaluation."""
    scene = await Scene().start()
    await scene.half_open()
    while scene.breaker("a").ramp_step < 2 or scene.breaker("a").good_evaluations < 2:
        await scene.wait(1, well=False)
        await scene.scrape("a")
    return scene


async def test_a_commit_in_doubt_on_the_way_back_blocks_nothing() -> None:
    scene = await nearly_closed()
    scene.disk.in_doubt = 1
    await scene.scrape("a")
    closed = scene.breaker("a")

    await scene.wait(20)
    opened = await scene.trip("b")

    assert closed.state is State.CLOSED
    assert scene.controller.journal_writable
    assert scene.controller.journal_failures == 1
    assert opened.state is State.OPEN
    assert scene.kinds().count("closed") == 1
    assert scene.disk.breakers[A].state is State.CLOSED


async def test_a_trip_in_doubt_did_not_happen_and_gateways_are_told_so() -> None:
    scene = await Scene().start()
    receiver = Receiver(scene.clock.monotonic)
    await scene.scrape("a", "kv_cache_saturated")
    await scene.scrape("a", "kv_cache_saturated")
    await scene.all_well(but="a")
    scene.disk.in_doubt = 1
    await scene.scrape("a", "kv_cache_saturated")
    receiver.apply(scene.newest())  # it was on disk, so it may have been sent
    told = receiver.strictest()["a"].ratio

    await scene.controller.tick()
    receiver.apply(scene.newest())

    assert told == 0.0
    assert scene.breaker("a").state is State.CLOSED
    assert receiver.strictest()["a"].ratio == 1.0
    assert scene.disk.breakers[A] == scene.breaker("a")
    open_rows = [row for row in scene.disk.deliveries.values() if row.status == "pending"]
    assert [row.seq for row in open_rows] == [scene.breaker("a").seq]


async def test_a_retry_with_other_bytes_has_a_higher_number() -> None:
    scene = await Scene(size=1).start()
    receiver = Receiver(scene.clock.monotonic)
    for _ in range(3):
        await scene.scrape("a", "kv_cache_saturated")
    scene.disk.in_doubt = 1
    await scene.scrape("a", "kv_cache_saturated")
    receiver.apply(scene.newest())
    first = receiver.of_tier()
    await scene.controller.tick()
    scene.clock.forward(5)

    await scene.scrape("a", "kv_cache_saturated")
    receiver.apply(scene.newest())
    second = receiver.of_tier()

    assert [first.ratio, second.ratio] == pytest.approx([0.49, 0.49])
    assert second.seq > first.seq
    assert second.ends == first.ends + 5


async def test_an_override_in_doubt_is_refused_and_taken_back() -> None:
    scene = await Scene().start()
    receiver = Receiver(scene.clock.monotonic)
    scene.disk.in_doubt = 1

    with pytest.raises(JournalError):
        await scene.force("forced_open")
    receiver.apply(scene.newest())
    await scene.controller.tick()
    receiver.apply(scene.newest())

    assert scene.breaker("a").override is None
    assert scene.disk.breakers[A].override is None
    assert receiver.strictest()["a"].ratio == 1.0


async def test_a_renewal_in_doubt_is_renewed_again() -> None:
    scene = await Scene().start()
    await scene.force("forced_open")
    scene.disk.in_doubt = 3

    await scene.wait(40)

    assert scene.controller.journal_writable
    assert scene.disk.breakers[A] == scene.breaker("a")
    assert not scene.controller.admit("chat", "a").allowed
    pending = [d for d in scene.disk.deliveries.values() if d.status is DeliveryStatus.PENDING]
    assert [delivery.seq for delivery in pending] == [scene.breaker("a").seq]


async def test_several_writes_in_doubt_leave_the_newest_state_once() -> None:
    scene = await nearly_closed()
    scene.disk.in_doubt = 4

    await scene.scrape("a")
    for _ in range(3):
        await scene.controller.tick()
    still = scene.controller.journal_writable
    await scene.controller.tick()

    assert not still
    assert scene.controller.journal_writable
    assert scene.kinds().count("closed") == 1
    assert scene.disk.breakers[A] == scene.breaker("a")
