"""The way through: two tables, column by column, to judged features.

opening -> records.Table -> features (a few columns in memory) -> judging -> report -> page
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from collector.reports.features import Feature, feature_of
from collector.reports.judging import Judged, Settings, judge
from collector.reports.records import Column, Progress, Table, TableError
from detectors.sequential.band import Gate

WORKERS = 2  # columns at a time: sorting releases the interpreter, memory is twice a column's
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Compared:
    """All that two tables tell; `skipped` has the columns that were not compared, and why."""

    reference: Table
    current: Table
    judged: tuple[Judged, ...]
    skipped: tuple[tuple[str, str], ...]


def compare(
    reference: Table,
    current: Table,
    settings: Settings,
    *,
    only: Collection[str] = (),
    progress: Progress,
) -> Compared:
    """Compare two tables.

    Args:
        reference: The table that says what is normal; its columns are the features.
        current: The table that is judged. A column that it lacks counts as missing in every row.
        settings: Gate, level and correction.
        only: Columns to compare; empty for all.
        progress: Told how far it is.

    Raises:
        TableError: If a column cannot be read, or one of `only` is not there.
    """
    names, skipped = _chosen(reference, current, only)
    features: list[Feature] = []
    with ThreadPoolExecutor(WORKERS) as workers:
        jobs = _found(workers, names, (reference, current), settings.gate)
        for place, (name, found) in enumerate(jobs, start=1):
            if isinstance(found, str):
                skipped.append((name, found))
            else:
                features.append(found)
            progress(f"comparing {name}", place / len(names))
    return Compared(reference, current, judge(features, settings), tuple(skipped))


def _found(
    workers: ThreadPoolExecutor, names: list[str], tables: tuple[Table, Table], gate: Gate
) -> Iterator[tuple[str, Feature | str]]:
    def one(name: str) -> Feature | str:
        reference, current = tables
        return feature_of(name, reference.read(name), _column(current, name), gate)

    yield from zip(names, workers.map(one, names), strict=True)


def _chosen(
    reference: Table, current: Table, only: Collection[str]
) -> tuple[list[str], list[tuple[str, str]]]:
    """Return the columns to compare, in the reference's order, and those left out with reasons."""
    unknown = [name for name in only if name not in reference.names]
    if unknown:
        some = ", ".join(map(repr, reference.names[:_SHOWN]))
        more = (
            "" if len(reference.names) <= _SHOWN else f" and {len(reference.names) - _SHOWN:,} more"
        )
        msg = f"{reference.path}: has no column {unknown[0]!r}; it has {some}{more}"
        raise TableError(msg)
    if only:
        return [name for name in reference.names if name in only], []
    skipped = [
        (name, "does not describe text, name it to compare it")
        for name in reference.names
        if name in reference.only_named
    ]
    skipped += [(name, "is not in REF") for name in current.names if name not in reference.names]
    return [name for name in reference.names if name not in reference.only_named], skipped


def _column(table: Table, name: str) -> Column:
    if name in table.names:
        return table.read(name)
    rows = -(-table.rows // table.stride)
    return replace(Column(rows, "no column"), missing=rows)
