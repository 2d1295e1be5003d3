"""What `/proc` says of processes: who is whose child, who listens where, who has a GPU open.

Every function takes the root of the file system it reads (`/proc`), answers with what it can see,
and counts what it may not look into. Processes come and go while this is read: what is gone by the
time it is looked at is not there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MAX_ANCESTORS: Final = 64
_LISTEN: Final = "0A"
_FIRST_PID_NAMESPACE: Final = "pid:[4026531836]"  # PROC_PID_INIT_INO of the kernel
_FIELDS_AFTER_NAME: Final = 20


@dataclass(frozen=True, slots=True)
class ProcessFacts:
    """One process; `started` is in clock ticks since boot and tells reused pids apart."""

    pid: int
    parent: int
    started: int
    name: str


@dataclass(frozen=True, slots=True)
class Listeners:
    """Who listens on a port, and how many processes could not be looked into."""

    pids: frozenset[int]
    listening: bool
    denied: int


def process_facts(proc: Path, pid: int) -> ProcessFacts | None:
    """Return what `/proc/PID/stat` says; None if there is no such process."""
    try:
        text = (proc / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    head, _, rest = text.rpartition(")")  # a name may hold blanks and brackets
    fields = rest.split()
    if len(fields) < _FIELDS_AFTER_NAME:
        return None
    return ProcessFacts(pid, int(fields[1]), int(fields[19]), head.partition("(")[2][:64])


def ancestry(proc: Path, pid: int) -> Iterator[ProcessFacts]:
    """Yield a process, its parent, and so on up to the first process."""
    for _ in range(MAX_ANCESTORS):
        facts = process_facts(proc, pid)
        if facts is None:
            return
        yield facts
        pid = facts.parent
        if pid <= 0:
            return


def command_line(proc: Path, pid: int) -> str:
    """Return the command line, parts joined by blanks; empty if it cannot be read."""
    try:
        data = (proc / str(pid) / "cmdline").read_bytes()
    except OSError:
        return ""
    return data[:4096].replace(b"\0", b" ").decode(errors="replace").strip()


def foreign_namespace(proc: Path) -> bool:
    """Whether this process lives in a pid namespace of its own, as in a container."""
    try:
        return str((proc / "self" / "ns" / "pid").readlink()) != _FIRST_PID_NAMESPACE
    except OSError:
        return True


def holds_gpu(proc: Path, pid: int) -> bool:
    """Whether the process is seen to have a device file of the driver open."""
    with contextlib.suppress(OSError):
        return any("/nvidia" in target for target in _open_files(proc, pid))
    return False


def listeners(proc: Path, port: int) -> Listeners:
    """Return the processes that hold a socket which listens on TCP `port`."""
    sockets = {f"socket:[{inode}]" for inode in _listening(proc, port)}
    if not sockets:
        return Listeners(frozenset(), listening=False, denied=0)
    pids, denied = set(), 0
    for entry in proc.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if any(target in sockets for target in _open_files(proc, int(entry.name))):
                pids.add(int(entry.name))
        except PermissionError:
            denied += 1
        except OSError:
            continue  # it has ended
    return Listeners(frozenset(pids), listening=True, denied=denied)


def _open_files(proc: Path, pid: int) -> Iterator[str]:
    for link in (proc / str(pid) / "fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            yield str(link.readlink())


def _listening(proc: Path, port: int) -> Iterator[str]:
    """Yield the inodes of sockets that listen on `port`, of both families."""
    for table in ("tcp", "tcp6"):
        try:
            lines = (proc / "net" / table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if len(fields) > 9 and fields[3] == _LISTEN:  # noqa: PLR2004  # the column of the inode
                _, _, number = fields[1].rpartition(":")
                if int(number, 16) == port:
                    yield fields[9]
