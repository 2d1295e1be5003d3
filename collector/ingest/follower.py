"""Follows a growing file of lines over rotation, truncation and restarts.

Rotation by rename and create: the old file is read to its end first. By copy and truncate: a file
that is shorter than before, or whose bytes before the position are others, is read from the start.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from collector.ingest.records import MEBIBYTE

_READ_BYTES = 4 * MEBIBYTE
_FINGERPRINT_BYTES = 256
_MOST_SIBLINGS = 1000


@dataclass(frozen=True, slots=True)
class Position:
    """How far a file has been read: save it, and `Follower` goes on from it after a restart.

    `digest` is the hash of the bytes before `offset`: inodes are used again, and a truncated file
    may have grown past the offset. `skipping` means inside a line that is too long.
    """

    device: int
    inode: int
    offset: int = 0
    digest: str = ""
    skipping: bool = False


@dataclass(frozen=True, slots=True)
class Chunk:
    """What one read gave: whole lines (empty if there is nothing new), and what went by.

    `skipped` counts lines over the limit, `restarts` files that were truncated or changed under
    us, `lag_bytes` what is left to read, `problem` why nothing can be read ("" if it can).
    """

    payload: bytes = b""
    skipped: int = 0
    restarts: int = 0
    lag_bytes: int = 0
    problem: str = ""


class Follower:
    """Reads one path in bounded pieces, in a thread; a missing file is waited for.

    A partial last line waits for its end, or for the file to be rotated away. `read` must not be
    called twice at once.

    Without a saved position, `from_end` enters a file that is there at the first read behind its
    last whole line, so that history does not count as live; one that appears later is read whole.
    """

    def __init__(
        self,
        path: Path,
        *,
        max_line_bytes: int,
        position: Position | None = None,
        read_bytes: int = _READ_BYTES,
        from_end: bool = False,
    ) -> None:
        self._path = path
        self._max_line_bytes = max_line_bytes
        self._read_bytes = read_bytes
        self._position = position
        self._from_end = from_end and position is None  # the next file opened is an old one
        self._descriptor: int | None = None
        self._quiet_size: int | None = None  # size at which the last read found nothing whole
        self._left_behind = False  # nothing new and another file at the path, at the last read

    @property
    def position(self) -> Position | None:
        """Where the next read begins; None before the first file was opened."""
        return self._position

    async def read(self) -> Chunk:
        """Return the next whole lines; at most about `read_bytes` or one line of them."""
        return await asyncio.to_thread(self.read_now)

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor = None
        self._quiet_size = None  # it was of the file that was open

    def read_now(self) -> Chunk:
        """Do what `read` does, in this thread."""
        try:
            opened = self._opened()
            return self._next(*opened)
        except OSError as error:
            self.close()
            return Chunk(problem=f"{self._path}: {error.strerror or error}")

    def _opened(self) -> tuple[int, Position]:
        """Return the open file and the position in it."""
        if self._descriptor is not None and self._position is not None:
            return self._descriptor, self._position
        for candidate in self._candidates():
            descriptor = os.open(candidate, os.O_RDONLY | os.O_CLOEXEC)
            found = os.fstat(descriptor)
            place = Position(found.st_dev, found.st_ino)
            if self._position is None or _same_file(self._position, place):
                place = self._position or place
            elif candidate != self._path:
                os.close(descriptor)
                continue
            self._descriptor = descriptor
            if self._from_end:
                place = _at_end(descriptor, place, found.st_size, self._max_line_bytes)
            self._from_end = False
            self._position = place
            return descriptor, place
        self._from_end = False  # what appears from now on is new
        raise FileNotFoundError(2, "no such file yet", str(self._path))

    def _candidates(self) -> Iterator[Path]:
        """Yield files to open: where we were before a restart, perhaps renamed since; the path."""
        if self._position is not None:
            for sibling in self._siblings():
                try:
                    found = sibling.stat()
                except FileNotFoundError:
                    continue
                if _same_file(self._position, Position(found.st_dev, found.st_ino)):
                    yield sibling
        if self._path.exists():
            yield self._path

    def _siblings(self) -> list[Path]:
        if not self._path.parent.is_dir():
            return []
        return sorted(self._path.parent.glob(f"{self._path.name}*"))[:_MOST_SIBLINGS]

    def _next(self, descriptor: int, place: Position) -> Chunk:
        size = os.fstat(descriptor).st_size
        restarts = 0
        if size < place.offset or _digest(descriptor, place.offset) != place.digest:
            place = Position(place.device, place.inode)
            restarts = 1
        rotated = self._rotated(place)
        if size == self._quiet_size and not restarts and not rotated:
            return Chunk(lag_bytes=size - place.offset)
        data = self._piece(descriptor, place.offset)
        payload, skipped, place = _cut(data, place, self._max_line_bytes)
        idle = not payload and place.offset == (self._position or place).offset and not restarts
        self._quiet_size = size if idle else None
        self._position = replace(place, digest=_digest(descriptor, place.offset))
        if idle and rotated and self._left_behind:
            payload = self._leave(data)
        self._left_behind = idle and rotated
        return Chunk(payload, skipped, restarts, max(size - place.offset, 0))

    def _piece(self, descriptor: int, offset: int) -> bytes:
        """Read on; more than usual only where a line is longer than that."""
        data = os.pread(descriptor, self._read_bytes, offset)
        if len(data) == self._read_bytes <= self._max_line_bytes and b"\n" not in data:
            data = os.pread(descriptor, self._max_line_bytes + 1, offset)
        return data

    def _rotated(self, place: Position) -> bool:
        """Tell whether the path names another file than the one that is open."""
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return False
        return not _same_file(place, Position(found.st_dev, found.st_ino))

    def _leave(self, rest: bytes) -> bytes:
        """Go over to the new file; a last line without an end is taken as it is."""
        self.close()
        self._position = None
        return rest


def _at_end(descriptor: int, place: Position, size: int, longest: int) -> Position:
    """Return the position behind the last whole line; inside one that is too long, the end."""
    start = max(0, size - longest - 1)
    end = os.pread(descriptor, size - start, start).rfind(b"\n") + 1
    offset = start + end if end or not start else size
    skipping = not end and start > 0
    return replace(place, offset=offset, digest=_digest(descriptor, offset), skipping=skipping)


def _cut(data: bytes, place: Position, longest: int) -> tuple[bytes, int, Position]:
    """Return the whole lines in `data`, how many too long ones began, and the position after."""
    start = 0
    if place.skipping:
        start = data.find(b"\n") + 1
        if not start:
            return b"", 0, replace(place, offset=place.offset + len(data))
    end = data.rfind(b"\n") + 1
    if end > start or (end and end == start):
        return data[start:end], 0, replace(place, offset=place.offset + end, skipping=False)
    if len(data) - start > longest:
        return b"", 1, replace(place, offset=place.offset + len(data), skipping=True)
    return b"", 0, replace(place, offset=place.offset + start, skipping=False)


def _same_file(one: Position, other: Position) -> bool:
    return (one.device, one.inode) == (other.device, other.inode)


def _digest(descriptor: int, offset: int) -> str:
    """Return the hash of the bytes before `offset`, empty at the beginning."""
    if offset == 0:
        return ""
    start = max(0, offset - _FINGERPRINT_BYTES)
    before = os.pread(descriptor, offset - start, start)
    return hashlib.blake2b(before, digest_size=8).hexdigest()
