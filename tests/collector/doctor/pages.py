"""A server on the loopback with one page and, where given, the engine's own answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from email.utils import format_datetime

from tests.collector.sources.servers import NOW, serving


@asynccontextmanager
async def an_engine(
    page: bytes, answers: Mapping[str, object] | None = None, *, ahead_seconds: float = 0.0
) -> AsyncIterator[str]:
    """Serve `page` at /metrics and `answers` at their paths; yields the address."""
    known = answers or {}

    async def answer(writer: asyncio.StreamWriter) -> None:
        path = server.requests[-1].split(b" ")[1].decode()
        found = path == "/metrics" or path in known
        body = page if path == "/metrics" else json.dumps(known.get(path)).encode()
        date = format_datetime(NOW + timedelta(seconds=ahead_seconds), usegmt=True)
        head = (
            f"HTTP/1.1 {'200 OK' if found else '404 Not Found'}\r\nDate: {date}\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        writer.write(head.encode() + body)
        await writer.drain()

    async with serving(answer) as server:
        yield server.url
