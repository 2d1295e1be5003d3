"""The same tests on both databases: `url` is a fresh store on SQLite, then on PostgreSQL."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from collector.store.migration import migrate
from collector.store.models import Base
from collector.store.store import Store
from tests.builders import START
from tests.collector.store.postgres import Server, running

_NUMBERS = count(1)
BOTH = ("sqlite", pytest.param("postgres", marks=pytest.mark.slow))


@dataclass
class Clock:
    """A clock that tests move by hand."""

    at: datetime = field(default=START)

    def __call__(self) -> datetime:
        return self.at

    def pass_(self, seconds: float) -> datetime:
        self.at += timedelta(seconds=seconds)
        return self.at


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """A PostgreSQL with the database `tests`, migrated."""
    with running() as server:
        server.execute("CREATE DATABASE tests")
        migrate(server.url("tests"))
        yield server


@pytest.fixture
def postgres_url(postgres: Server) -> Iterator[str]:
    """A migrated, empty database on PostgreSQL."""
    yield postgres.url("tests")
    postgres.execute(_END_OTHERS)
    postgres.execute("; ".join(_EMPTY), "tests")


_END_OTHERS = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'tests'"
_EMPTY = (  # TRUNCATE makes forty files anew, this none
    *(f"DELETE FROM {table}" for table in Base.metadata.tables),
    "ALTER SEQUENCE verdict_id_seq RESTART",
    "INSERT INTO controller VALUES (1, 0, 0, '', '', 0, NULL)",
)


@pytest.fixture
def empty_postgres_url(postgres: Server) -> Iterator[str]:
    """A database without any table on PostgreSQL."""
    name = f"empty_{next(_NUMBERS)}"
    postgres.execute(f"CREATE DATABASE {name}")
    yield postgres.url(name)
    postgres.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(scope="session")
def sqlite_model(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A migrated, empty SQLite file; tests copy it."""
    path = tmp_path_factory.mktemp("model") / "store.db"
    migrate(f"sqlite:///{path}")
    return path.read_bytes()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder for databases, in memory where there is one: these tests sync a lot."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with TemporaryDirectory(dir=memory, prefix="fusewire-") as made:
        yield Path(made)


@pytest.fixture
def sqlite_url(sqlite_model: bytes, folder: Path) -> str:
    """A migrated, empty database on SQLite."""
    (folder / "store.db").write_bytes(sqlite_model)
    return f"sqlite:///{folder}/store.db"


@pytest.fixture
def empty_sqlite_url(folder: Path) -> str:
    """A database on SQLite that does not exist yet."""
    return f"sqlite:///{folder}/empty.db"


@pytest.fixture(params=BOTH)
def empty_url(request: pytest.FixtureRequest) -> str:
    """A database without any table, on each in turn."""
    return str(request.getfixturevalue(f"empty_{request.param}_url"))


@pytest.fixture(params=BOTH)
def url(request: pytest.FixtureRequest) -> str:
    """A migrated, empty database, on each in turn."""
    return str(request.getfixturevalue(f"{request.param}_url"))


@pytest.fixture
async def store(anyio_backend: str, url: str, clock: Clock) -> AsyncIterator[Store]:
    """An open store on each database in turn."""
    opened = await Store.open(url, now=clock)
    yield opened
    await opened.close()


@pytest.fixture
async def sqlite_store(anyio_backend: str, sqlite_url: str, clock: Clock) -> AsyncIterator[Store]:
    opened = await Store.open(sqlite_url, now=clock)
    yield opened
    await opened.close()
