"""Only one process decides on a store; a dead one gives it up at once, or when its lease ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session

from collector.store.lock import ControllerLockedError, take_lock
from collector.store.store import Store
from tests.collector.store.conftest import Clock

pytestmark = pytest.mark.anyio

HOLDER = """
import asyncio, os, sys, time
from datetime import UTC, datetime
from collector.store.lock import take_lock
from collector.store.store import Store

def now():
    return datetime.fromtimestamp(1_764_417_600, UTC)

async def hold():
    store = await Store.open(sys.argv[1], now=now)
    lock = await take_lock(store, pid=os.getpid(), now=now)
    if "fork" in sys.argv:
        child = os.fork()
        if child == 0:
            time.sleep(60)
        print(child, end=" ")
    print("held", flush=True)
    time.sleep(60)
    await lock.release()

asyncio.run(hold())
"""


@contextmanager
def a_holder(url: str, *more: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run a process that holds the lock; yields it with what it said; killed at the end."""
    command = [sys.executable, "-c", HOLDER, url, *more]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3]
    ) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        try:
            yield process, said
        finally:
            process.kill()


async def test_a_second_one_is_refused_with_the_holder_and_what_to_do(
    store: Store, url: str, clock: Clock
) -> None:
    lock = await take_lock(store, pid=4711, now=clock)
    other = await Store.open(url, now=clock)

    with pytest.raises(ControllerLockedError) as caught:
        await take_lock(other, pid=4712, now=clock)

    message = str(caught.value)
    assert "in use by process 4711, started 2026-11-29T12:00:00+00:00" in message
    assert "stop that one, or give this one its own 'store'" in message
    await lock.release()
    await other.close()


async def test_a_released_lock_can_be_taken_at_once(store: Store, url: str, clock: Clock) -> None:
    lock = await take_lock(store, pid=1, now=clock)
    other = await Store.open(url, now=clock)
    held = await lock.renew()

    await lock.release()
    second = await take_lock(other, pid=2, now=clock)

    assert (held, await lock.renew(), await second.renew()) == (True, False, True)
    await second.release()
    await other.close()


async def test_a_store_in_memory_needs_no_lock(clock: Clock) -> None:
    store = await Store.open("sqlite://", now=clock)
    first = await take_lock(store, pid=1, now=clock)

    second = await take_lock(store, pid=2, now=clock)

    assert (await first.renew(), await second.renew()) == (True, True)
    await first.release()
    await store.close()


async def test_one_file_reached_in_two_ways_has_one_lock(
    sqlite_store: Store, folder: Path, clock: Clock
) -> None:
    (folder / "link.db").symlink_to(folder / "store.db")
    other = await Store.open(f"sqlite:///{folder}/link.db", now=clock)
    lock = await take_lock(sqlite_store, pid=1, now=clock)

    with pytest.raises(ControllerLockedError):
        await take_lock(other, pid=2, now=clock)

    await lock.release()
    await other.close()


async def test_a_lock_file_that_cannot_be_made_is_said(
    sqlite_store: Store, folder: Path, clock: Clock
) -> None:
    (folder / "store.db.lock").mkdir()

    with pytest.raises(ControllerLockedError, match="cannot be opened: Is a directory"):
        await take_lock(sqlite_store, pid=1, now=clock)


async def test_a_holder_without_a_name_is_refused_all_the_same(
    sqlite_store: Store, sqlite_url: str, folder: Path, clock: Clock
) -> None:
    lock = await take_lock(sqlite_store, pid=1, now=clock)
    (folder / "store.db.lock").write_text("?")

    with pytest.raises(ControllerLockedError, match="a process that did not write its name"):
        await take_lock(sqlite_store, pid=2, now=clock)

    await lock.release()


@pytest.mark.slow
async def test_a_killed_holder_frees_the_file_at_once(
    sqlite_store: Store, sqlite_url: str, clock: Clock
) -> None:
    with a_holder(sqlite_url) as (process, said):
        assert said == "held\n"
        with pytest.raises(ControllerLockedError, match=f"in use by process {process.pid}, star"):
            await take_lock(sqlite_store, pid=2, now=clock)
        process.send_signal(signal.SIGKILL)
        process.wait(10)

        lock = await take_lock(sqlite_store, pid=2, now=clock)

    assert await lock.renew()
    await lock.release()


@pytest.mark.slow
async def test_a_worker_that_outlives_a_killed_parent_does_not_keep_the_lock(
    sqlite_store: Store, sqlite_url: str, clock: Clock
) -> None:
    with a_holder(sqlite_url, "fork") as (process, said):
        child = int(said.split()[0])
        process.send_signal(signal.SIGKILL)
        process.wait(10)
        try:
            os.kill(child, 0)  # it lives
            lock = await take_lock(sqlite_store, pid=2, now=clock)
        finally:
            os.kill(child, signal.SIGKILL)

    assert await lock.renew()
    await lock.release()


@pytest.mark.slow
async def test_a_killed_holder_frees_the_lease_when_it_ends(
    postgres_url: str, clock: Clock
) -> None:
    with a_holder(postgres_url) as (process, said):
        assert said == "held\n"
        process.send_signal(signal.SIGKILL)
        process.wait(10)
    store = await Store.open(postgres_url, now=clock)
    with pytest.raises(ControllerLockedError, match=f"in use by process {process.pid}, started"):
        await take_lock(store, pid=2, now=clock)

    await store.control(pass_time)
    lock = await take_lock(store, pid=2, now=clock)

    assert await lock.renew()
    await store.close()


@pytest.mark.slow
async def test_a_lease_that_ended_is_not_renewed(postgres_url: str, clock: Clock) -> None:
    store = await Store.open(postgres_url, now=clock)
    lock = await take_lock(store, pid=1, now=clock)
    still = await lock.renew()

    await store.control(pass_time)

    assert (still, await lock.renew()) == (True, False)
    await store.close()


@pytest.mark.slow
async def test_the_lease_runs_on_the_clock_of_the_database(postgres_url: str, clock: Clock) -> None:
    store = await Store.open(postgres_url, now=clock)
    clock.pass_(-10 * 365 * 86_400)
    lock = await take_lock(store, pid=1, now=clock)

    def left(session: Session) -> float:
        return float(
            session.scalar(
                text(
                    "SELECT extract(epoch FROM lease_expires_at - clock_timestamp())"
                    " FROM controller"
                )
            )
            or 0
        )

    assert 10 < await store.read(left) <= 15
    assert await lock.renew()
    await store.close()


def pass_time(session: Session) -> None:
    """Let the lease end now."""
    session.execute(text("UPDATE controller SET lease_expires_at = clock_timestamp()"))
    time.sleep(0.001)
