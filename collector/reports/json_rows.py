"""JSON lines whose objects are rows: members are columns, members of members have dotted names."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import msgspec
import numpy as np

from collector.reports.lines import Lines
from collector.reports.records import ColumnBuilder, Table, TableError, stride_for
from detectors.two_sample import NumberArray

_PIECE_ROWS = 20_000
_DEEPEST = 8
_LISTED = "holds lists, which are not compared"


@dataclass
class _Rows:
    """What was read of a file: columns by name, and lines that are no row."""

    builders: dict[str, ColumnBuilder] = field(default_factory=dict)
    lists: set[str] = field(default_factory=set)
    taken: int = 0
    refused: int = 0
    first_refused: str = ""


def open_json_rows(lines: Lines) -> Table:
    """Read JSON lines whole, every k-th of a file over the bounds.

    Raises:
        TableError: If no line is a row, or there are too many columns.
    """
    total = lines.count()
    state = _Rows()
    width = len(next(_rows(lines, _Rows(), 1), {}))
    stride = stride_for(total, width, lines.bounds)
    piece: dict[str, list[object]] = {}
    for place, row in enumerate(_rows(lines, state, stride), start=1):
        for name, value in row.items():
            piece.setdefault(name, []).append(value)
        if len(piece) > lines.bounds.columns:
            raise _too_wide(lines, len(piece))
        if place % _PIECE_ROWS == 0:
            _settle(state, piece)
            piece = {}
    _settle(state, piece)
    if state.taken == 0:
        msg = (
            f"{lines.path}: none of {total:,} lines is a row: {state.first_refused}; "
            "write one JSON object a line"
        )
        raise TableError(msg)
    for builder in state.builders.values():
        builder.take_missing(-(-state.taken // stride) - builder.rows)
    columns = {name: builder.built() for name, builder in state.builders.items()}
    return Table(
        lines.path, state.taken, stride, tuple(columns), columns.__getitem__, _remarks(state)
    )


def _too_wide(lines: Lines, width: int) -> TableError:
    return TableError(
        f"{lines.path}: {width:,} or more columns, expected at most {lines.bounds.columns:,}; "
        "write a file with the columns to compare"
    )


def _rows(lines: Lines, state: _Rows, stride: int) -> Iterator[dict[str, object]]:
    """Yield every stride-th row, flat; count the others and what is no row."""
    decoder = msgspec.json.Decoder(dict[str, object])
    for number, line in lines.all():
        if stride > 1 and state.taken % stride:
            state.taken += 1
            continue
        try:
            row = _decoded(decoder, line)
        except (ValueError, RecursionError) as error:
            state.refused += 1
            why = str(error) if isinstance(error, msgspec.DecodeError) else "no JSON object"
            state.first_refused = state.first_refused or f"line {number}: {why}"
            continue
        state.taken += 1
        yield row if _is_flat(row) else dict(_flat(row, "", state.lists, 0))


def _decoded(decoder: msgspec.json.Decoder[dict[str, object]], line: bytes) -> dict[str, object]:
    """Return a line's object; NaN and Infinity, which are no JSON, are read as Python writes them.

    Raises:
        ValueError: If it is no object.
    """
    try:
        return decoder.decode(line)
    except msgspec.DecodeError:
        if not (b"NaN" in line or b"Infinity" in line):
            raise
    row = json.loads(line)
    if not isinstance(row, dict):
        msg = "no object"
        raise TypeError(msg)
    return row


def _is_flat(row: Mapping[str, object]) -> bool:
    kinds = set(map(type, row.values()))
    return dict not in kinds and list not in kinds


def _flat(
    row: Mapping[str, object], before: str, lists: set[str], depth: int
) -> Iterator[tuple[str, object]]:
    for member, value in row.items():
        name = before + member
        if isinstance(value, list):
            lists.add(name)
        elif isinstance(value, dict):
            if depth < _DEEPEST:
                yield from _flat(value, f"{name}.", lists, depth + 1)
        else:
            yield name, value


def _settle(state: _Rows, piece: Mapping[str, list[object]]) -> None:
    for name, values in piece.items():
        take_values(state.builders.setdefault(name, ColumnBuilder()), values)


def take_values(builder: ColumnBuilder, values: list[object]) -> None:
    """Add JSON values (n,) of one column."""
    kinds = set(map(type, values))
    if kinds <= {int, float}:
        builder.take_numbers(_numbers(values))
        return
    numbers = [value for value in values if type(value) in {int, float}]
    truths = [str(value).lower() for value in values if isinstance(value, bool)]
    texts = [value for value in values if isinstance(value, str)]
    builder.take_missing(sum(value is None for value in values))
    builder.take_numbers(_numbers(numbers))
    for found, kind in ((truths, "truth value"), (texts, "text")):
        lengths = np.fromiter(map(len, found), np.int64, len(found))
        builder.take_texts(Counter(found) if builder.texts is not None else {}, lengths, kind=kind)


def _numbers(values: list[object]) -> NumberArray:
    if all(type(value) is int for value in values):
        for kind in (np.int64, np.uint64):
            try:
                return np.array(values, dtype=kind)
            except OverflowError:
                continue
    try:
        return np.array(values, dtype=np.float64)
    except OverflowError:  # a whole number over 1e308: infinite
        return np.array([float(str(value)) for value in values], dtype=np.float64)


def _remarks(state: _Rows) -> tuple[str, ...]:
    found = []
    if state.refused:
        lines = "line was" if state.refused == 1 else "lines were"
        found.append(
            f"{state.refused:,} {lines} left out, no rows; the first: {state.first_refused}"
        )
    found += [f"{name} {_LISTED}" for name in sorted(state.lists)]
    return tuple(found)
