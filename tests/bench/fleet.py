"""Many engines in one process of its own: each has a port, and all serve one recorded page.

Asked about themselves they tell a version and a model; what else is asked they do not know.

Run as ``python -m tests.bench.fleet PAGE COUNT``; prints the ports as a JSON list, then serves
until its standard input is closed.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/plain; version=0.0.4; charset=utf-8\r\n"
    b"content-length: %d\r\n\r\n"
)


TOLD = {
    b"/version": b'{"version": "0.32.0"}',
    b"/v1/models": b'{"object": "list", "data": [{"id": "tiny", "max_model_len": 512}]}',
}
JSON = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
UNKNOWN = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"


class Engine(asyncio.Protocol):
    """Answers every request for its metrics with the same bytes, as cheaply as Python can."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer
        self._asked = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._asked += data
        while b"\r\n\r\n" in self._asked:
            head, self._asked = self._asked.split(b"\r\n\r\n", 1)
            path = head.split(b" ", 2)[1]
            told = TOLD.get(path)
            answer = self._answer if path == b"/metrics" else UNKNOWN
            if self._transport is not None:
                self._transport.write(answer if told is None else JSON % (len(told), told))


async def serve(page: bytes, count: int) -> None:
    loop = asyncio.get_running_loop()
    answer = HEAD % len(page) + page
    servers = [
        await loop.create_server(lambda: Engine(answer), "127.0.0.1", 0) for _ in range(count)
    ]
    ports = [server.sockets[0].getsockname()[1] for server in servers]
    sys.stdout.write(json.dumps(ports) + "\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]).read_bytes(), int(sys.argv[2])))
