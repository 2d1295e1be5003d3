"""The worker when something is wrong: endpoints that hang, dead addresses, our own faults."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from alerts.breaker.records import Delivery, DeliveryStatus
from alerts.delivery.worker import PER_ENDPOINT_MOST
from alerts.journal import JournalError
from tests.alerts.delivery.test_worker import (
    APPLIED,
    Post,
    a_delivery,
    a_gateway,
    an_endpoint,
    http,
    post,
)

__all__ = ["post"]  # a fixture
pytestmark = pytest.mark.anyio


def many(count: int, *, endpoint: str = "gw") -> list[Delivery]:
    return [
        replace(a_delivery(name=f"{endpoint}-{n}", target=f"t{n}"), endpoint=endpoint)
        for n in range(count)
    ]


async def until_settled(office: Post, name: str) -> None:
    while office.row(name).status is not DeliveryStatus.CONFIRMED:  # noqa: ASYNC110  # a row
        await asyncio.sleep(0.001)


async def test_an_endpoint_that_hangs_delays_no_other(post) -> None:
    async with a_gateway(b"") as hung, a_gateway(http(200, APPLIED)) as well:
        endpoint = replace(an_endpoint(hung.url), timeout_seconds=30)
        office = post(endpoint, others={"well": an_endpoint(well.url, name="well")})
        await office.put(*many(40))
        await office.worker.send_due()
        await office.put(*many(1, endpoint="well"))

        started = await office.worker.send_due()
        await asyncio.wait_for(until_settled(office, "well-0"), 5)

        assert started == 1
        assert len(hung.requests) <= PER_ENDPOINT_MOST
        claimed = [d for d in office.journal.disk.deliveries.values() if d.status == "claimed"]
        assert len(claimed) == PER_ENDPOINT_MOST
        hung.answers[:] = [http(200, APPLIED)]
        hung.answered.set()
        await office.worker.drain()


async def test_a_newer_state_waits_for_the_older_one_on_the_wire_and_keeps_its_attempts(
    post,
) -> None:
    async with a_gateway(b"", http(500)) as gateway:
        office = post(replace(an_endpoint(gateway.url), timeout_seconds=30))
        await office.put(a_delivery())
        await office.worker.send_due()
        await office.put(a_delivery(2, name="msg_2"))
        for _ in range(8):
            office.clock.forward(0.25)
            await office.worker.send_due()
        waiting = office.row("msg_2")

        gateway.answered.set()
        await office.worker.drain()
        await office.send()
        tried = office.row("msg_2")

        assert (waiting.status, waiting.attempts) == (DeliveryStatus.PENDING, 0)
        assert tried.attempts == 1
        assert tried.due_at - office.clock.at <= timedelta(seconds=0.6)


async def test_a_dead_first_address_is_got_around(post) -> None:
    async def both(_name: str, _port: int) -> Sequence[str]:
        return ["::1", "127.0.0.1"]

    async with a_gateway(http(200, APPLIED)) as gateway:
        office = post(an_endpoint(gateway.url.replace("127.0.0.1", "gw.example")), resolve=both)
        await office.put(a_delivery())

        await office.send()

        assert len(gateway.requests) == 1
        assert office.row().status is DeliveryStatus.CONFIRMED


async def test_what_was_sent_to_one_address_is_not_sent_to_another(post) -> None:
    async def twice(_name: str, _port: int) -> Sequence[str]:
        return ["127.0.0.1", "::1"]

    async with a_gateway(b"\x00 garbage\r\n\r\n") as gateway:
        office = post(an_endpoint(gateway.url), resolve=twice)
        await office.put(a_delivery())

        await office.send()

        assert len(gateway.requests) == 1
        assert "RemoteProtocolError" in office.row().problem


async def test_when_every_address_is_dead_it_is_tried_again(post) -> None:
    async def dead(_name: str, _port: int) -> Sequence[str]:
        return ["::1", "127.0.0.1"]

    office = post(an_endpoint("http://gw.example:9/"), resolve=dead)
    await office.put(a_delivery())

    await office.send()

    assert office.row().status is DeliveryStatus.PENDING
    assert "ConnectError" in office.row().problem


async def test_an_outbox_that_cannot_be_read_is_logged_when_it_breaks_and_when_it_heals(
    post, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    office = post(an_endpoint("http://127.0.0.1:9/"))
    office.journal.disk.full = True
    for _ in range(5):
        await office.send()
    office.journal.disk.full = False
    for _ in range(2):
        await office.send()

    said = [record.message for record in caplog.records]
    assert said == ["outbox cannot be read", "outbox healed"]
    assert office.worker.journal_failures == 5


async def test_outcomes_that_cannot_be_written_are_logged_once_too(
    post, caplog: pytest.LogCaptureFixture
) -> None:
    async with a_gateway(http(200, APPLIED)) as gateway:
        office = post(an_endpoint(gateway.url))
        original = office.journal.settle

        async def failing(*_: object, **__: object) -> None:
            msg = "journal: settle failed: the disk is full"
            raise JournalError(msg)

        office.journal.settle = failing
        await office.put(*many(5))
        await office.send()
        said = [record.message for record in caplog.records]
        office.journal.settle = original
        office.clock.forward(10)
        caplog.set_level(logging.INFO)
        await office.send()

    assert said == ["deliveries cannot be settled"]
    assert caplog.records[-1].message == "outbox healed"
    assert {row.status for row in office.journal.disk.deliveries.values()} == {
        DeliveryStatus.CONFIRMED
    }


async def test_a_fault_of_ours_is_logged_and_counted_and_leaves_its_place_free(
    post, caplog: pytest.LogCaptureFixture
) -> None:
    async def faulty(_name: str, _port: int) -> Sequence[str]:
        return [1]  # type: ignore[list-item]  # the fault

    office = post(an_endpoint("http://gw.example/"), resolve=faulty)
    await office.put(a_delivery())

    await office.send()
    office.clock.forward(10)
    started = await office.send()

    assert started == 1  # tried again after its hold
    health = office.worker.health()["gw"]
    assert (health.attempts, health.failures) == ({"broken": 2}, 2)
    assert "AttributeError" in health.problem
    faults = [record for record in caplog.records if "fault of ours" in record.message]
    assert len(faults) == 1
    assert faults[0].exc_info


async def test_an_attempt_that_is_cancelled_before_it_begins_leaves_its_place_free(post) -> None:
    office = post(an_endpoint("http://127.0.0.1:9/"))
    await office.put(a_delivery())
    await office.worker.send_due()

    for task in list(office.worker._in_flight.values()):
        task.cancel()
    await office.worker.drain()

    assert office.worker._in_flight == {}


async def test_it_runs_on_through_every_failure_of_the_journal(post) -> None:
    async with a_gateway(http(200, APPLIED)) as gateway:
        office = post(an_endpoint(gateway.url))
        journal = office.journal
        calls = {"claim": 0, "settle": 0}
        claim, settle = journal.claim, journal.settle

        async def claim_at_times(**settings: Any) -> list[Delivery]:
            calls["claim"] += 1
            if calls["claim"] % 2:
                msg = "journal: claim failed"
                raise JournalError(msg)
            found: list[Delivery] = await claim(**settings)
            return found

        async def settle_at_times(name: str, *, at: datetime, **settings: Any) -> None:
            calls["settle"] += 1
            if calls["settle"] == 1:
                office.clock.forward(10)
                msg = "journal: settle failed"
                raise JournalError(msg)
            await settle(name, at=at, **settings)

        journal.claim, journal.settle = claim_at_times, settle_at_times
        await office.put(a_delivery())
        running = asyncio.create_task(office.worker.run())
        while office.row().status is not DeliveryStatus.CONFIRMED:
            office.worker.wake()
            await asyncio.sleep(0.001)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    assert calls["settle"] == 2
