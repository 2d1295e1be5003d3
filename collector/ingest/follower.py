"""Follows a growing file of lines over rotation, truncation and restarts.

Rotation by rename and create: the old file is read to its end first, then every file that was
rotated since, the oldest first, then the new one. By copy and truncate: a file that is shorter than
before, or whose bytes before the position are others, is read from the start, after what is left
in its copy.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path

from collector.ingest.opened import OpenFile, digest_at, open_file
from collector.ingest.records import MEBIBYTE
from collector.ingest.rotated import Position, Rotated, after, continues, rotated_files, the_same

_READ_BYTES = 4 * MEBIBYTE


@dataclass(frozen=True, slots=True)
class Chunk:
    """What one read gave: whole lines (empty if there is nothing new), and what went by.

    `skipped` counts lines over the limit, `restarts` files that were truncated or changed under
    us, `lost` files that were not read to their end and cannot be found any more, or whose packed
    end is broken; `lag_bytes` is what is left to read, `problem` why nothing can be read ("" if it
    can).
    """

    payload: bytes = b""
    skipped: int = 0
    restarts: int = 0
    lag_bytes: int = 0
    problem: str = ""
    lost: int = 0


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
        self._before: Position | None = None  # the end of the file before, until this one is read
        self._from_end = from_end and position is None  # the next file opened is an old one
        self._file: OpenFile | None = None
        self._quiet_size: int | None = None  # size at which the last read found nothing whole
        self._left_behind = False  # nothing new and another file at the path, at the last read
        self._lost = 0  # not told yet

    @property
    def position(self) -> Position | None:
        """Where the next read begins; None before the first file was opened.

        Until something of a new file is read, the end of the one before: only its bytes tell which
        file is meant, should the new one be renamed and packed meanwhile.
        """
        return self._before or self._position

    async def read(self) -> Chunk:
        """Return the next whole lines; at most about `read_bytes` or one line of them."""
        return await asyncio.to_thread(self.read_now)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file = None
        self._quiet_size = None  # it was of the file that was open

    def read_now(self) -> Chunk:
        """Do what `read` does, in this thread."""
        try:
            chunk = self._next(*self._opened())
        except OSError as error:
            self.close()
            chunk = Chunk(problem=f"{self._path}: {error.strerror or error}")
        lost, self._lost = self._lost, 0
        return replace(chunk, lost=lost) if lost else chunk

    def _opened(self) -> tuple[OpenFile, Position]:
        """Return the open file and the position in it."""
        if self._file is not None and self._position is not None:
            return self._file, self._position
        if self._position is not None:
            return self._reopened(self._position)
        return self._at_path()

    def _at_path(self) -> tuple[OpenFile, Position]:
        """Open the file at the path, which was not read yet."""
        try:
            file = open_file(self._path)
        except FileNotFoundError as error:
            self._from_end = False  # what appears from now on is new
            raise FileNotFoundError(2, "no such file yet", str(self._path)) from error
        place = Position(file.device, file.inode)
        if self._from_end:
            place = _at_end(file, place, self._max_line_bytes)
        self._from_end = False
        return self._settled(file, place)

    def _settled(self, file: OpenFile, place: Position) -> tuple[OpenFile, Position]:
        self.close()
        self._file, self._position = file, place
        return file, place

    def _reopened(self, place: Position) -> tuple[OpenFile, Position]:
        """Open the file of a saved position, wherever it is now, or the first one after it."""
        current = _open_if_there(self._path)
        if current is not None and _same_file(place, current) and continues(current, place):
            return self._settled(current, place)
        files = rotated_files(self._path)
        mine = the_same(place, files)
        following = mine or after(place, files)
        if mine is None and (following is not None or current is not None):
            if current is not None and following is None and _same_file(place, current):
                return self._settled(current, place)  # truncated: the next look finds out
            self._lost += 1
        if following is None:
            if current is None:
                raise FileNotFoundError(2, "no such file yet", str(self._path))
            return self._settled(current, Position(current.device, current.inode))
        if current is not None:
            current.close()
        return self._entered(following, place if mine else Position(0, 0))

    def _entered(self, file: Rotated, place: Position) -> tuple[OpenFile, Position]:
        """Open a rotated file at a position that was in it, or in the file it is a copy of."""
        opened = open_file(file.path)
        place = replace(place, device=opened.device, inode=opened.inode, modified=file.modified)
        return self._settled(opened, place)

    def _next(self, file: OpenFile, place: Position) -> Chunk:
        size = file.size()
        restarts = 0
        if not continues(file, place):
            copy = the_same(place, rotated_files(self._path))
            if copy is not None and copy.place != (place.device, place.inode):
                return replace(self._next(*self._entered(copy, place)), restarts=1)
            place = Position(place.device, place.inode)
            restarts = 1
        rotated = self._rotated(place)
        if size == self._quiet_size and not restarts and not rotated:
            return Chunk(lag_bytes=size - place.offset)
        data = self._piece(file, place.offset)
        payload, skipped, place = _cut(data, place, self._max_line_bytes)
        idle = not payload and place.offset == (self._position or place).offset and not restarts
        self._quiet_size = size if idle else None
        digest = digest_at(file, place.offset)
        self._position = replace(place, digest=digest, modified=file.modified())
        self._before = None if place.offset else self._before
        if idle and rotated and self._left_behind:
            payload = self._leave(file, self._position, data)
        self._left_behind = idle and rotated
        return Chunk(payload, skipped, restarts, max(size - place.offset, 0))

    def _piece(self, file: OpenFile, offset: int) -> bytes:
        """Read on; more than usual only where a line is longer than that."""
        data = file.pread(self._read_bytes, offset)
        if len(data) == self._read_bytes <= self._max_line_bytes and b"\n" not in data:
            data = file.pread(self._max_line_bytes + 1, offset)
        return data

    def _rotated(self, place: Position) -> bool:
        """Tell whether another file follows the one that is open."""
        try:
            found = self._path.stat()
        except FileNotFoundError:
            known = self._position or place
            return after(known, rotated_files(self._path)) is not None
        return (place.device, place.inode) != (found.st_dev, found.st_ino)

    def _leave(self, file: OpenFile, place: Position, rest: bytes) -> bytes:
        """Go over to the file after; a last line without an end is taken as it is."""
        offset = place.offset + len(rest)
        self._position = replace(place, offset=offset, digest=digest_at(file, offset))
        current = _open_if_there(self._path)  # before the look beside it: rotation may come between
        following = after(self._position, rotated_files(self._path))
        if current is None and following is None:
            return rest
        self._lost += file.damaged
        self._before = self._position
        if following is None and current is not None:
            self._settled(current, Position(current.device, current.inode))
            return rest
        if current is not None:
            current.close()
        if following is not None:
            self._entered(following, Position(0, 0))
        return rest


def _open_if_there(path: Path) -> OpenFile | None:
    try:
        return open_file(path)
    except FileNotFoundError:
        return None


def _at_end(file: OpenFile, place: Position, longest: int) -> Position:
    """Return the position behind the last whole line; inside one that is too long, the end."""
    size = file.size()
    start = max(0, size - longest - 1)
    end = file.pread(size - start, start).rfind(b"\n") + 1
    offset = start + end if end or not start else size
    skipping = not end and start > 0
    return replace(place, offset=offset, digest=digest_at(file, offset), skipping=skipping)


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


def _same_file(place: Position, file: OpenFile) -> bool:
    return (place.device, place.inode) == (file.device, file.inode)
