"""How often the worker looks at the outbox, and that nothing waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from alerts.breaker.records import DeliveryStatus
from alerts.delivery import worker as of_worker
from tests.alerts.breaker.scene import START
from tests.alerts.delivery.test_worker import (
    APPLIED,
    Post,
    a_delivery,
    a_gateway,
    an_endpoint,
    http,
)

pytestmark = pytest.mark.anyio


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let seconds pass a hundred times as fast."""
    monkeypatch.setattr(of_worker, "POLL_SECONDS", 0.0025)
    monkeypatch.setattr(of_worker, "QUIET_POLL_SECONDS", 0.05)
    monkeypatch.setattr(of_worker, "WATCH_SECONDS", 0.03)


@asynccontextmanager
async def running(office: Post) -> AsyncIterator[list[int]]:
    """Run the worker; yields the number of its looks."""
    looks = [0]
    claim = office.journal.claim

    async def counted(**asked: Any) -> Any:
        looks[0] += 1
        return await claim(**asked)

    office.journal.claim = counted  # type: ignore[method-assign]  # the same, counted
    task = asyncio.create_task(office.worker.run())
    try:
        yield looks
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await office.client.aclose()


async def confirmed(office: Post) -> None:
    async with asyncio.timeout(5):
        while office.row().status is not DeliveryStatus.CONFIRMED:  # noqa: ASYNC110  # a row
            await asyncio.sleep(0.001)


async def test_with_nothing_to_expect_it_looks_seldom(quick: None) -> None:
    async with running(Post(an_endpoint("http://127.0.0.1:1/"))) as looks:
        await asyncio.sleep(0.1)
        settled = looks[0]
        await asyncio.sleep(0.2)

    assert looks[0] - settled <= 5  # and not 80


async def test_what_was_written_without_a_word_is_found_all_the_same(quick: None) -> None:
    """A write that was told to have failed may have gone through."""
    async with a_gateway(http(200, APPLIED)) as gateway:
        office = Post(an_endpoint(gateway.url))
        async with running(office):
            await asyncio.sleep(0.1)
            await office.put(a_delivery())
            await confirmed(office)

    assert len(gateway.requests) == 1


async def test_a_retry_is_not_kept_waiting_by_the_quiet(
    quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of_worker, "QUIET_POLL_SECONDS", 60.0)
    async with a_gateway(http(500), http(200, APPLIED)) as gateway:
        office = Post(an_endpoint(gateway.url))
        async with running(office):
            await asyncio.sleep(0.1)
            await office.put(a_delivery())
            office.worker.wake()
            async with asyncio.timeout(5):
                while office.row().problem == "":  # noqa: ASYNC110  # a row
                    await asyncio.sleep(0.001)
            office.clock.forward(1)
            await confirmed(office)

    assert len(gateway.requests) == 2


async def test_the_claim_of_a_process_that_died_is_taken_over_after_a_start(quick: None) -> None:
    async with a_gateway(http(200, APPLIED)) as gateway:
        office = Post(an_endpoint(gateway.url))
        await office.put(a_delivery())
        held = START + timedelta(seconds=7)
        row = office.journal.disk.deliveries["msg_1"]
        office.journal.disk.deliveries["msg_1"] = replace(
            row, status=DeliveryStatus.CLAIMED, claimed_until=held, attempts=1
        )
        async with running(office):
            await asyncio.sleep(0.01)
            while_held = len(gateway.requests)
            office.clock.forward(8)
            await confirmed(office)

    assert while_held == 0


async def test_an_outbox_that_failed_is_asked_often_until_it_works(
    quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of_worker, "QUIET_POLL_SECONDS", 0.2)
    async with a_gateway(http(200, APPLIED)) as gateway:
        office = Post(an_endpoint(gateway.url))
        office.journal.disk.full = True
        async with running(office) as looks:
            await asyncio.sleep(0.15)
            asked = looks[0]
            office.journal.disk.full = False
            await office.put(a_delivery())
            await confirmed(office)

    assert asked > 20
