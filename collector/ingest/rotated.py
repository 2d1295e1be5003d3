"""The rotated files beside a followed one, and which of them comes after which.

Rotation renames (`log.1`, `log-20261129`, `log.2026-11-29`, `log-….jsonl`), copies, and may pack by
gzip; the time of the last write survives renaming and packing, so it gives the order.
"""

from __future__ import annotations

import heapq
import os
import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from collector.ingest.opened import OpenFile, digest_at, open_file

MOST_FILES = 1000
_CLOCK_SECONDS = 2.0  # packing may write times in whole seconds
_DATED = r"[.\-_]\d[\d.\-_:TZ+]*"


@dataclass(frozen=True, slots=True)
class Position:
    """How far a file has been read: save it, and a follower goes on from it after a restart.

    `digest` is the hash of the bytes before `offset`: inodes are used again, and a truncated file
    may have grown past the offset. `skipping` means inside a line that is too long. `modified` is
    when the file was last written as far as known, unix seconds, 0 where it was not kept.
    """

    device: int
    inode: int
    offset: int = 0
    digest: str = ""
    skipping: bool = False
    modified: float = 0.0


@dataclass(frozen=True, slots=True)
class Rotated:
    """A file that rotation has put aside."""

    modified: float
    number: float  # -7 for `.7`: of files written at once, the higher number is the older
    path: Path
    device: int
    inode: int

    @property
    def place(self) -> tuple[int, int]:
        return self.device, self.inode


def rotated_files(path: Path) -> list[Rotated]:
    """Return the files that rotation has put aside of `path`, the oldest first; newest 1000."""
    found = heapq.nlargest(MOST_FILES, _beside(path), key=_order)
    plain = {file.path for file in found}
    found = [it for it in found if it.path.suffix != ".gz" or it.path.with_suffix("") not in plain]
    return sorted(found, key=_order)


def _order(file: Rotated) -> tuple[float, float, str]:
    return file.modified, file.number, file.path.name


def _beside(path: Path) -> Iterator[Rotated]:
    stem, suffix = re.escape(path.stem), re.escape(path.suffix)
    named = re.compile(f"(?:{stem}{suffix}(?:{_DATED})|{stem}(?:{_DATED}?){suffix})(?:\\.gz)?")
    try:
        entries = list(os.scandir(path.parent))
    except OSError:
        return
    for entry in entries:
        if entry.name == path.name or not named.fullmatch(entry.name):
            continue
        try:
            info = entry.stat()
            if not entry.is_file():
                continue
        except OSError:
            continue  # rotated on, while we looked
        number = re.search(r"\.(\d{1,4})(?:\.gz)?$", entry.name)
        order = -float(number[1]) if number else 0.0
        yield Rotated(info.st_mtime, order, path.parent / entry.name, info.st_dev, info.st_ino)


def the_same(position: Position, files: list[Rotated]) -> Rotated | None:
    """Return the file in which `position` is: by inode, else (copied, packed) by its bytes."""
    by_inode = [it for it in files if it.place == (position.device, position.inode)]
    for file in by_inode:
        if _holds(file.path, position):
            return file
    if not position.digest:
        return None
    oldest = position.modified - _CLOCK_SECONDS
    return next((it for it in files if it.modified >= oldest and _holds(it.path, position)), None)


def after(position: Position, files: list[Rotated]) -> Rotated | None:
    """Return the first file that was begun after the one of `position`; None if none is there."""
    mine = the_same(position, files)
    if mine is not None:
        place = files.index(mine)
        return files[place + 1] if place + 1 < len(files) else None
    if not position.modified:
        return None  # of a save without times: nothing tells old from new
    return next((it for it in files if it.modified > position.modified), None)


def continues(file: OpenFile, position: Position) -> bool:
    """Tell whether the bytes before the position are still those that were read."""
    return digest_at(file, position.offset) == position.digest


def _holds(path: Path, position: Position) -> bool:
    try:
        with closing(open_file(path)) as file:
            return continues(file, position)
    except OSError:
        return False  # rotated on, or not ours to read: it cannot be the one
