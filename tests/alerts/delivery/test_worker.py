"""The worker against real servers that hang, break, redirect, or answer what they like."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from random import Random
from typing import Any

import pytest

from alerts.breaker.records import Breaker, Delivery, DeliveryStatus, Entry, Key
from alerts.delivery.egress import Rules
from alerts.delivery.endpoint import Endpoint
from alerts.delivery.signing import Signed, secret, verified
from alerts.delivery.worker import DeliveryWorker, a_client
from tests.alerts.breaker.scene import START, Clock
from tests.alerts.memory_journal import MemoryJournal

SECRETS = (secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", where="test"),)
KEY = Key("chat", "a")
APPLIED = json.dumps({"applied": True, "epoch": 1, "seq": 1}).encode()


@dataclass(frozen=True)
class Request:
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Gateway:
    """A server that answers with the raw bytes it was given, in turn; b"" means: never."""

    answers: list[bytes]
    requests: list[Request] = field(default_factory=list)
    url: str = ""
    answered: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        lines = (line.split(": ", 1) for line in head[1:] if line)
        headers = {name.lower(): value for name, value in lines}
        body = await reader.readexactly(int(headers["content-length"]))
        self.requests.append(Request(head[0].split(" ")[1], headers, body))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer:
            writer.write(answer)
            await writer.drain()
        else:
            await self.answered.wait()
        writer.close()


def http(status: int, body: bytes = b"", *lines: str) -> bytes:
    head = [f"HTTP/1.1 {status} X", f"content-length: {len(body)}", "connection: close", *lines]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


@asynccontextmanager
async def a_gateway(*answers: bytes) -> AsyncIterator[Gateway]:
    gateway = Gateway(list(answers))
    server = await asyncio.start_server(gateway.serve, "127.0.0.1", 0)
    gateway.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hooks/fusewire"
    try:
        yield gateway
    finally:
        gateway.answered.set()
        server.close()
        await server.wait_closed()


async def loopback(_name: str, _port: int) -> Sequence[str]:
    return ["127.0.0.1"]


def an_endpoint(
    url: str, *, allow: tuple[str, ...] = ("127.0.0.0/8", "::1/128"), name: str = "gw"
) -> Endpoint:
    rules = Rules(insecure_http=True, allow=allow)
    return Endpoint(name, url, SECRETS, rules=rules, timeout_seconds=0.2)


def a_delivery(seq: int = 1, *, name: str = "msg_1", target: str = "a") -> Delivery:
    until = START + timedelta(seconds=60)
    key = Key("chat", target)
    return Delivery(name, "gw", key, 1, seq, b'{"seq":%d}' % seq, START, START, until)


@dataclass
class Post:
    """An outbox, a worker, and a clock."""

    endpoint: Endpoint
    others: Mapping[str, Endpoint] = field(default_factory=dict)
    journal: MemoryJournal = field(default_factory=MemoryJournal)
    clock: Clock = field(default_factory=Clock)
    resolve: Callable[[str, int], Awaitable[Sequence[str]]] = loopback

    def __post_init__(self) -> None:
        self.client = a_client()
        self.worker = DeliveryWorker(
            self.journal,
            {"gw": self.endpoint, **self.others},
            client=self.client,
            now=self.clock,
            rng=Random(1),
            resolve=self.resolve,
        )

    async def put(self, *deliveries: Delivery) -> None:
        for row in deliveries:
            entry = Entry(Breaker(row.key, epoch=row.epoch, seq=row.seq), None, (row,))
            await self.journal.record([entry])

    async def send(self) -> int:
        started = await self.worker.send_due()
        await self.worker.drain()
        return started

    def row(self, name: str = "msg_1") -> Delivery:
        return self.journal.disk.deliveries[name]


@pytest.fixture
async def post() -> AsyncIterator[Callable[..., Post]]:
    posts: list[Post] = []

    def make(endpoint: Endpoint, **settings: Any) -> Post:
        posts.append(Post(endpoint, **settings))
        return posts[-1]

    yield make
    for one in posts:
        await one.client.aclose()


@pytest.mark.anyio
async def test_what_is_sent_is_signed_and_its_confirmation_settles_it(post) -> None:
    async with a_gateway(http(200, APPLIED)) as gateway:
        office = post(an_endpoint(gateway.url))
        await office.put(a_delivery())

        await office.send()

        (request,) = gateway.requests
        names = ("webhook-id", "webhook-timestamp", "webhook-signature")
        signed = Signed(*(request.headers[name] for name in names))
        assert (request.path, request.body) == ("/hooks/fusewire", b'{"seq":1}')
        assert signed.message_id == "msg_1"
        assert verified(SECRETS, signed, request.body, now=START)
        assert office.row().status is DeliveryStatus.CONFIRMED
        assert office.worker.health()["gw"].attempts == {"confirmed": 1}


@pytest.mark.anyio
async def test_a_500_is_tried_again_with_the_same_id_until_it_is_confirmed(post) -> None:
    async with a_gateway(http(500), http(200, APPLIED)) as gateway:
        office = post(an_endpoint(gateway.url))
        await office.put(a_delivery())

        await office.send()
        failed = office.row()
        office.clock.forward(0.7)
        await office.send()

        assert failed.status is DeliveryStatus.PENDING
        assert timedelta(seconds=0.4) <= failed.due_at - START <= timedelta(seconds=0.6)
        assert "500" in failed.problem
        assert [request.headers["webhook-id"] for request in gateway.requests] == ["msg_1"] * 2
        assert office.row().status is DeliveryStatus.CONFIRMED


@pytest.mark.anyio
async def test_a_gateway_that_hangs_costs_its_timeout_and_is_tried_again(post) -> None:
    async with a_gateway(b"") as gateway:
        office = post(an_endpoint(gateway.url))
        await office.put(a_delivery())

        await office.send()

        assert office.row().status is DeliveryStatus.PENDING
        assert "no answer within 0.2 s" in office.row().problem


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (b"\x00\xff garbage\r\n\r\n", DeliveryStatus.PENDING),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nshort", DeliveryStatus.PENDING),
        (http(200, b"<html>hello</html>"), DeliveryStatus.DELIVERED),
        (http(200, b"x" * 300_000), DeliveryStatus.DELIVERED),
        (http(204), DeliveryStatus.DELIVERED),
        (http(409, b'{"current":{"epoch":1,"seq":9}}'), DeliveryStatus.SUPERSEDED),
        (http(409, b'{"current":{"epoch":2,"seq":1}}'), DeliveryStatus.DEAD),
        (http(401), DeliveryStatus.DEAD),
    ],
    ids=["garbage", "truncated", "html", "huge", "empty", "newer", "deposed", "refused"],
)
async def test_any_answer_settles_the_delivery(post, answer: bytes, status: DeliveryStatus) -> None:
    async with a_gateway(answer) as gateway:
        office = post(an_endpoint(gateway.url))
        await office.put(a_delivery())

        await office.send()

        assert office.row().status is status


@pytest.mark.anyio
async def test_a_redirect_is_not_followed(post) -> None:
    async with a_gateway(http(200, APPLIED)) as elsewhere:
        moved = http(307, b"", f"location: {elsewhere.url}")
        async with a_gateway(moved) as gateway:
            office = post(an_endpoint(gateway.url))
            await office.put(a_delivery())

            await office.send()

        assert elsewhere.requests == []
        assert "redirect" in office.row().problem
        assert office.row().status is DeliveryStatus.DEAD


@pytest.mark.anyio
async def test_a_place_that_is_not_allowed_is_never_connected_to(post) -> None:
    async with a_gateway(http(200, APPLIED)) as gateway:
        office = post(an_endpoint(gateway.url, allow=()))
        await office.put(a_delivery())

        await office.send()

        assert gateway.requests == []
        assert office.row().status is DeliveryStatus.DEAD
        assert "allow" in office.row().problem


@pytest.mark.anyio
async def test_nothing_is_sent_once_the_lease_in_it_has_ended(post) -> None:
    async with a_gateway(http(200, APPLIED)) as gateway:
        office = post(an_endpoint(gateway.url))
        await office.put(a_delivery())
        office.clock.forward(60)

        await office.send()

        assert gateway.requests == []
        assert office.row().status is DeliveryStatus.SUPERSEDED


@pytest.mark.anyio
async def test_of_one_breaker_only_one_message_is_on_the_wire(post) -> None:
    async with a_gateway(b"") as gateway:
        office = post(replace(an_endpoint(gateway.url), timeout_seconds=5))
        await office.put(a_delivery(), a_delivery(name="msg_b", target="b"))
        await office.worker.send_due()
        while len(gateway.requests) < 2:  # noqa: ASYNC110  # the server has no event for it
            await asyncio.sleep(0.001)

        await office.put(a_delivery(2, name="msg_2"))
        again = await office.worker.send_due()
        gateway.answers[:] = [http(200, APPLIED.replace(b'"seq": 1', b'"seq": 2'))]
        gateway.answered.set()
        await office.worker.drain()
        office.clock.forward(1)
        await office.send()

        assert again == 0
        of_a = [r.headers["webhook-id"] for r in gateway.requests]
        assert [name for name in of_a if name != "msg_b"] == ["msg_1", "msg_2"]
        assert office.row("msg_1").status is DeliveryStatus.SUPERSEDED
        assert office.row("msg_2").status is DeliveryStatus.CONFIRMED


@pytest.mark.anyio
async def test_the_age_of_what_no_gateway_confirmed_is_known(post) -> None:
    async with a_gateway(http(202)) as gateway:
        office = post(an_endpoint(gateway.url))
        await office.put(a_delivery())
        await office.send()

        office.clock.forward(31)
        waiting = office.worker.health()["gw"]
        office.clock.forward(30)
        ended = office.worker.health()["gw"]

        assert (waiting.oldest_pending_seconds, waiting.oldest_unconfirmed_seconds) == (0, 31)
        assert ended.oldest_unconfirmed_seconds == 0


@pytest.mark.anyio
async def test_a_gateway_that_fails_on_and_on_is_tried_every_fifteen_seconds(post) -> None:
    async with a_gateway(http(500)) as gateway:
        office = post(an_endpoint(gateway.url))
        await office.put(a_delivery())

        for _ in range(5):
            await office.send()
            office.clock.at = office.row().due_at
        last = office.row()

        assert office.worker.health()["gw"].failures == 5
        assert last.attempts == 5
        await office.send()
        assert office.row().due_at - office.clock.at >= timedelta(seconds=12)


@pytest.mark.anyio
async def test_a_full_disk_and_an_unknown_endpoint_do_not_stop_the_worker(post) -> None:
    office = post(an_endpoint("http://127.0.0.1:1/"))
    await office.put(replace(a_delivery(), endpoint="gone"))

    office.journal.disk.full = True
    while_full = await office.send()
    office.journal.disk.full = False
    await office.send()

    assert while_full == 0
    assert office.row().status is DeliveryStatus.DEAD
    assert "no such webhook" in office.row().problem


@pytest.mark.anyio
async def test_it_runs_until_it_is_cancelled_and_wakes_at_once(post) -> None:
    async with a_gateway(http(200, APPLIED)) as gateway:
        office = post(an_endpoint(gateway.url))
        running = asyncio.create_task(office.worker.run())
        await office.put(a_delivery())
        office.worker.wake()
        while office.row().status is not DeliveryStatus.CONFIRMED:  # noqa: ASYNC110  # a row
            await asyncio.sleep(0.001)

        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
