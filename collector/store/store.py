"""The store of the process: one writer thread, a few readers, and the journal on top."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Concatenate, Final, ParamSpec, TypeVar

import msgspec
from sqlalchemy import URL, Engine
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from collector.store.journal import StoreJournal
from collector.store.migration import check
from collector.store.session import (
    READERS,
    StoreError,
    database_file,
    dispose,
    explain,
    make_reader,
    make_writer,
    parse_url,
    shown,
)

P = ParamSpec("P")
T = TypeVar("T")
MAX_WAITING: Final = 64  # writes of observations that may wait; control state always may


class Store:
    """Everything durable, from the event loop: `write` and `read` run functions on a `Session`.

    Each call is one transaction. All writes go through one thread, in their order; a cancelled
    call still finishes there. `refused` counts writes that found the queue full.
    """

    def __init__(
        self, url: URL, writer: Engine, reader: Engine, now: Callable[[], datetime]
    ) -> None:
        self.url = url
        self.refused = 0
        self._writer = writer
        self._reader = reader
        self._waiting = 0
        self._closed = False
        self._writing = ThreadPoolExecutor(1, thread_name_prefix="store-writer")
        in_memory = reader is writer
        self._reading = (
            self._writing
            if in_memory  # one connection, so one thread
            else ThreadPoolExecutor(READERS, thread_name_prefix="store-reader")
        )
        self.journal = StoreJournal(self, now=now)

    @classmethod
    async def open(cls, url: str, *, now: Callable[[], datetime]) -> Store:
        """Open the store; an empty database gets the schema of this build.

        Args:
            url: `sqlite:///PATH` or `postgresql://…`.
            now: The clock, aware UTC.

        Raises:
            StoreError: If it cannot be opened, or its schema is of another version.
        """
        parsed = parse_url(url)
        writer = make_writer(parsed)
        server = parsed.drivername != "sqlite"
        reader = make_reader(parsed) if server or database_file(parsed) is not None else writer
        try:
            await asyncio.to_thread(check, writer)
        except StoreError:
            dispose(writer, reader)
            raise
        return cls(parsed, writer, reader, now)

    async def write(
        self, work: Callable[Concatenate[Session, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run `work(session, …)` in one transaction of the writer; for observations.

        Raises:
            StoreError: If it failed (nothing was written), or too many writes wait already.
        """
        if self._waiting >= MAX_WAITING:
            self.refused += 1
            msg = (
                f"store {shown(self.url)}: {self._waiting} writes are waiting, no more is taken; "
                "the database is too slow or locked"
            )
            raise StoreError(msg)
        return await self.control(work, *args, **kwargs)

    async def control(
        self, work: Callable[Concatenate[Session, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run `work(session, …)` in one transaction of the writer, however many wait.

        Raises:
            StoreError: If it failed. Nothing was written, unless the connection was lost while it
                committed: then nobody knows, and the same write must be safe to do again.
        """
        self._waiting += 1
        return await self._run(
            self._writing,
            lambda: self._transaction(self._writer, work, *args, **kwargs),
            done=self._one_less,
        )

    async def read(
        self, work: Callable[Concatenate[Session, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run `work(session, …)` on one state of the database, beside the writer.

        Raises:
            StoreError: If it failed.
        """
        return await self._run(
            self._reading, lambda: self._transaction(self._reader, work, *args, **kwargs)
        )

    async def _run(
        self,
        threads: ThreadPoolExecutor,
        call: Callable[[], T],
        *,
        done: Callable[[object], None] | None = None,
    ) -> T:
        if self._closed:
            msg = f"store {shown(self.url)}: it is closed; nothing is read or written any more"
            raise StoreError(msg)
        running = asyncio.get_running_loop().run_in_executor(threads, call)
        if done is not None:
            running.add_done_callback(done)
        return await asyncio.shield(running)  # whoever waits may go; the transaction stays whole

    def _one_less(self, _: object) -> None:
        self._waiting -= 1

    def _transaction(
        self,
        engine: Engine,
        work: Callable[Concatenate[Session, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        try:
            with Session(engine, expire_on_commit=False) as session, session.begin():
                return work(session, *args, **kwargs)
        except (SQLAlchemyError, msgspec.MsgspecError) as error:
            msg = f"store {shown(self.url)}: {explain(error)}"
            raise StoreError(msg) from error

    async def close(self) -> None:
        """Finish what is being written and close every connection."""
        self._closed = True
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._writing.shutdown()
        self._reading.shutdown()
        dispose(self._writer, self._reader)
