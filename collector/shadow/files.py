"""The lines of a file, plain or gzip, one at a time."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, cast

from collector.shadow.records import FileProblemError, RawLine

_GZIP = b"\x1f\x8b"


def lines_of(
    path: Path, *, line_bytes: int, progress: Callable[[int], None] | None = None
) -> Iterator[RawLine]:
    """Yield the lines that hold anything.

    Args:
        path: A file of JSON lines; gzip is told by its first bytes.
        line_bytes: A longer line is passed over and yielded as oversized.
        progress: Told the place in the file, bytes, after each line.

    Raises:
        FileProblemError: If the file cannot be opened, or not be read to its end.
    """
    number = 0
    try:
        with ExitStack() as stack:
            if not path.is_file():
                raise FileProblemError(f"{path}: is no file; give one of JSON lines")  # noqa: EM102
            raw = stack.enter_context(path.open("rb"))
            packed = raw.peek(2)[:2] == _GZIP
            text = cast("BinaryIO", stack.enter_context(gzip.open(raw)) if packed else raw)
            while data := text.readline(line_bytes + 1):
                number += 1
                oversized = len(data) > line_bytes and not data.endswith(b"\n")
                if oversized:
                    _pass_over(text, line_bytes)
                if data.strip():
                    yield RawLine(number, b"" if oversized else data, oversized=oversized)
                if progress is not None:
                    progress(raw.tell())
    except (OSError, EOFError, zlib.error) as error:
        msg = f"{path}: cannot be read after line {number}: {error}; give a whole file"
        raise FileProblemError(msg) from error


def _pass_over(text: BinaryIO, line_bytes: int) -> None:
    """Read to the end of the line."""
    while rest := text.readline(line_bytes):
        if rest.endswith(b"\n"):
            return
