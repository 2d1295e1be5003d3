"""An open file of lines, plain or packed by gzip, read by offset."""

from __future__ import annotations

import errno
import gzip
import hashlib
import os
import stat
import zlib
from pathlib import Path
from typing import Protocol

FINGERPRINT_BYTES = 256
_PIECE = 1 << 20


class OpenFile(Protocol):
    """A file that is open for reading; offsets are of the plain bytes."""

    device: int
    inode: int

    @property
    def damaged(self) -> bool:
        """Whether its end cannot be read (a packed file that is cut off)."""
        ...

    def size(self) -> int:
        """Return how many bytes it holds; of a packed file not read to its end an estimate."""
        ...

    def modified(self) -> float:
        """Return when it was last written, unix seconds."""
        ...

    def pread(self, size: int, offset: int) -> bytes:
        """Return up to `size` bytes from `offset`."""
        ...

    def close(self) -> None: ...


def open_file(path: Path) -> OpenFile:
    """Open `path`, packed if its name ends in `.gz`.

    Raises:
        OSError: If it cannot be opened, or is no regular file.
    """
    return PackedFile(path) if path.suffix == ".gz" else PlainFile(path)


def digest_at(file: OpenFile, offset: int) -> str:
    """Return the hash of the bytes before `offset`, empty at the beginning."""
    if offset == 0:
        return ""
    start = max(0, offset - FINGERPRINT_BYTES)
    return hashlib.blake2b(file.pread(offset - start, start), digest_size=8).hexdigest()


class PlainFile:
    """A file as it is."""

    damaged = False

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        found = os.fstat(self._descriptor)
        if not stat.S_ISREG(found.st_mode):  # a pipe would be waited for, and has no offsets
            os.close(self._descriptor)
            kind = "a directory" if stat.S_ISDIR(found.st_mode) else "no regular file"
            raise OSError(errno.EINVAL, f"is {kind}, expected a file", str(path))
        self.device, self.inode = found.st_dev, found.st_ino

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def modified(self) -> float:
        return os.fstat(self._descriptor).st_mtime

    def pread(self, size: int, offset: int) -> bytes:
        return os.pread(self._descriptor, size, offset)

    def close(self) -> None:
        os.close(self._descriptor)


class PackedFile:
    """A rotated file that was packed by gzip: unpacked as it is read, in bounded pieces.

    Reading goes forward; what was read is kept back to `FINGERPRINT_BYTES` before the last offset.
    """

    def __init__(self, path: Path) -> None:
        self._raw = path.open("rb")
        found = os.fstat(self._raw.fileno())
        self.device, self.inode = found.st_dev, found.st_ino
        self.damaged = False
        self._begin()

    def _begin(self) -> None:
        self._raw.seek(0)
        self._plain = gzip.GzipFile(fileobj=self._raw, mode="rb")
        self._kept = bytearray()
        self._start = 0  # offset of the first byte that is kept
        self._ended = False

    def size(self) -> int:
        known = self._start + len(self._kept)
        if self._ended:
            return known
        return known + max(os.fstat(self._raw.fileno()).st_size - self._raw.tell(), 1)

    def modified(self) -> float:
        return os.fstat(self._raw.fileno()).st_mtime

    def pread(self, size: int, offset: int) -> bytes:
        if offset < self._start:
            self._begin()
        while not self._ended and self._start + len(self._kept) < offset + size:
            self._unpack()
            self._forget(offset)
        place = offset - self._start
        return bytes(self._kept[place : place + size])

    def _unpack(self) -> None:
        try:
            piece = self._plain.read1(_PIECE)
        except (EOFError, zlib.error, OSError):  # cut off, or no gzip: what came before is good
            piece, self.damaged = b"", True
        self._ended = not piece
        self._kept += piece

    def _forget(self, offset: int) -> None:
        """Let go of what lies far enough before `offset`."""
        keep = min(max(0, offset - FINGERPRINT_BYTES), self._start + len(self._kept))
        if keep > self._start:
            del self._kept[: keep - self._start]
            self._start = keep

    def close(self) -> None:
        self._plain.close()
        self._raw.close()
