"""Follows a growing log file over rotation and truncation, a bounded piece at a time.

Unlike the follower of logged generations it keeps no position over a restart (what was written
meanwhile is no news), cuts lines that are too long instead of dropping them, and takes a carriage
return for the end of a line: progress bars write megabytes without any other.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

LINE_BYTES: Final = 16_384
HISTORY_BYTES: Final = 1_048_576
MOST_LAG_BYTES: Final = 67_108_864
_PRINT_BYTES: Final = 64  # before the position: they tell a file that was truncated and grew again


@dataclass(frozen=True, slots=True)
class Piece:
    """What one read gave: whole lines, each at most `LINE_BYTES`, or why there are none.

    `long_lines` counts cuts of longer ones, `restarts` files that were truncated under us,
    `lag_bytes` what is left to read, `jumped_bytes` what was passed over to catch up.
    """

    data: bytes = b""
    lag_bytes: int = 0
    long_lines: int = 0
    restarts: int = 0
    jumped_bytes: int = 0
    problem: str = ""


class LogFollower:
    """Reads one path. `read` must not be called twice at once."""

    def __init__(self, path: Path, *, from_end: bool) -> None:
        """Make a follower; nothing is opened.

        Args:
            path: The file; it may appear later, and is then read from its start.
            from_end: Enter a file that is there at the first read behind its last whole line.
        """
        self.path = path
        self.history = b""  # what stood in the file when it was entered: its start and its end
        self._from_end = from_end
        self._file: int | None = None
        self._offset = 0
        self._before = b""
        self._idle = False

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
        self._file = None

    def read(self, limit: int) -> Piece:
        """Return the next whole lines, at most about `limit` bytes of them."""
        try:
            if self._file is None:
                self._file = self._open()
            return self._next(self._file, limit)
        except OSError as error:
            self.close()
            self._from_end = False  # what appears from now on is new
            return Piece(problem=_words(self.path, error))

    def _open(self) -> int:
        # without O_NONBLOCK a pipe at the path would hold this thread for ever
        file = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode):
            os.close(file)
            raise OSError(0, "it is no regular file; log to a file and name that")
        self._offset, self._before, self._idle = 0, b"", False
        if self._from_end:
            self._enter(file, found.st_size)
        self._from_end = False
        return file

    def _enter(self, file: int, size: int) -> None:
        """Go to the end, and keep what stands before it for the facts in it."""
        tail = os.pread(file, HISTORY_BYTES, max(size - HISTORY_BYTES, 0))
        end = max(tail.rfind(b"\n"), tail.rfind(b"\r")) + 1
        self._offset = size - len(tail) + (end or len(tail))
        start = max(self._offset - _PRINT_BYTES, 0)
        self._before = os.pread(file, self._offset - start, start)
        head = os.pread(file, min(HISTORY_BYTES, max(size - HISTORY_BYTES, 0)), 0)
        self.history = _lines(head)[0] + _lines(tail[:end])[0]

    def _next(self, file: int, limit: int) -> Piece:
        size = os.fstat(file).st_size
        restarts = int(self._truncated(file, size))
        if restarts:
            self._offset, self._before = 0, b""
        jumped = self._jump(file, size, limit)
        data = os.pread(file, limit, self._offset)
        taken = _taken(data)
        if not taken:
            return self._nothing(data, size, restarts)
        self._idle = False
        self._offset += taken
        self._before = (self._before + data[:taken])[-_PRINT_BYTES:]
        lines, long = _lines(data[:taken])
        return Piece(lines, max(size - self._offset, 0), long, restarts, jumped)

    def _truncated(self, file: int, size: int) -> bool:
        if size < self._offset:
            return True
        before = os.pread(file, len(self._before), self._offset - len(self._before))
        return before != self._before

    def _jump(self, file: int, size: int, limit: int) -> int:
        """Leave out what can never be caught up with; return how many bytes."""
        jumped = size - self._offset - limit if size - self._offset > MOST_LAG_BYTES else 0
        if jumped:
            self._offset += jumped
            self._before = os.pread(file, _PRINT_BYTES, self._offset - _PRINT_BYTES)
        return jumped

    def _nothing(self, rest: bytes, size: int, restarts: int) -> Piece:
        """Wait for a line's end, or leave a file that was rotated away, not at its first idle read.

        Its writer may hold it open a little longer.
        """
        gone = self._rotated()
        if not (gone and self._idle):
            self._idle = gone
            return Piece(lag_bytes=max(size - self._offset, 0), restarts=restarts)
        self.close()
        return Piece(_lines(rest)[0], restarts=restarts)

    def _rotated(self) -> bool:
        """Tell whether the path names another file than the one that is open."""
        if self._file is None:
            return False
        mine = os.fstat(self._file)
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return False
        return (mine.st_dev, mine.st_ino) != (found.st_dev, found.st_ino)


def _taken(data: bytes) -> int:
    """Return how much of `data` is whole lines; of one that is too long, whole lengths."""
    end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
    rest = len(data) - end
    return end + rest - rest % LINE_BYTES


def _lines(data: bytes) -> tuple[bytes, int]:
    """Return `data` as lines of bounded length, each with its newline, and the number of cuts."""
    lines = data.replace(b"\r", b"\n").split(b"\n")
    cuts = 0
    if max(map(len, lines)) >= LINE_BYTES:
        pieces = [_cut(line) for line in lines]
        cuts = sum(map(len, pieces)) - len(lines)
        lines = [piece for some in pieces for piece in some]
    if lines[-1]:
        lines.append(b"")
    return b"\n".join(lines), cuts


def _cut(line: bytes) -> list[bytes]:
    starts = range(0, len(line) + 1, LINE_BYTES)  # the last may be empty: the line goes on there
    return [line[start : start + LINE_BYTES] for start in starts]


def _words(path: Path, error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return f"log {path}: there is no such file yet; it is read as soon as it appears"
    if isinstance(error, PermissionError):
        return f"log {path}: permission denied; let the user that runs Fusewire read it"
    return f"log {path}: {error.strerror or error}"
