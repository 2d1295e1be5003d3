"""The lines of a text file, plain or gzip: numbered, bounded, counted before they are read."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from collector.reports.records import Bounds, Progress, TableError

_PIECE_BYTES = 1 << 20
_TELL_EVERY = 4096  # lines between two words of progress


@dataclass(frozen=True, slots=True)
class Lines:
    """A text file that can be gone through more than once."""

    path: Path
    packed: bool
    bounds: Bounds
    progress: Progress

    def _open(self, stack: ExitStack) -> tuple[BinaryIO, BinaryIO]:
        raw = stack.enter_context(self.path.open("rb"))
        if not self.packed:
            return raw, raw
        return raw, cast("BinaryIO", stack.enter_context(gzip.GzipFile(fileobj=raw)))

    def all(self) -> Iterator[tuple[int, bytes]]:
        """Yield the lines with their numbers, from 1; blank ones are left out.

        Raises:
            TableError: If a line is longer than the bound.
            OSError, EOFError, zlib.error: If the file cannot be read to its end.
        """
        most = self.bounds.line_bytes
        size = max(self.path.stat().st_size, 1)
        with ExitStack() as stack:
            raw, text = self._open(stack)
            number = 0
            while line := text.readline(most + 1):
                number += 1
                if len(line) > most:
                    msg = (
                        f"{self.path}: line {number}: is longer than {most:,} bytes; "
                        "give one row a line"
                    )
                    raise TableError(msg)
                if number == 1:
                    line = line.removeprefix(b"\xef\xbb\xbf")
                if line.strip():
                    yield number, line
                if number % _TELL_EVERY == 0:
                    self.progress(f"reading {self.path.name}", raw.tell() / size)

    def texts(self) -> Iterator[tuple[int, str]]:
        """Yield the lines as text.

        Raises:
            TableError: If a line is no UTF-8.
        """
        for number, line in self.all():
            yield number, self.decoded(number, line)

    def decoded(self, number: int, line: bytes) -> str:
        """Return a line as text, or say where it is none."""
        try:
            return line.decode("utf-8")
        except UnicodeDecodeError as error:
            msg = (
                f"{self.path}: line {number}, byte {error.start + 1}: is no UTF-8 "
                f"(byte 0x{line[error.start]:02x}); save the file as UTF-8"
            )
            raise TableError(msg) from error

    def count(self) -> int:
        """Count the lines without looking at them: an upper bound of the rows."""
        with ExitStack() as stack:
            raw, text = self._open(stack)
            size = max(self.path.stat().st_size, 1)
            found, ended = 0, True
            while piece := text.read(_PIECE_BYTES):
                found += piece.count(b"\n")
                ended = piece.endswith(b"\n")
                self.progress(f"counting {self.path.name}", raw.tell() / size)
            return found + (not ended)
