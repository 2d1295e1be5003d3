"""The plain client of the demo: what it sends, and what it counts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

import httpx2
import pytest

from collector.demo.client import Client, Counts, Upstream
from collector.demo.recorded import Exchange

pytestmark = pytest.mark.anyio

PLAIN = Exchange("plain", b'{"prompt": "plain"}', b"{}", "x")
BLOB = Exchange("blob", b'{"prompt": "blob"}', b"{}", "x")
SETS = {"a-baseline": [PLAIN], "b-json": [BLOB]}
Handler = Callable[[httpx2.Request], httpx2.Response]


def a_client(handler: Handler, clock: Callable[[], float] = lambda: 0.0) -> Client:
    return Client(
        httpx2.AsyncClient(transport=httpx2.MockTransport(handler)),
        url="http://gateway/v1/completions",
        upstreams=[Upstream("search", 10, "a-baseline"), Upstream("batch", 20, "a-baseline")],
        sets=SETS,
        rng=Random(1),
        monotonic=clock,
    )


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_answers_are_counted_by_what_became_of_them() -> None:
    answers = iter(
        [
            httpx2.Response(200),
            httpx2.Response(503, headers={"retry-after": "3"}),
            httpx2.Response(503),
            httpx2.Response(502),
        ]
    )

    def handler(request: httpx2.Request) -> httpx2.Response:
        try:
            return next(answers)
        except StopIteration:
            raise httpx2.ConnectError("refused", request=request) from None

    client = a_client(handler)
    client.send_due(0.2)
    await settle()

    assert client.totals == Counts(answered=1, shed=1, refused=2, failed=2)


async def test_requests_follow_the_rates_and_name_their_upstream() -> None:
    seen: list[str] = []

    def handler(request: httpx2.Request) -> httpx2.Response:
        seen.append(request.headers["x-upstream"])
        return httpx2.Response(200)

    client = a_client(handler)
    for _ in range(4):
        client.send_due(0.25)
        await settle()

    assert (seen.count("search"), seen.count("batch")) == (10, 20)


async def test_one_upstream_changes_its_prompts_and_the_other_does_not() -> None:
    seen: set[tuple[str, bytes]] = set()

    def handler(request: httpx2.Request) -> httpx2.Response:
        seen.add((request.headers["x-upstream"], request.content))
        return httpx2.Response(200)

    client = a_client(handler)
    client.send_prompts("batch", "b-json")
    client.send_due(0.5)
    await settle()

    assert seen == {("search", PLAIN.request), ("batch", BLOB.request)}


def test_an_unknown_set_of_prompts_is_refused() -> None:
    with pytest.raises(ValueError, match="expected one of"):
        a_client(lambda _: httpx2.Response(200)).send_prompts("batch", "z")


async def test_what_cannot_be_sent_for_all_are_busy_is_counted_and_not_queued() -> None:
    async def never(_request: httpx2.Request) -> httpx2.Response:
        await asyncio.Event().wait()
        return httpx2.Response(200)

    client = Client(
        httpx2.AsyncClient(transport=httpx2.MockTransport(never)),
        url="http://gateway/",
        upstreams=[Upstream("batch", 100, "a-baseline")],
        sets=SETS,
        rng=Random(1),
        monotonic=lambda: 0.0,
    )
    sending = asyncio.create_task(client.run())
    await settle()

    client.send_due(1.0)

    assert client.totals == Counts(skipped=36)
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending


async def test_each_second_has_a_row_of_its_own() -> None:
    now = 0.0

    async def sleep(seconds: float) -> None:
        nonlocal now
        now += 0.25
        await settle()
        if now > 2.4:
            raise asyncio.CancelledError

    client = a_client(lambda _: httpx2.Response(200), clock=lambda: now)
    with pytest.raises(asyncio.CancelledError):
        await client.run(sleep)
    await settle()

    assert [second for second, _ in client.by_second] == [0, 1]
    assert sum(counts.answered for _, counts in client.by_second) <= client.totals.answered
    assert client.last_second.answered == 30
