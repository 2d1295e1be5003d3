"""A real PostgreSQL for tests: Debian's package, on a socket in a folder of its own."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg

from tests.parts import need_program

INSTALL = "apt-get install -y --no-install-recommends postgresql"
_SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",  # the machine does not lose power during a test
    "shared_buffers": "16MB",
    "max_connections": "40",
    "logging_collector": "off",
}


@dataclass(frozen=True, slots=True)
class Server:
    """A running server: connect as `fusewire` through the socket in `folder`."""

    folder: Path
    pid: int

    def url(self, database: str) -> str:
        return f"postgresql://fusewire@/{database}?host={self.folder}"

    def execute(self, statement: str, database: str = "postgres") -> None:
        """Run one statement outside a transaction."""
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            connection.execute(statement.encode())


def binaries() -> Path:
    """Return the folder of PostgreSQL's programs; Debian keeps it off PATH."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=_version)
    return found[-1].parent if found else Path(need_program("postgres", install=INSTALL)).parent


def _version(program: Path) -> float:
    return float(program.parts[-3])


@contextmanager
def running() -> Iterator[Server]:
    """Make a cluster, run it, and end it (by its pid) with its folder."""
    programs = binaries()
    folder = Path(tempfile.mkdtemp(prefix="fusewire-pg-"))  # short: a socket's path is bounded
    owner = _owner(folder)
    data = folder / "data"
    try:
        _run([str(programs / "initdb"), "-D", str(data), "-U", "fusewire", *_QUICK], owner, folder)
        with start(programs, folder, owner) as server:
            yield server
    finally:
        shutil.rmtree(folder, ignore_errors=True)


_QUICK = ("-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync")


@contextmanager
def start(programs: Path, folder: Path, owner: str | None) -> Iterator[Server]:
    """Run the server of the cluster in `folder`."""
    settings = [f"--{name}={value}" for name, value in _SETTINGS.items()]
    command = [str(programs / "postgres"), "-D", str(folder / "data"), "-k", str(folder), *settings]
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen(
            command,
            stdout=log,
            stderr=log,
            user=owner,
            group=owner,
            extra_groups=[] if owner else None,
        ) as process,
    ):
        try:
            _wait(folder, process)
            yield Server(folder, process.pid)
        finally:
            process.send_signal(signal.SIGINT)  # its fast shutdown
            process.wait(timeout=20)


def _owner(folder: Path) -> str | None:
    """Give the folder to the user postgres when we are root, which the server refuses to be."""
    if os.geteuid() != 0:
        return None
    user = pwd.getpwnam("postgres")
    os.chown(folder, user.pw_uid, user.pw_gid)
    return "postgres"


def _run(command: list[str], owner: str | None, folder: Path) -> None:
    done = subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        user=owner,
        group=owner,
        extra_groups=[] if owner else None,
    )
    assert done.returncode == 0, done.stderr


def _wait(folder: Path, process: subprocess.Popen[bytes]) -> None:
    server = Server(folder, process.pid)
    for _ in range(200):
        assert process.poll() is None, (folder / "log").read_text()
        try:
            server.execute("SELECT 1")
        except psycopg.OperationalError:
            time.sleep(0.05)
        else:
            return
    message = (folder / "log").read_text()
    raise AssertionError(message)
