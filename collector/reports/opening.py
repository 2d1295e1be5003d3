"""A file by what it holds: Parquet, JSON lines (rows or logged generations), else CSV."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, cast

from collector.reports.delimited import open_delimited
from collector.reports.generations import is_generation, open_generations
from collector.reports.json_rows import open_json_rows
from collector.reports.lines import Lines
from collector.reports.parquet import open_parquet
from collector.reports.records import Bounds, Progress, Table, TableError

_GZIP = b"\x1f\x8b"
_PARQUET = b"PAR1"
_OTHERS = {
    b"(\xb5/\xfd": "zstd: unpack it first",
    b"BZh": "bzip2: unpack it first",
    b"\xfd7zX": "xz: unpack it first",
    b"PK\x03\x04": "a zip archive (or a spreadsheet): unpack it, or save it as CSV",
    b"\xff\xfe": "UTF-16: save it as UTF-8",
    b"\xfe\xff": "UTF-16: save it as UTF-8",
    b"ARRO": "an Arrow file: write it as Parquet",
}


def open_table(path: Path, bounds: Bounds, *, now: datetime, progress: Progress) -> Table:
    """Open a file for comparison.

    Args:
        path: Parquet, CSV, or JSON lines; the last two may be gzip. What it is is told by what it
            holds, not by its name.
        bounds: What reading may cost.
        now: Stands in for the time of generations that have none, UTC.
        progress: Told how far reading is.

    Raises:
        TableError: If it cannot be read, with the place and what to do.
    """
    if not path.is_file():
        msg = f"{path}: is no file; give a Parquet file, a CSV file or a file of JSON lines"
        raise TableError(msg)
    try:
        head, packed = _beginning(path)
        if head[:4] == _PARQUET:
            if packed:
                msg = f"{path}: is gzip around Parquet; unpack it, Parquet packs its own pages"
                raise TableError(msg)
            return open_parquet(path, bounds)
        lines = Lines(path, packed=packed, bounds=bounds, progress=progress)
        return _open_text(lines, head, now)
    except (OSError, EOFError, zlib.error) as error:
        msg = f"{path}: cannot be read: {error}; give a whole file that can be read"
        raise TableError(msg) from error


def _beginning(path: Path) -> tuple[bytes, bool]:
    """Return the first bytes, unpacked, and whether the file is gzip."""
    with ExitStack() as stack:
        raw = stack.enter_context(path.open("rb"))
        packed = raw.peek(2)[:2] == _GZIP
        text = cast("BinaryIO", stack.enter_context(gzip.open(raw)) if packed else raw)
        head = text.read(4096)
    if not head.strip():
        msg = f"{path}: is empty; nothing can be compared"
        raise TableError(msg)
    for magic, words in _OTHERS.items():
        if head.startswith(magic):
            msg = f"{path}: is {words}"
            raise TableError(msg)
    if b"\0" in head and head[:4] != _PARQUET:
        msg = f"{path}: holds zero bytes, so it is no text; give Parquet, CSV or JSON lines"
        raise TableError(msg)
    return head, packed


def _open_text(lines: Lines, head: bytes, now: datetime) -> Table:
    ink = head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
    if ink == b"[":
        msg = f"{lines.path}: is one JSON array; write one object a line (jq -c '.[]')"
        raise TableError(msg)
    if ink != b"{":
        return open_delimited(lines)
    if any(is_generation(line) for line in _first(lines)):
        return open_generations(lines, now=now)
    return open_json_rows(lines)


def _first(lines: Lines, most: int = 5) -> Iterator[bytes]:
    for taken, (_, line) in enumerate(lines.all()):
        if taken == most:
            return
        yield line
