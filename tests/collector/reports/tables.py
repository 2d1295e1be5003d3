"""Files and columns that the tests of reports compare."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from collector.reports.comparing import Compared, compare
from collector.reports.judging import Settings
from collector.reports.opening import open_table
from collector.reports.records import Bounds, Table

NOW = datetime(2026, 11, 29, tzinfo=UTC)
Rows = Mapping[str, Sequence[object]]


def quiet(words: str, share: float) -> None:
    """Take progress and show none."""


def opened(path: Path, bounds: Bounds | None = None) -> Table:
    return open_table(path, bounds or Bounds(), now=NOW, progress=quiet)


def compared(reference: Path, current: Path, settings: Settings | None = None) -> Compared:
    tables = opened(reference), opened(current)
    return compare(*tables, settings or Settings(), progress=quiet)


def write(path: Path, columns: Rows) -> Path:
    """Write columns in the format that the name of the file says."""
    names, rows = list(columns), list(zip(*columns.values(), strict=True))
    if path.name.endswith(".parquet"):
        pq.write_table(pa.table(dict(columns)), path)
        return path
    text = path.with_suffix("") if path.suffix == ".gz" else path
    with text.open("w", newline="", encoding="utf-8") as file:
        if ".csv" in path.name:
            writer = csv.writer(file)
            writer.writerow(names)
            writer.writerows(["" if cell is None else cell for cell in row] for row in rows)
        else:
            file.writelines(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.read_bytes()))
    return path
