"""Engines: one writing connection and a few reading ones, set up alike for both databases."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

from sqlalchemy import URL, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError, StatementError
from sqlalchemy.pool import QueuePool, StaticPool

BUSY_SECONDS: Final = 5
READERS: Final = 2
_SCHEMES: Final = {"postgres": "postgresql+psycopg", "postgresql": "postgresql+psycopg"}
_POSTGRES_OPTIONS: Final = " ".join(
    f"-c {setting}"
    for setting in (
        "timezone=UTC",
        "synchronous_commit=on",
        "statement_timeout=30s",
        f"lock_timeout={BUSY_SECONDS}s",
        "idle_in_transaction_session_timeout=60s",
    )
)


class StoreError(Exception):
    """The store could not be opened, read or written; the message says where and why."""


class _Cursor(Protocol):
    def execute(self, statement: str) -> object: ...

    def fetchone(self) -> tuple[object, ...] | None: ...

    def close(self) -> None: ...


class _Connection(Protocol):
    isolation_level: str | None

    def cursor(self) -> _Cursor: ...


def parse_url(url: str) -> URL:
    """Read the URL of a store.

    Raises:
        StoreError: If it is not a URL of SQLite or PostgreSQL.
    """
    expected = "expected sqlite:///PATH or postgresql://USER@HOST/NAME"
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        msg = f"store: the URL cannot be read; {expected}"
        raise StoreError(msg) from error
    parsed = parsed.set(drivername=_SCHEMES.get(parsed.drivername, parsed.drivername))
    if parsed.drivername not in {"sqlite", "postgresql+psycopg"}:
        msg = f"store: {parsed.drivername!r} is not a database that is known here; {expected}"
        raise StoreError(msg)
    return parsed


def shown(url: URL) -> str:
    """Return the URL for messages, password hidden."""
    return url.render_as_string(hide_password=True)


def database_file(url: URL) -> Path | None:
    """Return the file of an SQLite store, or None if it lives in memory or on a server."""
    in_memory = url.database in {None, "", ":memory:"}
    return None if url.drivername != "sqlite" or in_memory else Path(str(url.database))


def make_writer(url: URL) -> Engine:
    """Return the engine of the one writer: its transactions hold the write lock from the start."""
    if url.drivername == "sqlite":
        return _sqlite(url, begin="BEGIN IMMEDIATE", connections=1)
    return _postgres(url, isolation="READ COMMITTED", connections=1, settings=_POSTGRES_OPTIONS)


def make_reader(url: URL) -> Engine:
    """Return the engine of readers: each transaction sees one state and cannot write."""
    if url.drivername == "sqlite":
        return _sqlite(url, begin="BEGIN", connections=READERS, settings="PRAGMA query_only=ON")
    options = f"{_POSTGRES_OPTIONS} -c default_transaction_read_only=on"
    return _postgres(url, isolation="REPEATABLE READ", connections=READERS, settings=options)


def explain(error: Exception) -> str:
    """Say in one line what the database said, without statement and values."""
    cause = error.orig if isinstance(error, StatementError) and error.orig is not None else error
    lines = str(cause).strip().splitlines() or [type(cause).__name__]
    return lines[0]


def _sqlite(url: URL, *, begin: str, connections: int, settings: str = "") -> Engine:
    path = database_file(url)
    if path is not None and not path.absolute().parent.is_dir():
        msg = f"store {path}: the folder {path.absolute().parent} does not exist; make it first"
        raise StoreError(msg)
    if path is None:  # one connection, or each would have a database of its own
        arguments = {"check_same_thread": False}
        engine = create_engine(
            url, poolclass=StaticPool, connect_args=arguments, hide_parameters=True
        )
    else:
        engine = create_engine(
            url,
            poolclass=QueuePool,
            pool_size=connections,
            max_overflow=0,
            connect_args={"timeout": BUSY_SECONDS, "check_same_thread": False},
            hide_parameters=True,
        )

    @event.listens_for(engine, "connect")
    def set_up(connection: _Connection, record: object) -> None:
        del record
        connection.isolation_level = None  # the driver begins nothing by itself: `begin` does
        _set_up_sqlite(connection, path, settings)

    @event.listens_for(engine, "begin")
    def begin_transaction(connection: object) -> None:
        connection.exec_driver_sql(begin)  # type: ignore[attr-defined]  # an event argument has no type

    return engine


def _set_up_sqlite(connection: _Connection, path: Path | None, settings: str) -> None:
    cursor = connection.cursor()
    try:
        cursor.execute(f"PRAGMA busy_timeout={BUSY_SECONDS * 1000}")  # first: WAL needs a lock
        cursor.execute("PRAGMA journal_mode=WAL")
        found = (cursor.fetchone() or ("nothing",))[0]
        if path is not None and found != "wal":
            msg = (
                f"store {path}: SQLite uses journal mode {found!r} here, expected 'wal'; "
                "put the file on a local disk (WAL does not work on network file systems)"
            )
            raise StoreError(msg)
        cursor.execute("PRAGMA synchronous=FULL")  # a commit that returned survives power loss
        cursor.execute("PRAGMA foreign_keys=ON")
        cursor.execute("PRAGMA journal_size_limit=67108864")
        if settings:
            cursor.execute(settings)
    finally:
        cursor.close()


def _postgres(url: URL, *, isolation: str, connections: int, settings: str) -> Engine:
    arguments: dict[str, str | int] = {"connect_timeout": BUSY_SECONDS}
    if "options" not in url.query:
        arguments["options"] = settings
    return create_engine(
        url,
        pool_size=connections,
        max_overflow=0,
        pool_pre_ping=True,  # a server that was restarted costs one reconnect, not one decision
        pool_timeout=BUSY_SECONDS,
        isolation_level=isolation,
        connect_args=arguments,
        hide_parameters=True,
    )


def dispose(*engines: Engine) -> None:
    """Close the connections of engines; a connection that is already gone does not matter."""
    for engine in engines:
        with suppress(SQLAlchemyError):
            engine.dispose()
