"""The fleet's HTTP connections: kept, found by address, and let go."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import httpx2
import pytest

from collector.sources.connections import KeptConnections

pytestmark = pytest.mark.anyio
PAGE = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\npage"


@dataclass
class Server:
    """A server whose answers a test writes byte for byte."""

    answer: bytes = PAGE
    close_after: int = 1_000_000
    connections: int = 0
    asked: list[bytes] = field(default_factory=list)
    writers: list[asyncio.StreamWriter] = field(default_factory=list)
    url: str = ""

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writers.append(writer)
        for _ in range(self.close_after):
            try:
                head = await reader.readuntil(b"\r\n\r\n")
            except asyncio.IncompleteReadError:
                break
            length = [line for line in head.lower().split(b"\r\n") if b"content-length" in line]
            body = await reader.readexactly(int(length[0].split(b":")[1])) if length else b""
            self.asked.append(head + body)
            writer.write(self.answer)
            await writer.drain()
        writer.close()


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    found = Server()
    listening = await asyncio.start_server(found.talk, "127.0.0.1", 0)
    found.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    yield found
    listening.close()
    for writer in found.writers:
        writer.close()
    await asyncio.sleep(0.01)


def connections(
    monotonic: Callable[[], float] = time.monotonic, *, most: int = 10
) -> KeptConnections:
    return KeptConnections(monotonic=monotonic, most=most, idle_seconds=60.0)


async def test_a_second_request_goes_over_the_same_connection(server: Server) -> None:
    kept = connections()

    async with httpx2.AsyncClient(transport=kept) as client:
        answers = [await client.get(server.url) for _ in range(3)]
        idle = kept.idle

    assert [answer.text for answer in answers] == ["page"] * 3
    assert server.connections == 1
    assert idle == 1
    assert kept.idle == 0  # closed with its client


async def test_requests_at_one_time_get_a_connection_each(server: Server) -> None:
    async with httpx2.AsyncClient(transport=connections()) as client:
        await asyncio.gather(*(client.get(server.url) for _ in range(3)))

    assert server.connections == 3


async def test_a_connection_that_its_server_closed_is_not_used_again(server: Server) -> None:
    server.close_after = 1

    async with httpx2.AsyncClient(transport=connections()) as client:
        first = await client.get(server.url)
        await asyncio.sleep(0.02)
        second = await client.get(server.url)
        third = await client.get(server.url)  # at once: the server's end may not have come yet

    assert (first.text, second.text, third.text) == ("page", "page", "page")
    assert server.connections == 3


async def test_what_cannot_be_sent_twice_goes_over_a_connection_that_is_surely_open(
    server: Server,
) -> None:
    clock = [0.0]
    async with httpx2.AsyncClient(transport=connections(lambda: clock[0])) as client:
        await client.get(server.url)
        clock[0] += 0.9
        await client.post(server.url, content=b"at once")
        of_both = server.connections
        clock[0] += 5.0  # in this moment uvicorn closes it
        await client.post(server.url, content=b"later")

    assert (of_both, server.connections) == (1, 2)


async def test_a_connection_whose_answer_ends_after_the_client_is_closed_is_not_kept(
    server: Server,
) -> None:
    kept = connections()
    async with httpx2.AsyncClient(transport=kept) as client:
        response = await kept.handle_async_request(client.build_request("GET", server.url))
    await response.aread()
    await response.aclose()

    assert kept.idle == 0


async def test_a_server_that_says_close_is_believed(server: Server) -> None:
    server.answer = PAGE.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n", 1)
    kept = connections()

    async with httpx2.AsyncClient(transport=kept) as client:
        await client.get(server.url)
        assert kept.idle == 0


async def test_what_comes_unasked_ends_a_connection(server: Server) -> None:
    kept = connections()

    async with httpx2.AsyncClient(transport=kept) as client:
        await client.get(server.url)
        server.writers[0].write(PAGE)
        await asyncio.sleep(0.02)
        server.answer = PAGE.replace(b"page", b"next")
        answer = await client.get(server.url)

    assert answer.text == "next"
    assert server.connections == 2


async def test_an_unused_connection_is_let_go_after_its_time(server: Server) -> None:
    moment = 0.0
    kept = connections(lambda: moment)

    async with httpx2.AsyncClient(transport=kept) as client:
        await client.get(server.url)
        moment = 61.0
        await client.get(server.url)

    assert server.connections == 2


async def test_a_chunked_answer_is_put_together(server: Server) -> None:
    server.answer = (
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nfir\r\n2\r\nst\r\n0\r\n\r\n"
    )

    async with httpx2.AsyncClient(transport=connections()) as client:
        answers = [(await client.get(server.url)).text for _ in range(2)]

    assert answers == ["first", "first"]
    assert server.connections == 1


async def test_a_body_is_sent_whole(server: Server) -> None:
    async with httpx2.AsyncClient(transport=connections()) as client:
        await client.post(server.url, content=b"query=up")

    assert server.asked[0].endswith(b"\r\n\r\nquery=up")


async def test_an_answer_that_is_no_http_is_told(server: Server) -> None:
    server.answer = b"SSH-2.0-OpenSSH\r\n\r\n"

    async with httpx2.AsyncClient(transport=connections()) as client:
        with pytest.raises(httpx2.RemoteProtocolError):
            await client.get(server.url)


async def test_a_body_that_ends_early_is_told(server: Server) -> None:
    server.answer = b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\npage"
    server.close_after = 1

    async with httpx2.AsyncClient(transport=connections()) as client:
        with pytest.raises(httpx2.RemoteProtocolError, match="without sending complete"):
            await client.get(server.url)


async def test_a_silent_server_costs_its_timeout(server: Server) -> None:
    server.answer = b""

    async with httpx2.AsyncClient(transport=connections(), timeout=0.05) as client:
        with pytest.raises(httpx2.ReadTimeout):
            await client.get(server.url)


async def test_nobody_there_is_a_connect_error(server: Server) -> None:
    async with httpx2.AsyncClient(transport=connections()) as client:
        with pytest.raises(httpx2.ConnectError):
            await client.get("http://127.0.0.1:1/metrics")


async def test_over_the_bound_requests_wait_for_room(server: Server) -> None:
    kept = connections(most=1)

    async with httpx2.AsyncClient(transport=kept, timeout=0.05) as client:
        async with client.stream("GET", server.url):
            with pytest.raises(httpx2.PoolTimeout):
                await client.get(server.url)
        answer = await client.get(server.url)

    assert answer.text == "page"


async def test_a_cancelled_request_gives_its_room_back(server: Server) -> None:
    kept = connections(most=1)
    server.answer = b""

    async with httpx2.AsyncClient(transport=kept) as client:
        task = asyncio.create_task(client.get(server.url))
        await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        server.answer = PAGE
        answer = await client.get(server.url)

    assert answer.text == "page"


async def test_another_scheme_is_refused() -> None:
    async with httpx2.AsyncClient(transport=connections()) as client:
        with pytest.raises(httpx2.UnsupportedProtocol, match="expected http or https"):
            await client.get("ftp://127.0.0.1/metrics")
