"""A real HTTP server on the loopback that answers JSON by path, as engines do."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeAlias

import httpx2

from collector.sources.protocols import Place, Tools
from detectors.records import Identity, Reading
from tests.builders import a_reading

Reply: TypeAlias = tuple[int, bytes]
Route: TypeAlias = Callable[[bytes], Reply] | Reply | None  # None: the request is never answered
NOW = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
ANSWERS = Path(__file__).parents[2] / "fixtures" / "answers"


@dataclass
class EngineServer:
    """A running server; `routes` may be changed at any time, the rest is 404."""

    routes: dict[str, Route]
    url: str = ""
    asked: list[str] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    heads: list[str] = field(default_factory=list)
    at_once: int = 0
    most_at_once: int = 0


@asynccontextmanager
async def engine(routes: Mapping[str, Route]) -> AsyncIterator[EngineServer]:
    """Serve `routes` until the block ends."""
    server = EngineServer(dict(routes))
    writers: set[asyncio.StreamWriter] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.add(writer)
        server.at_once += 1
        server.most_at_once = max(server.most_at_once, server.at_once)
        try:
            await _answer(server, reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client left, as it may
        finally:
            server.at_once -= 1
            writers.discard(writer)
            writer.close()

    listener = await asyncio.start_server(handle, "127.0.0.1", 0)
    host, port = listener.sockets[0].getsockname()[:2]
    server.url = f"http://{host}:{port}"
    try:
        yield server
    finally:
        listener.close()
        for writer in writers:
            writer.close()


async def _answer(
    server: EngineServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    length = re.search(r"content-length: (\d+)", head, flags=re.IGNORECASE)
    body = await reader.readexactly(int(length.group(1))) if length else b""
    path = head.split(" ", 2)[1]
    server.asked.append(path)
    server.bodies.append(body)
    server.heads.append(head)
    route = server.routes.get(path, (404, b'{"detail":"Not Found"}'))
    if route is None:
        await asyncio.sleep(30)
        return
    status, answer = route(body) if callable(route) else route
    writer.write(
        f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(answer)}\r\nConnection: close\r\n\r\n".encode()
    )
    writer.write(answer)
    await writer.drain()


def recorded(name: str) -> Reply:
    """Return a recorded answer of `tests/fixtures/answers`, status 200."""
    return 200, (ANSWERS / name).read_bytes()


def said(body: object, status: int = 200) -> Reply:
    """Return an answer of ours."""
    return status, json.dumps(body).encode()


@dataclass
class Clock:
    """Intervals that tests move by hand."""

    seconds: float = 1000.0

    def __call__(self) -> float:
        return self.seconds


def tools(client: httpx2.AsyncClient, clock: Clock | None = None) -> Tools:
    """Return the tools of a source with clocks of ours."""
    return Tools(client, lambda: NOW, clock or Clock())


def place(url: str, headers: Mapping[str, str] | None = None) -> Place:
    """Return target `a` of tier `chat` at `url`."""
    return Place("chat", "a", url, headers={} if headers is None else headers)


def a_scrape(
    values: Mapping[str, float] | None = None,
    *,
    engine: str = "vllm",
    version: str = "0.32.0",
    model: str = "tiny",
    problem: str = "",
) -> Reading:
    """Return a scrape of a target that has room, unless `values` say otherwise."""
    calm = {"requests_waiting": 0.0, "kv_cache_usage_ratio": 0.25, "requests_running": 1.0}
    reading = a_reading({} if problem else {**calm, **(values or {})}, problem=problem)
    return replace(reading, identity=Identity(engine, version, model))
