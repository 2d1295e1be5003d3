"""Redis streams and lists, asked in Redis' own protocol (RESP 2) over one short connection."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from collector.sources.fetch import FetchError, Outcome
from collector.sources.neighbours.asked import said
from collector.sources.neighbours.waiting import Depth, missing

DEFAULT_PORT: Final = 6379
MAX_BULK_BYTES: Final = 65_536
MAX_ITEMS: Final = 10_000
MAX_BYTES: Final = 1_048_576  # of one connection; a thousand groups of a stream are that
_ITEM_BYTES: Final = 64  # that an item of a reply costs at least, in memory and in time
_MAX_DEPTH: Final = 8
_NUMBERS_END: Final = 1 << 64
_HINT: Final = "check the url, that Redis runs, and its user's rights (XLEN, LLEN, TYPE, XINFO)"

Reply: TypeAlias = "str | int | list[Reply] | None"


@dataclass(frozen=True, slots=True)
class RedisAddress:
    """Where a Redis is and who asks; empty user and password ask as nobody."""

    host: str
    port: int = DEFAULT_PORT
    database: int = 0
    tls: bool = False
    username: str = ""
    password: str = field(default="", repr=False)

    @classmethod
    def parse(cls, url: str, login: tuple[str, str] = ("", "")) -> RedisAddress | None:
        """Read `redis[s]://host[:port][/database]`; None if it is no such address."""
        parts = urlsplit(url)
        database = parts.path.removeprefix("/") or "0"
        if parts.scheme not in {"redis", "rediss"} or not parts.hostname:
            return None
        if not (database.isascii() and database.isdigit()):
            return None
        tls = parts.scheme == "rediss"
        return cls(parts.hostname, parts.port or DEFAULT_PORT, int(database), tls, *login)


async def redis_depth(address: RedisAddress, key: str, group: str) -> Depth:
    """Ask what waits in a stream for a group (the slowest if none is named), or in a list.

    Raises:
        FetchError: If Redis cannot be reached, or does not allow or understand the question.
    """
    async with _connected(address) as wire:
        kind = await wire.ask("TYPE", key)
        if kind == "none":
            return missing("stream or list", key)
        if kind == "list":
            return Depth(_count(await wire.ask("LLEN", key)))
        if kind != "stream":
            text = f"{key!r} is a {kind} in Redis; expected a stream or a list"
            raise FetchError(Outcome.UNUSABLE, text)
        length = _count(await wire.ask("XLEN", key))
        groups = await wire.ask("XINFO", "GROUPS", key)
    return stream_depth(length, [_facts(it) for it in _items(groups)], group)


def stream_depth(length: float, groups: Sequence[Mapping[str, Reply]], group: str) -> Depth:
    """Return the depth of a stream of `length` entries with these groups (`XINFO GROUPS`)."""
    if group:
        groups = [it for it in groups if it.get("name") == group]
        if not groups:
            return missing("consumer group", group)
    if not groups:  # nobody consumes: all that is stored waits
        return Depth(length)
    sizes = [_unfinished(it) for it in groups]
    known = [size for size in sizes if size is not None]
    if len(known) == len(sizes):
        return Depth(max(known))
    text = (
        "Redis does not know the lag of a group (before 7.0, or after entries were deleted); the "
        "length of the stream is taken, which counts entries that were read as well"
    )
    return Depth(length, remarks=(("queue_lag_unknown", text),))


def _unfinished(group: Mapping[str, Reply]) -> float | None:
    """Return the entries that a group has not read, or has read and not acknowledged."""
    lag, pending = group.get("lag"), group.get("pending")
    if not isinstance(lag, int) or not isinstance(pending, int):
        return None
    return float(max(lag, 0) + max(pending, 0))


def _facts(flat: Reply) -> dict[str, Reply]:
    """Return the pairs of a flat reply: name, value, name, value."""
    items = _items(flat)
    return {str(name): value for name, value in zip(items[::2], items[1::2], strict=False)}


def _items(reply: Reply) -> list[Reply]:
    return reply if isinstance(reply, list) else []


def _count(reply: Reply) -> float:
    if not isinstance(reply, int):
        raise FetchError(Outcome.UNUSABLE, f"Redis answered no number; {_HINT}")
    return float(reply)


@asynccontextmanager
async def _connected(address: RedisAddress) -> AsyncIterator[_Wire]:
    """Connect and log in; the connection is closed at the end."""
    tls = True if address.tls else None
    try:
        reader, writer = await asyncio.open_connection(address.host, address.port, ssl=tls)
    except OSError as error:
        raise FetchError(Outcome.CONNECTION, f"cannot connect: {said(error)}") from error
    wire = _Wire(reader, writer)
    try:
        if address.password:
            names = (address.username,) if address.username else ()
            await wire.ask("AUTH", *names, address.password)
        if address.database:
            await wire.ask("SELECT", str(address.database))
        yield wire
    except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError) as error:
        text = f"the connection broke, or it is no Redis: {said(error)}; {_HINT}"
        raise FetchError(Outcome.CONNECTION, text) from error
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


@dataclass(slots=True)
class _Wire:
    """One connection: a command goes out as an array of bulk strings, a reply is read."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    left_bytes: int = MAX_BYTES

    async def ask(self, *words: str) -> Reply:
        """Send one command and return its reply.

        Raises:
            FetchError: If Redis answers with an error.
            ValueError: If what comes is no RESP, or beyond the bounds.
            OSError: If the connection breaks (`IncompleteReadError` if it ends early).
        """
        pieces = [b"*%d\r\n" % len(words)]
        for word in words:
            data = word.encode()
            pieces.append(b"$%d\r\n%s\r\n" % (len(data), data))
        self.writer.writelines(pieces)
        await self.writer.drain()
        return await self._reply(0)

    async def _reply(self, depth: int) -> Reply:
        line = await self.reader.readuntil(b"\r\n")
        self._spend(len(line) + _ITEM_BYTES)
        sign, rest = line[:1], line[1:-2].decode("utf-8", "replace")
        if sign == b"+":
            return rest
        if sign == b"-":
            code = rest.partition(" ")[0][:40]  # what follows may repeat what was sent
            raise FetchError(Outcome.UNUSABLE, f"Redis answered the error {code!r}; {_HINT}")
        number = int(rest)
        if abs(number) >= _NUMBERS_END:
            msg = "a number of more than 64 bits in a reply"
            raise ValueError(msg)
        if sign == b":":
            return number
        if sign == b"$":
            return await self._bulk(number)
        if sign != b"*" or number > MAX_ITEMS or depth > _MAX_DEPTH:
            msg = "a reply that is no RESP 2, or too large"
            raise ValueError(msg)
        return None if number < 0 else [await self._reply(depth + 1) for _ in range(number)]

    async def _bulk(self, size: int) -> str | None:
        if size < 0:
            return None
        if size > MAX_BULK_BYTES:
            msg = f"a string of {size:,} bytes in a reply, at most {MAX_BULK_BYTES:,} are read"
            raise ValueError(msg)
        self._spend(size)
        data = await self.reader.readexactly(size + 2)
        return data[:-2].decode("utf-8", "replace")

    def _spend(self, size: int) -> None:
        self.left_bytes -= size
        if self.left_bytes < 0:
            msg = f"replies of over {MAX_BYTES:,} bytes"
            raise ValueError(msg)
