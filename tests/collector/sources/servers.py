"""Real HTTP servers on the loopback that misbehave in one way each."""

from __future__ import annotations

import asyncio
import gzip
import ssl
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from time import monotonic
from typing import TypeAlias

import httpx2

from collector.sources.fetch import FetchLimits
from collector.sources.scrape import ScrapeSource, ScrapeTarget

Answer: TypeAlias = Callable[[asyncio.StreamWriter], Awaitable[None]]
NOW = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
PAGE = b"# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running 3.0\n"


class Server:
    """What a running server knows: where it is and what it was asked."""

    def __init__(self) -> None:
        self.url = ""
        self.requests: list[bytes] = []


@asynccontextmanager
async def serving(answer: Answer, tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    """Run a server that reads a request and then does what `answer` does."""
    server = Server()
    open_writers: set[asyncio.StreamWriter] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_writers.add(writer)
        try:
            server.requests.append(await reader.readuntil(b"\r\n\r\n"))
            await answer(writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client left, as it may
        finally:
            open_writers.discard(writer)
            writer.close()

    listener = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=tls)
    host, port = listener.sockets[0].getsockname()[:2]
    server.url = f"http://{host}:{port}"
    try:
        yield server
    finally:
        listener.close()
        for writer in open_writers:
            writer.close()


def text(body: bytes, *, status: str = "200 OK", headers: str = "", length: int = -1) -> Answer:
    """Answer with a body; `length` states another content length than the true one."""
    stated = len(body) if length < 0 else length
    head = f"HTTP/1.1 {status}\r\nContent-Length: {stated}\r\nConnection: close\r\n{headers}\r\n"

    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(head.encode() + body)
        await writer.drain()

    return answer


def zipped(body: bytes, *, keep: int | None = None) -> Answer:
    """Answer in gzip, cut after `keep` bytes."""
    packed = gzip.compress(body)[:keep]
    return text(packed, headers="Content-Encoding: gzip\r\n")


def bomb(size: int) -> Answer:
    """Answer with a small gzip that unpacks to `size` bytes."""
    packer = zlib.compressobj(9, wbits=31)
    block = b"# " + b"x" * 1_048_574
    packed = b"".join(packer.compress(block) for _ in range(size // len(block) + 1))
    return text(packed + packer.flush(), headers="Content-Encoding: gzip\r\n")


def endless(total: int) -> Answer:
    """Answer with `total` bytes of a page, without saying how many."""

    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
        block = PAGE * 4_000
        for _ in range(total // len(block) + 1):
            writer.write(block)
            await writer.drain()

    return answer


async def silence(writer: asyncio.StreamWriter) -> None:
    """Take the request and say nothing."""
    await asyncio.sleep(30)


async def dripping(writer: asyncio.StreamWriter) -> None:
    """Send one byte now and then: no single wait is long, the whole never ends."""
    writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
    while True:
        writer.write(b"#")
        await writer.drain()
        await asyncio.sleep(0.01)


async def hanging_up(writer: asyncio.StreamWriter) -> None:
    """Take the request and close."""


async def garbage(writer: asyncio.StreamWriter) -> None:
    """Speak something that is not HTTP."""
    writer.write(b"\x15\x03\x01\x00\x02\x02\x50 hello\r\n\r\n")
    await writer.drain()


def a_source(
    url: str,
    client: httpx2.AsyncClient,
    *,
    timeout_seconds: float = 5.0,
    max_bytes: int = 33_554_432,
    target: str = "a",
) -> ScrapeSource:
    """Return a source of tier `chat` with real clocks for intervals and a fixed date."""
    return ScrapeSource(
        ScrapeTarget(tier="chat", id=target, url=url),
        client=client,
        now=lambda: NOW,
        monotonic=monotonic,
        limits=FetchLimits(timeout_seconds=timeout_seconds, max_bytes=max_bytes),
    )
