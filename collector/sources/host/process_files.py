"""Reads processes from `/proc`: which one is meant, what it and its children hold in memory.

Command lines are compared and never told: they may hold secrets.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from collector.sources.host.cgroup_files import MOST_DIGITS, HostError, read_text
from collector.sources.host.proc import command_line, listeners, process_facts

MOST_PROCESSES: Final = 65_536  # looked at in one read
_KIB: Final = 1024


@dataclass(frozen=True, slots=True)
class ProcessMemory:
    """Memory of one process in bytes; `anon` and `swap` are None where the kernel is too old."""

    rss: float
    anon: float | None
    swap: float | None


@dataclass(frozen=True, slots=True)
class ProcessTree:
    """Some processes together, children included; `start` tells one life of the first of them."""

    pid: int
    start: int
    count: int
    memory: ProcessMemory


def pid_in_file(root: Path, path: Path) -> int:
    """Return the number in a pid file.

    Raises:
        HostError: If the file cannot be read or does not begin with a number.
    """
    file = root / str(path).lstrip("/")
    text = read_text(file, what="pid file").split()
    if not text or not text[0].isdecimal() or int(text[0]) == 0:
        msg = f"pid file {file}: expected the number of a process"
        raise HostError(msg)
    return int(text[0])


def pids_by_command(
    root: Path, pattern: re.Pattern[str], *, but: Collection[int] = ()
) -> list[int]:
    """Return the processes whose command line, arguments joined by blanks, has the pattern."""
    proc = root / "proc"
    return [
        pid for pid in _pids(root) if pid not in but and pattern.search(command_line(proc, pid))
    ]


def pids_by_port(root: Path, port: int) -> list[int]:
    """Return the processes that listen on a TCP port.

    Raises:
        HostError: If nothing listens there, or nothing that may be seen.
    """
    found = listeners(root / "proc", port)
    if not found.listening:
        msg = f"no process listens on port {port}"
        raise HostError(msg)
    if not found.pids:
        msg = (
            f"port {port} is listened on by a process of another user, whose files may not be "
            "seen; run as the same user, or use `pid_file` or `command`"
        )
        raise HostError(msg)
    return sorted(found.pids)


def process_tree(root: Path, pids: Collection[int], *, children: bool) -> ProcessTree | None:
    """Add up some processes, with their children if wanted; None if all of them are gone.

    Of the first its resident memory counts, of the others only what is anonymous: what they share
    with it (libraries, the page cache) is there once.
    """
    parents = _parents(root)
    first = _oldest(root, pids, parents)
    if first is None:
        return None
    chosen = _with_children(pids, parents) if children else set(pids)
    main = process_memory(root, first[1])
    if main is None:
        return None
    others = [process_memory(root, pid) for pid in sorted(chosen - {first[1]})]
    there = [it for it in others if it is not None]
    memory = ProcessMemory(
        rss=main.rss + sum(it.rss if it.anon is None else it.anon for it in there),
        anon=_sum(main.anon, *(it.anon for it in there)),
        swap=_sum(main.swap, *(it.swap for it in there)),
    )
    return ProcessTree(first[1], first[0], 1 + len(there), memory)


def process_memory(root: Path, pid: int) -> ProcessMemory | None:
    """Return what a process holds; None if it is gone."""
    try:
        text = read_text(root / "proc" / str(pid) / "status", what=f"process {pid}")
    except HostError:
        return None
    lines = (line.partition(":") for line in text.splitlines())
    found = {name: rest.split() for name, _, rest in lines}
    rss = _kilobytes(found, "VmRSS")
    if rss is None:  # a zombie holds nothing
        rss = 0.0
    return ProcessMemory(rss, _kilobytes(found, "RssAnon"), _kilobytes(found, "VmSwap"))


def _oldest(
    root: Path, pids: Collection[int], parents: Mapping[int, int]
) -> tuple[int, int] | None:
    """Return (start, pid) of the first of `pids` that has no parent among them."""
    tops = [pid for pid in pids if parents.get(pid) not in pids]
    found = (process_facts(root / "proc", pid) for pid in tops)
    return min(((it.started, it.pid) for it in found if it is not None), default=None)


def _with_children(pids: Collection[int], parents: Mapping[int, int]) -> set[int]:
    below: dict[int, list[int]] = {}
    for pid, parent in parents.items():
        below.setdefault(parent, []).append(pid)
    chosen, waiting = set(pids), list(pids)
    while waiting:
        new = [pid for pid in below.get(waiting.pop(), ()) if pid not in chosen]
        chosen.update(new)
        waiting += new
    return chosen


def _parents(root: Path) -> Mapping[int, int]:
    found = (process_facts(root / "proc", pid) for pid in _pids(root))
    return {it.pid: it.parent for it in found if it is not None}


def _pids(root: Path) -> Iterator[int]:
    try:
        names = [path.name for path in (root / "proc").iterdir()]
    except OSError as error:
        msg = f"processes: {root / 'proc'}: {error.strerror or error}"
        raise HostError(msg) from error
    yield from sorted(int(name) for name in names if name.isdecimal())[:MOST_PROCESSES]


def _kilobytes(found: Mapping[str, list[str]], name: str) -> float | None:
    value = found.get(name)
    usable = value and value[0].isdecimal() and len(value[0]) <= MOST_DIGITS
    return float(value[0]) * _KIB if value and usable else None


def _sum(*numbers: float | None) -> float | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None
