"""The controller lock: only one `serve` decides on a store.

SQLite: an flock on a file beside the database, which the OS frees when its holder dies.
PostgreSQL: a lease in the controller row, on the clock of the database. A store in memory belongs
to its process and needs none.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import IO, Final, Protocol
from weakref import WeakMethod

import msgspec
from sqlalchemy import func, literal_column, or_, update
from sqlalchemy.orm import Session

from collector.store.control import controller
from collector.store.models import ControllerRow
from collector.store.session import database_file, shown
from collector.store.store import Store

LEASE_SECONDS: Final = 15.0


class ControllerLockedError(Exception):
    """Another process decides on this store; the message says which and what to do."""


class ControllerLock(Protocol):
    """A lock that is held."""

    async def renew(self) -> bool:
        """Hold it for longer; False means that it is lost and this process must stop deciding.

        Due at least every third of `LEASE_SECONDS`.

        Raises:
            StoreError: If the database does not answer; the lease then runs out by itself.
        """
        ...

    async def release(self) -> None:
        """Let another process have it at once."""
        ...


class _Holder(msgspec.Struct, frozen=True):
    pid: int
    started_at: datetime


async def take_lock(store: Store, *, pid: int, now: Callable[[], datetime]) -> ControllerLock:
    """Become the one controller of the store, or fail at once.

    Raises:
        ControllerLockedError: If another process is.
        StoreError: If the database does not answer.
    """
    if store.url.drivername != "sqlite":
        lease = await store.control(_acquire, pid=pid, started_at=now(), place=shown(store.url))
        return LeaseLock(store, lease)
    path = database_file(store.url)
    return NoLock() if path is None else FileLock(path, pid=pid, started_at=now())


class NoLock:
    """The lock of a store in memory: nobody else can reach it."""

    async def renew(self) -> bool:
        return True

    async def release(self) -> None:
        return None


class FileLock:
    """An flock on `DATABASE.lock`; the file stays, only the lock on it counts.

    Children that are forked give up their copy of the descriptor, so that a worker which outlives
    a killed parent does not keep the lock.
    """

    def __init__(self, database: Path, *, pid: int, started_at: datetime) -> None:
        real = database.resolve()  # one lock, whichever way the file is reached
        path = real.with_name(real.name + ".lock")
        try:
            self._file: IO[bytes] = path.open("a+b")
        except OSError as error:
            msg = f"lock {path}: cannot be opened: {error.strerror}; make it writable"
            raise ControllerLockedError(msg) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            with self._file:
                message = _refusal(str(database), _holder(self._file))
            raise ControllerLockedError(message) from error
        self._file.truncate(0)
        self._file.write(msgspec.json.encode(_Holder(pid, started_at)))
        self._file.flush()
        _close_in_children(WeakMethod(self._let_go))

    async def renew(self) -> bool:
        return not self._file.closed

    async def release(self) -> None:
        self._let_go()

    def _let_go(self) -> None:
        self._file.close()


def _close_in_children(method: WeakMethod[Callable[[], None]]) -> None:
    def close() -> None:
        let_go = method()
        if let_go is not None:
            let_go()

    os.register_at_fork(after_in_child=close)


def _holder(file: IO[bytes]) -> str:
    """Say who holds the lock, from what it wrote into the file."""
    file.seek(0)
    try:
        found = msgspec.json.decode(file.read(4096), type=_Holder)
    except msgspec.MsgspecError:
        return "a process that did not write its name"
    return f"process {found.pid}, started {found.started_at.isoformat(timespec='seconds')}"


def _refusal(place: str, holder: str) -> str:
    return (
        f"store {place}: in use by {holder}; only one 'fusewire serve' may decide on a store: "
        "stop that one, or give this one its own 'store'"
    )


class LeaseLock:
    """A lease in the controller row, renewed while `lease` is the newest one."""

    def __init__(self, store: Store, lease: int) -> None:
        self._store = store
        self._lease = lease

    async def renew(self) -> bool:
        return await self._store.control(_renew, self._lease)

    async def release(self) -> None:
        await self._store.control(_release, self._lease)


def _acquire(session: Session, *, pid: int, started_at: datetime, place: str) -> int:
    row = controller(session, locked=True)
    free = or_(
        ControllerRow.lease_expires_at.is_(None),
        ControllerRow.lease_expires_at < func.clock_timestamp(),
    )
    lease = row.lease_epoch + 1
    holder = f"process {pid}, started {started_at.isoformat(timespec='seconds')}"
    if not _set_lease(session, free, lease_epoch=lease, holder=holder):
        raise ControllerLockedError(_refusal(place, row.holder or "another process"))
    return lease


def _renew(session: Session, lease: int) -> bool:
    mine = ControllerRow.lease_epoch == lease
    return _set_lease(session, mine & (ControllerRow.lease_expires_at > func.clock_timestamp()))


def _set_lease(session: Session, condition: object, **values: object) -> bool:
    until = func.clock_timestamp() + literal_column(f"interval '{LEASE_SECONDS:g} seconds'")
    done = session.execute(
        update(ControllerRow)
        .where(condition)  # type: ignore[arg-type]  # any SQL condition
        .values(lease_expires_at=until, **values)
        .execution_options(synchronize_session=False)
    )
    return bool(done.rowcount)  # type: ignore[attr-defined]  # an update has one


def _release(session: Session, lease: int) -> None:
    session.execute(
        update(ControllerRow)
        .where(ControllerRow.lease_epoch == lease)
        .values(lease_expires_at=None)
        .execution_options(synchronize_session=False)
    )
