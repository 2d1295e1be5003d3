"""The store as a whole: opening, errors, the one writer, recovery."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session

from alerts.breaker.records import Breaker, Key
from collector.store import breakers
from collector.store.migration import migrate
from collector.store.session import StoreError
from collector.store.store import MAX_WAITING, Store
from tests.collector.store.conftest import Clock

pytestmark = pytest.mark.anyio


def keys(session: Session) -> list[Key]:
    return [breaker.key for breaker in breakers.known(session)]


async def test_what_was_written_is_read_by_the_next_process(url: str, clock: Clock) -> None:
    first = await Store.open(url, now=clock)
    await first.write(breakers.put, Breaker(Key("chat", "a"), seq=3))
    await first.close()

    second = await Store.open(url, now=clock)
    found = await second.read(breakers.known)
    await second.close()

    assert found == [Breaker(Key("chat", "a"), seq=3)]


async def test_a_failed_write_leaves_nothing_behind(store: Store) -> None:
    def half(session: Session) -> None:
        breakers.put(session, Breaker(Key("chat")))
        session.flush()
        session.execute(text("SELECT nonsense"))

    with pytest.raises(StoreError, match="nonsense"):
        await store.write(half)

    assert await store.read(keys) == []


async def test_a_reader_cannot_write(store: Store) -> None:
    with pytest.raises(StoreError, match=r"readonly|read-only"):
        await store.read(breakers.put, Breaker(Key("chat")))

    assert await store.read(keys) == []


async def test_a_read_goes_on_while_a_write_is_under_way(store: Store) -> None:
    under_way, may_end = threading.Event(), threading.Event()

    def slow(session: Session) -> None:
        breakers.put(session, Breaker(Key("chat")))
        session.flush()
        under_way.set()
        may_end.wait(5)

    writing = asyncio.create_task(store.write(slow))
    await asyncio.to_thread(under_way.wait, 5)
    during = await store.read(keys)
    may_end.set()
    await writing

    assert (during, await store.read(keys)) == ([], [Key("chat")])


async def test_a_write_whose_caller_left_is_still_whole(store: Store) -> None:
    under_way, may_end = threading.Event(), threading.Event()

    def slow(session: Session) -> None:
        under_way.set()
        may_end.wait(5)
        breakers.put(session, Breaker(Key("chat")))

    writing = asyncio.create_task(store.write(slow))
    await asyncio.to_thread(under_way.wait, 5)
    writing.cancel()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await writing
    await store.write(breakers.put, Breaker(Key("code")))  # after it, in the one thread

    assert await store.read(keys) == [Key("chat"), Key("code")]


async def test_too_many_waiting_writes_are_refused_and_counted(sqlite_store: Store) -> None:
    may_end = threading.Event()

    def slow(session: Session) -> None:
        may_end.wait(5)

    waiting = [asyncio.create_task(sqlite_store.write(slow)) for _ in range(MAX_WAITING)]
    await asyncio.sleep(0)
    with pytest.raises(StoreError, match="64 writes are waiting"):
        await sqlite_store.write(keys)
    deciding = asyncio.create_task(sqlite_store.control(keys))
    may_end.set()
    await asyncio.gather(*waiting)

    assert sqlite_store.refused == 1
    assert await deciding == []
    assert await sqlite_store.write(keys) == []


async def test_a_closed_store_says_so(sqlite_url: str, clock: Clock) -> None:
    store = await Store.open(sqlite_url, now=clock)
    await store.close()

    with pytest.raises(StoreError, match="it is closed"):
        await store.read(keys)


async def test_a_store_in_memory_works_like_the_others(clock: Clock) -> None:
    store = await Store.open("sqlite://", now=clock)
    await store.write(breakers.put, Breaker(Key("chat")))

    assert await store.read(keys) == [Key("chat")]
    await store.close()


async def test_the_schema_of_another_release_is_refused(sqlite_url: str, clock: Clock) -> None:
    migrate(sqlite_url)
    _set_version(sqlite_url, "0000")

    with pytest.raises(StoreError, match="made by a newer release"):
        await Store.open(sqlite_url, now=clock)


async def test_a_file_that_is_no_database_is_refused(tmp_path: Path, clock: Clock) -> None:
    (tmp_path / "text.db").write_text("this is a text, long enough to be no header " * 40)

    with pytest.raises(StoreError, match="file is not a database"):
        await Store.open(f"sqlite:///{tmp_path}/text.db", now=clock)


async def test_a_server_that_is_not_there_is_said_without_the_password(clock: Clock) -> None:
    with pytest.raises(StoreError, match=r"me:\*\*\*@127.0.0.1:1/x.*cannot be opened") as caught:
        await Store.open("postgresql://me:sesame@127.0.0.1:1/x", now=clock)

    assert "sesame" not in str(caught.value)


async def test_commits_are_synced_and_readers_do_not_block(sqlite_store: Store) -> None:
    def settings(session: Session) -> tuple[object, ...]:
        names = ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        return tuple(session.scalar(text(f"PRAGMA {name}")) for name in names)

    assert await sqlite_store.write(settings) == ("wal", 2, 1, 5000)


def _set_version(url: str, version: str) -> None:
    connection = sqlite3.connect(url.removeprefix("sqlite:///"))
    connection.execute("UPDATE alembic_version SET version_num = ?", (version,))
    connection.commit()
    connection.close()
