"""Reads the memory of a control group from its files, version 1 or 2, and finds the group.

All paths are under a `root`, `/` on the machine itself: a service in a container may have the
host's `proc` and `sys` mounted elsewhere. Source of the names: the kernel's cgroup documentation.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MOST_DIGITS: Final = 20  # of a number of 64 bits
NO_LIMIT_FROM: Final = float(1 << 60)  # version 1 writes the largest page count for "no limit"
MOST_BYTES: Final = 65_536  # of one file read; memory.stat is about 1,500
_MOST_FOLDERS: Final = 20_000
_DEEPEST: Final = 32
_OCTAL: Final = re.compile(r"\\([0-7]{3})")


class HostError(Exception):
    """Something of this machine that cannot be read; the text is for people."""


@dataclass(frozen=True, slots=True)
class GroupMemory:
    """Memory of one control group in bytes; None where the kernel does not tell.

    `limit` is the smallest of the group's and its ancestors', None if there is none.
    `oom_kills` counts processes that the kernel killed in it.
    """

    usage: float
    inactive_file: float
    anon: float | None
    mapped: float
    swap: float | None
    limit: float | None
    oom_kills: float | None

    @property
    def working_set(self) -> float:
        """What cannot be dropped at once, and what the OOM killer goes by."""
        return max(self.usage - self.inactive_file, 0.0)


@dataclass(frozen=True, slots=True)
class _Mount:
    """Where the memory hierarchy is mounted, and which group of it the mount shows as its top."""

    place: Path
    top: str
    version: int


def group_memory(folder: Path) -> GroupMemory:
    """Read a group's files.

    Raises:
        HostError: If the folder is no control group with memory accounting, or cannot be read.
    """
    try:
        if (folder / "memory.usage_in_bytes").exists():
            return _version_1(folder)
        if (folder / "memory.current").exists():
            return _version_2(folder)
        there = folder.is_dir()
    except OSError as error:
        msg = f"cgroup {folder}: {error.strerror or error}"
        raise HostError(msg) from error
    hint = (
        "it has no memory.current or memory.usage_in_bytes; the topmost group of version 2 has none"
        if there
        else "there is no such folder (any more); is the container running?"
    )
    msg = f"cgroup {folder}: {hint}"
    raise HostError(msg)


def group_of_process(root: Path, pid: str) -> Path:
    """Return the folder of the group that a process is in; `pid` is a number or `self`.

    Raises:
        HostError: If there is no such process, or its group cannot be seen from here.
    """
    mount = _memory_mount(root)
    listing = root / "proc" / pid / "cgroup"
    path = _own_line(read_text(listing, what=f"process {pid}"), mount.version, listing)
    inner = path.removeprefix(mount.top) if mount.top != "/" else path
    folder = mount.place / inner.lstrip("/")
    if "/.." not in path and folder.is_dir():
        return folder
    if pid == "self" and (mount.place / "cgroup.procs").exists():
        return mount.place  # a container without the host's tree: the mount is its own group
    msg = (
        f"process {pid}: its cgroup {path} is not under {mount.place}; "
        "mount the host's /sys/fs/cgroup and set `root`, or name the folder with `path`"
    )
    raise HostError(msg)


def group_of_container(root: Path, container_id: str) -> Path:
    """Return the folder of a container's group, found by the id in the folder's name.

    Raises:
        HostError: If there is none among the first 20,000 folders.
    """
    mount = _memory_mount(root)
    waiting: deque[Path] = deque([mount.place])
    looked = 0
    while waiting and looked < _MOST_FOLDERS:
        folder = waiting.popleft()
        looked += 1
        for child in _folders(folder):
            if container_id in child.name:
                return child
            waiting.append(child)
    msg = (
        f"container {container_id}: no cgroup with that id in {looked:,} folders under "
        f"{mount.place}; is it running on this machine?"
    )
    raise HostError(msg)


def read_text(path: Path, *, what: str) -> str:
    """Return the beginning of a small file of the kernel.

    Raises:
        HostError: If it cannot be read; the text names `what` is missing with it.
    """
    try:
        with path.open("rb") as file:
            return file.read(MOST_BYTES).decode(errors="replace")
    except OSError as error:
        msg = f"{what}: {path}: {error.strerror or error}"
        raise HostError(msg) from error


def _version_1(folder: Path) -> GroupMemory:
    stat = _table(folder / "memory.stat")
    limits = (_number(folder / "memory.limit_in_bytes"), stat.get("hierarchical_memory_limit"))
    return GroupMemory(
        usage=_needed(folder / "memory.usage_in_bytes"),
        inactive_file=stat.get("total_inactive_file", stat.get("inactive_file", 0.0)),
        anon=stat.get("total_rss", stat.get("rss")),
        mapped=stat.get("total_mapped_file", stat.get("mapped_file", 0.0)),
        swap=stat.get("total_swap", stat.get("swap")),
        limit=_smallest(*limits, *_ancestors(folder, "memory.limit_in_bytes")),
        oom_kills=_table(folder / "memory.oom_control").get("oom_kill"),
    )


def _version_2(folder: Path) -> GroupMemory:
    stat = _table(folder / "memory.stat")
    own = _number(folder / "memory.max")
    return GroupMemory(
        usage=_needed(folder / "memory.current"),
        inactive_file=stat.get("inactive_file", 0.0),
        anon=stat.get("anon"),
        mapped=stat.get("file_mapped", 0.0),
        swap=_number(folder / "memory.swap.current"),
        limit=_smallest(own, *_ancestors(folder, "memory.max")),
        oom_kills=_table(folder / "memory.events").get("oom_kill"),
    )


def _ancestors(folder: Path, name: str) -> Iterator[float | None]:
    """Yield the limits of the groups above; those outside a container's view are not seen."""
    for parent in list(folder.parents)[:_DEEPEST]:
        if not (parent / "cgroup.procs").exists():
            return
        if name == "memory.limit_in_bytes" and _number(parent / "memory.use_hierarchy") == 0:
            return
        yield _number(parent / name)


def _smallest(*limits: float | None) -> float | None:
    stated = (limit for limit in limits if limit is not None and limit < NO_LIMIT_FROM)
    return min(stated, default=None)


def _number(path: Path) -> float | None:
    """Return the number in a file; None if there is no file, or it says `max`."""
    try:
        text = path.read_bytes()[:64].strip()
    except FileNotFoundError:
        return None
    return float(text) if text.isdigit() and len(text) <= MOST_DIGITS else None


def _needed(path: Path) -> float:
    number = _number(path)
    if number is None:
        msg = f"cgroup file {path}: expected a number of bytes"
        raise HostError(msg)
    return number


def _table(path: Path) -> Mapping[str, float]:
    """Return a file of lines `name number`; empty if there is none."""
    try:
        with path.open("rb") as file:
            text = file.read(MOST_BYTES).decode(errors="replace")
    except FileNotFoundError:
        return {}
    pairs = (line.split() for line in text.splitlines())
    return {
        it[0]: float(it[1])
        for it in pairs
        if len(it) > 1 and it[1].isdecimal() and len(it[1]) <= MOST_DIGITS
    }


def _memory_mount(root: Path) -> _Mount:
    """Find where memory is accounted: version 1 where it has the controller (hybrid), else 2."""
    listing = root / "proc" / "self" / "mountinfo"
    unified: _Mount | None = None
    for line in read_text(listing, what="control groups").splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if len(fields) < 5 or len(kind) < 1:  # noqa: PLR2004  # proc(5): id parent dev root place
            continue
        place = root / _plain(fields[4]).lstrip("/")
        if kind[0] == "cgroup" and "memory" in kind[-1].split(","):
            return _Mount(place, _plain(fields[3]), 1)
        if kind[0] == "cgroup2" and unified is None:
            unified = _Mount(place, _plain(fields[3]), 2)
    if unified is None:
        msg = f"{listing}: no memory cgroup is mounted; name the folder with `path`"
        raise HostError(msg)
    return unified


def _own_line(text: str, version: int, listing: Path) -> str:
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if (version == 1 and "memory" in controllers.split(",")) or (
            version != 1 and number == "0" and not controllers
        ):
            return path
    msg = f"{listing}: no line of the memory hierarchy (version {version})"
    raise HostError(msg)


def _folders(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            found = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:  # it went away, or is not ours to look into
        return []
    return [Path(path) for path in sorted(found)]


def _plain(text: str) -> str:
    """Undo the octal escapes of mountinfo."""
    return _OCTAL.sub(lambda it: chr(int(it[1], 8)), text)
