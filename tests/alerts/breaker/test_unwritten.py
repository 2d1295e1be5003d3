"""Without a journal nothing new is withheld, and traffic still comes back."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import pytest

from alerts.breaker.ledger import UNWRITTEN_MOST
from alerts.breaker.records import Entry, Key, Override, State
from alerts.journal import JournalError
from tests.alerts.breaker.scene import START, Scene

A = Key("chat", "a")
pytestmark = pytest.mark.anyio


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


async def at_half() -> Scene:
    """Return a scene whose target `a` is half open and admits a half."""
    scene = await Scene().start()
    await scene.half_open()
    while scene.breaker("a").admit_ratio < 0.5:
        await scene.wait(5)
    return scene


async def test_without_a_journal_a_release_begins_the_ramp_whatever_lay_under_the_override() -> (
    None
):
    scene = await at_half()
    await scene.force("forced_open")
    scene.disk.full = True

    released = await scene.controller.release(A, actor="ana", reason="done")

    assert (released.override, released.effective_ratio) == (None, 0.05)
    assert scene.breaker("a") == released


async def test_without_a_journal_an_override_ends_into_the_ramp_too() -> None:
    scene = await at_half()
    await scene.force("forced_open", seconds=30)
    scene.disk.full = True

    await scene.wait(31)

    assert scene.breaker("a").override is None
    assert scene.breaker("a").effective_ratio > 0


async def test_without_a_journal_a_release_that_would_withhold_is_an_error() -> None:
    scene = await Scene().start()
    await scene.trip("a")
    await scene.force("forced_closed")
    scene.disk.full = True

    for _ in range(2):
        with pytest.raises(JournalError, match="not released"):
            await scene.controller.release(A, actor="ana", reason="done")

    assert scene.breaker("a").shown_state == "forced_closed"
    scene.disk.full = False
    await scene.controller.tick()
    released = await scene.controller.release(A, actor="ana", reason="done")
    assert released.override is None


async def test_a_release_by_command_that_must_be_written_waits_for_the_journal() -> None:
    scene = await Scene().start()
    await scene.trip("a")
    await scene.force("forced_closed")
    scene.disk.asked[A] = None
    journal = scene.controller._journal
    original = journal.record
    journal.record = failing  # type: ignore[assignment,method-assign]  # only the write fails
    await scene.controller.tick()
    during = scene.breaker("a").shown_state
    journal.record = original  # type: ignore[method-assign]  # and heals

    await scene.controller.tick()

    assert during == "forced_closed"
    assert scene.breaker("a").override is None
    assert "override_ended" in scene.kinds()


async def test_a_journal_that_fails_is_tried_once_a_tick_and_wakes_nobody_who_polls() -> None:
    scene = await Scene().start()
    await scene.trip("a")
    scene.disk.full = True
    await scene.wait(25)
    rev, writes = scene.controller.state_document().rev, scene.disk.writes
    failures = scene.controller.journal_failures

    for _ in range(10):
        for _ in range(5):
            await scene.scrape("b", "engine_stalled")
        await scene.controller.tick()

    assert scene.controller.state_document().rev == rev
    assert scene.disk.writes == writes + 10
    assert scene.controller.journal_failures == failures + 10
    assert scene.breaker("b").state is State.CLOSED


async def test_refusals_are_audited_when_the_journal_heals() -> None:
    scene = await Scene(size=1).start()
    scene.disk.full = True
    for _ in range(4):
        await scene.scrape("a", "kv_cache_saturated")
    scene.disk.full = False

    await scene.controller.tick()

    assert scene.kinds() == ["suppressed"]
    assert scene.changes[-1].transition == scene.disk.transitions[0]


async def test_of_what_cannot_be_audited_the_oldest_is_dropped_and_counted_the_state_is_not() -> (
    None
):
    scene = await Scene().start()
    scene.disk.full = True
    for _ in range(UNWRITTEN_MOST + 10):
        with pytest.raises(JournalError):
            await scene.force("forced_open")
        scene.clock.forward(61)
        await scene.controller.tick()
        for _ in range(3):
            await scene.scrape("b", "kv_cache_saturated")
            await scene.scrape("a", "input_drift")
            await scene.scrape("c", ok=False)
    scene.disk.full = False

    await scene.controller.tick()

    assert scene.controller.entries_dropped > 0
    assert len(scene.disk.transitions) == UNWRITTEN_MOST
    assert scene.disk.breakers[A] == scene.breaker("a")


async def test_a_request_that_is_cancelled_while_it_is_written_is_taken_back() -> None:
    scene = await Scene().start()
    journal = scene.controller._journal
    original, written = journal.record, asyncio.Event()

    async def slow(entries: Sequence[Entry]) -> None:
        await original(entries)
        written.set()
        await asyncio.Event().wait()

    journal.record = slow  # type: ignore[method-assign]  # it goes through and never says so
    request = asyncio.create_task(scene.force("forced_open"))
    await written.wait()
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    journal.record = original  # type: ignore[method-assign]  # and answers again

    await scene.controller.tick()

    assert scene.breaker("a").override is None
    assert scene.disk.breakers[A] == scene.breaker("a")
    assert scene.newest()["admit_ratio"] == 1.0


async def test_requests_that_cannot_be_read_stop_no_decision() -> None:
    scene = await Scene().start()
    journal = scene.controller._journal

    async def unreadable() -> dict[Key, Override | None]:
        msg = "journal: a row cannot be read"
        raise JournalError(msg)

    journal.overrides = unreadable  # type: ignore[method-assign]  # only this fails
    await scene.controller.tick()

    opened = await scene.trip("a")

    assert scene.controller.journal_writable
    assert scene.controller.journal_failures == 1
    assert opened.state is State.OPEN
