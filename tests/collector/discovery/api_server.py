"""An API server on the loopback that answers as Kubernetes does: shapes of 1.31, by hand."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeAlias
from urllib.parse import parse_qs, urlsplit

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"


@dataclass
class ApiServer:
    """What it answers, by path, one page a list entry, and what it was asked."""

    pages: Mapping[str, list[Json]] = field(default_factory=dict)
    token: str = "kubelet-1"
    status: int = 200
    body: bytes | None = None
    url: str = ""
    asked: list[tuple[str, dict[str, list[str]]]] = field(default_factory=list)

    def answer(self, target: str, headers: str) -> tuple[int, bytes]:
        parts = urlsplit(target)
        query = parse_qs(parts.query)
        self.asked.append((parts.path, query))
        if f"authorization: bearer {self.token}" not in headers:
            return 401, b'{"kind":"Status","status":"Failure","code":401}'
        if self.status != 200 or self.body is not None:
            return self.status, self.body or b'{"kind":"Status","status":"Failure"}'
        pages = self.pages.get(parts.path)
        if pages is None:
            return 404, b'{"kind":"Status","status":"Failure","code":404}'
        number = int(query.get("continue", ["0"])[0])
        more = str(number + 1) if number + 1 < len(pages) else ""
        listed = {"kind": "List", "metadata": {"continue": more}, "items": pages[number]}
        return 200, json.dumps(listed).encode()


@asynccontextmanager
async def an_api_server(server: ApiServer) -> AsyncIterator[ApiServer]:
    """Run it; its `url` is set."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        status, body = server.answer(head.split(" ")[1], head.lower().replace("bearer", "bearer"))
        writer.write(
            f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode()
            + body
        )
        await writer.drain()
        writer.close()

    listener = await asyncio.start_server(handle, "127.0.0.1", 0)
    host, port = listener.sockets[0].getsockname()[:2]
    server.url = f"http://{host}:{port}"
    try:
        yield server
    finally:
        listener.close()
