"""One connection of the HTTP client, and HTTP/1.1 over it as h11 understands it."""

from __future__ import annotations

import asyncio
from typing import Final

import h11
import httpx2

_PAUSE_BYTES: Final = 1 << 18  # unread; from here on the server waits


class Wire(asyncio.Protocol):
    """A connection as bytes to take; what comes unasked makes it unfit for use."""

    def __init__(self) -> None:
        self.fit = True
        self.asked = False
        self.idle_since = 0.0
        self.patience_seconds: float | None = None  # for more of an answer
        self._transport: asyncio.Transport | None = None
        self._unread: list[bytes] = []
        self._size = 0
        self._ended = False
        self._problem: Exception | None = None
        self._waiting: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if isinstance(transport, asyncio.Transport):
            self._transport = transport

    def data_received(self, data: bytes) -> None:
        self.fit = self.asked
        self._unread.append(data)
        self._size += len(data)
        if self._size > _PAUSE_BYTES and self._transport is not None:
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> None:
        self._end(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(exc)

    def _end(self, problem: Exception | None) -> None:
        self.fit = False
        self._ended = True
        self._problem = self._problem or problem
        self._wake()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def take(self) -> bytes:
        """Return what has come, at least one byte; nothing at the end.

        Raises:
            httpx2.ReadError: If the connection broke.
            httpx2.ReadTimeout: If nothing came within the patience of the request.
        """
        if not self._unread and not self._ended:
            await self._wait()
        if not self._unread:
            if self._problem is not None:
                raise httpx2.ReadError(str(self._problem)) from self._problem
            return b""
        data = b"".join(self._unread)
        self._unread.clear()
        if self._size > _PAUSE_BYTES and self._transport is not None and not self._ended:
            self._transport.resume_reading()
        self._size = 0
        return data

    async def _wait(self) -> None:
        self._waiting = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(self.patience_seconds):
                await self._waiting
        except TimeoutError as error:
            raise httpx2.ReadTimeout(str(error)) from error

    def send(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def close(self) -> None:
        self.fit = False
        if self._transport is not None:
            self._transport.abort()


async def send_request(wire: Wire, talk: h11.Connection, request: httpx2.Request) -> None:
    """Send a whole request.

    Raises:
        httpx2.LocalProtocolError: If it is none that HTTP allows.
    """
    try:
        head = h11.Request(
            method=request.method, target=request.url.raw_path, headers=request.headers.raw
        )
        pieces = [talk.send(head)]
        body = await request.aread()
        if body:
            pieces.append(talk.send(h11.Data(data=body)))
        pieces.append(talk.send(h11.EndOfMessage()))
    except h11.LocalProtocolError as error:
        raise httpx2.LocalProtocolError(str(error)) from error
    wire.send(b"".join(piece for piece in pieces if piece))


async def next_event(wire: Wire, talk: h11.Connection) -> h11.Event | None:
    """Return the next part of the answer, None where it does not go on as HTTP (101).

    Raises:
        httpx2.TransportError: If the connection broke, or what came is no HTTP.
    """
    while True:
        try:
            event = talk.next_event()
            if event is h11.PAUSED:
                return None
            if isinstance(event, h11.Event):
                return event
            talk.receive_data(await wire.take())
        except h11.RemoteProtocolError as error:
            raise httpx2.RemoteProtocolError(str(error)) from error
