"""One kept connection a target: the HTTP client's way to a fleet, where its own pool is too slow.

httpx's pool looks at every open connection for every request, and asks each one's socket whether it
is still good: 20 ms of a core per scrape at 1,000 targets (docs/adr/0003). Here a connection is
found by its address, and the event loop itself tells when its server closes it.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from typing import Final, TypeAlias

import h11
import httpx2

from collector.sources.wire import Wire, next_event, send_request

MOST_CONNECTIONS: Final = 2000
IDLE_SECONDS: Final = 90.0  # over most scrape intervals; servers that close sooner are noticed
SURE_SECONDS: Final = 1.0  # unused for longer, a server may be closing it: uvicorn does after 5 s
_EYEBALLS_SECONDS: Final = 0.25
_PORTS: Final = {b"http": 80, b"https": 443}

Address: TypeAlias = tuple[bytes, bytes, int]


class KeptConnections(httpx2.AsyncBaseTransport):
    """Sends a client's requests, HTTP/1.1 over TCP or TLS, and keeps what can be used again."""

    def __init__(
        self,
        *,
        monotonic: Callable[[], float],
        most: int = MOST_CONNECTIONS,
        idle_seconds: float = IDLE_SECONDS,
        trusted: ssl.SSLContext | None = None,
    ) -> None:
        """Make a transport.

        Args:
            monotonic: The clock of intervals, s.
            most: Requests under way at a time, and connections kept for later; more wait.
            idle_seconds: For how long an unused connection is kept.
            trusted: What certificates are checked against, by default those of httpx2.
        """
        self._monotonic = monotonic
        self._most = most
        self._idle_seconds = idle_seconds
        self._trusted = trusted
        self._room = asyncio.Semaphore(most)
        self._idle: OrderedDict[Wire, Address] = OrderedDict()  # the longest unused first
        self._of: dict[Address, list[Wire]] = {}
        self._closed = False

    @property
    def idle(self) -> int:
        """Connections that are kept and not in use."""
        return len(self._idle)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send `request`, on a connection that is kept for its address or on a new one.

        Raises:
            httpx2.TransportError: If there is no answer, or none that can be read.
        """
        address = _address(request.url)
        limits = request.extensions.get("timeout") or {}
        try:
            async with asyncio.timeout(limits.get("pool")):
                await self._room.acquire()
        except TimeoutError as error:
            raise httpx2.PoolTimeout(str(error)) from error
        try:
            return await self._answer(request, address)
        except BaseException:
            self._room.release()
            raise

    async def aclose(self) -> None:
        """Close what is kept, and from now on whatever is done with."""
        self._closed = True
        for wire in list(self._idle):
            self._drop(wire)

    async def _answer(self, request: httpx2.Request, address: Address) -> httpx2.Response:
        again = request.method == "GET"  # else the server may have acted on it before it closed
        wire = self._kept(address) if again or self._sure(address) else None
        if wire is not None:
            try:
                return await self._exchange(wire, request, address)
            except (httpx2.ReadError, httpx2.RemoteProtocolError):
                if not again:
                    raise
        return await self._exchange(await self._connect(address, request), request, address)

    async def _exchange(
        self, wire: Wire, request: httpx2.Request, address: Address
    ) -> httpx2.Response:
        """Send a request and read the head of its answer; its body is read as it is asked for."""
        talk = h11.Connection(h11.CLIENT)
        wire.asked = True
        wire.patience_seconds = (request.extensions.get("timeout") or {}).get("read")
        try:
            await send_request(wire, talk, request)
            event = await _head(wire, talk)
        except BaseException:
            wire.close()
            raise
        return httpx2.Response(
            event.status_code,
            headers=event.headers.raw_items(),
            stream=_Body(self, wire, talk, address),
            extensions={
                "http_version": b"HTTP/" + event.http_version,
                "reason_phrase": event.reason,
            },
        )

    async def _connect(self, address: Address, request: httpx2.Request) -> Wire:
        scheme, host, port = address
        limits = request.extensions.get("timeout") or {}
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(limits.get("connect")):
                _, wire = await loop.create_connection(
                    Wire,
                    host.decode("ascii"),
                    port,
                    ssl=self._context() if scheme == b"https" else None,
                    happy_eyeballs_delay=_EYEBALLS_SECONDS,
                )
        except TimeoutError as error:
            raise httpx2.ConnectTimeout(str(error)) from error
        except ssl.SSLCertVerificationError as error:
            msg = f"its certificate is refused: {error.verify_message}"
            raise httpx2.ConnectError(msg) from error
        except ssl.SSLError as error:
            msg = f"no TLS with it: {error.reason or error}; is http:// meant?"
            raise httpx2.ConnectError(msg) from error
        except OSError as error:
            raise httpx2.ConnectError(str(error)) from error
        return wire

    def _context(self) -> ssl.SSLContext:
        if self._trusted is None:
            self._trusted = httpx2.create_ssl_context(trust_env=False)
        return self._trusted

    def _sure(self, address: Address) -> bool:
        """Whether the newest kept connection was in use just now."""
        wires = self._of.get(address, [])
        return bool(wires) and self._monotonic() - wires[-1].idle_since <= SURE_SECONDS

    def _kept(self, address: Address) -> Wire | None:
        """Return a connection to `address` that can be used again, if there is one."""
        wires = self._of.get(address, [])
        found: Wire | None = None
        oldest = self._monotonic() - self._idle_seconds
        while wires and found is None:
            wire = wires[-1]
            if wire.fit and wire.idle_since >= oldest:
                found = wire
                self._forget(wire)
            else:
                self._drop(wire)
        return found

    def done(self, wire: Wire, talk: h11.Connection, address: Address) -> None:
        """Take back a connection after its answer, whole or not."""
        self._room.release()
        whole = talk.our_state is h11.DONE and talk.their_state is h11.DONE
        if self._closed or not (whole and wire.fit) or talk.trailing_data[0]:
            wire.close()
            return
        wire.asked = False
        wire.idle_since = self._monotonic()
        self._idle[wire] = address
        self._of.setdefault(address, []).append(wire)
        self._drop_old(wire.idle_since - self._idle_seconds)

    def _drop_old(self, oldest: float) -> None:
        while self._idle:
            wire = next(iter(self._idle))
            if wire.fit and wire.idle_since >= oldest and len(self._idle) <= self._most:
                return
            self._drop(wire)

    def _drop(self, wire: Wire) -> None:
        self._forget(wire)
        wire.close()

    def _forget(self, wire: Wire) -> None:
        address = self._idle.pop(wire)
        wires = self._of[address]
        wires.remove(wire)
        if not wires:
            del self._of[address]


class _Body(httpx2.AsyncByteStream):
    """The body of an answer, read as it is asked for."""

    def __init__(
        self, connections: KeptConnections, wire: Wire, talk: h11.Connection, address: Address
    ) -> None:
        self._connections = connections
        self._wire = wire
        self._talk = talk
        self._address = address
        self._open = True

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            event = await next_event(self._wire, self._talk)
            if isinstance(event, h11.Data):
                yield bytes(event.data)
            else:
                return

    async def aclose(self) -> None:
        if self._open:
            self._open = False
            self._connections.done(self._wire, self._talk, self._address)


async def _head(wire: Wire, talk: h11.Connection) -> h11.Response:
    event = await next_event(wire, talk)
    while isinstance(event, h11.InformationalResponse):
        event = await next_event(wire, talk)
    if not isinstance(event, h11.Response):
        msg = "the server ended the connection before an answer"
        raise httpx2.RemoteProtocolError(msg)
    return event


def _address(url: httpx2.URL) -> Address:
    scheme = url.raw_scheme
    if scheme not in _PORTS or not url.raw_host:
        msg = f"a request to a url of scheme {url.scheme[:20]!r}, expected http or https"
        raise httpx2.UnsupportedProtocol(msg)
    return scheme, url.raw_host, url.port or _PORTS[scheme]
