"""CSV: a header line, then rows; commas, semicolons, tabs or bars between cells."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from collector.reports.lines import Lines
from collector.reports.records import ColumnBuilder, Table, TableError, stride_for
from detectors.two_sample import NumberArray

_PIECE_ROWS = 20_000
_MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "#n/a", "-nan", "<na>"})
_DELIMITERS = ",;\t|"


@dataclass
class _Rows:
    """How far a file is read, and the rows that do not fit its header."""

    width: int
    taken: int = 0
    ragged: int = 0
    first_ragged: tuple[int, int] = (0, 0)  # line, cells
    numbers: list[int] = field(default_factory=list)  # the lines of the piece


def open_delimited(lines: Lines) -> Table:
    """Read a CSV file whole, every k-th row of one over the bounds.

    Raises:
        TableError: If it has no header, no rows, too many columns, or is no CSV.
    """
    total = lines.count()
    csv.field_size_limit(lines.bounds.line_bytes)  # of the process; its 128 kB is short of a prompt
    texts = _Numbered(lines)
    names, delimiter = _header(texts, lines)
    stride = stride_for(total, len(names), lines.bounds)
    builders = [ColumnBuilder() for _ in names]
    state = _Rows(len(names))
    try:
        reader = csv.reader(texts, delimiter=delimiter, strict=False)
        for piece in _pieces(reader, texts, state, stride):
            for builder, cells in zip(builders, zip(*piece, strict=True), strict=True):
                take_cells(builder, cells, state.numbers)
    except csv.Error as error:
        msg = f"{lines.path}: line {texts.number}: is no CSV: {error}; check its quotes"
        raise TableError(msg) from error
    if state.taken == 0:
        msg = f"{lines.path}: has a header and no row with {len(names)} cells below it"
        raise TableError(msg)
    columns = {name: one.built() for name, one in zip(names, builders, strict=True)}
    return Table(
        path=lines.path,
        rows=state.taken,
        stride=stride,
        names=tuple(names),
        read=columns.__getitem__,
        remarks=_remarks(state),
    )


@dataclass
class _Numbered:
    """The lines as text, which remembers the number of the newest."""

    lines: Lines
    number: int = 0
    _texts: Iterator[tuple[int, str]] | None = None

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        if self._texts is None:
            self._texts = self.lines.texts()
        self.number, text = next(self._texts)
        return text


def _header(texts: _Numbered, lines: Lines) -> tuple[list[str], str]:
    first = next(texts, "")
    counts = {one: first.count(one) for one in _DELIMITERS}
    delimiter = max(counts, key=lambda one: (counts[one], -_DELIMITERS.index(one)))
    try:
        cells = next(csv.reader([first], delimiter=delimiter, strict=True))
    except csv.Error as error:
        msg = f"{lines.path}: line 1: is no header of a CSV file: {error}; name each column"
        raise TableError(msg) from error
    names = [cell.strip() or f"column {place}" for place, cell in enumerate(cells, start=1)]
    if len(names) > lines.bounds.columns:
        msg = (
            f"{lines.path}: line 1: {len(names):,} columns, expected at most "
            f"{lines.bounds.columns:,}; write a file with the columns to compare"
        )
        raise TableError(msg)
    if all(_is_number(cell) for cell in cells):
        msg = f"{lines.path}: line 1: all cells are numbers; begin with a line of column names"
        raise TableError(msg)
    twice = [place for place, name in enumerate(names) if name in names[:place]][:1]
    if twice:
        msg = (
            f"{lines.path}: line 1, column {twice[0] + 1}: the name {names[twice[0]]!r} is taken; "
            "give each column a name of its own"
        )
        raise TableError(msg)
    return names, delimiter


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _pieces(
    reader: Iterator[list[str]], texts: _Numbered, state: _Rows, stride: int
) -> Iterator[list[list[str]]]:
    """Yield rows of the right width, in pieces; `state` has the line number of each."""
    piece: list[list[str]] = []
    state.numbers = []
    for place, cells in enumerate(reader):
        if len(cells) != state.width:
            if not state.ragged:
                state.first_ragged = (texts.number, len(cells))
            state.ragged += 1
            continue
        state.taken += 1
        if place % stride:
            continue
        piece.append(cells)
        state.numbers.append(texts.number)
        if len(piece) == _PIECE_ROWS:
            yield piece
            piece, state.numbers = [], []
    if piece:
        yield piece


def take_cells(builder: ColumnBuilder, cells: Sequence[str], numbers: Sequence[int]) -> None:
    """Add cells (n,) of one column: numbers if they read as such, else texts.

    Args:
        builder: The column.
        cells: Its cells as text.
        numbers: The line of each.
    """
    values = _numbers(cells)
    if values is not None:
        builder.take_numbers(values)
        return
    found: list[str] = []
    texts: list[str] = []
    for cell, number in zip(cells, numbers, strict=True):
        if cell.strip().lower() in _MISSING:
            continue
        if _is_number(cell):
            found.append(cell)
        else:
            texts.append(cell)
            builder.first_text = builder.first_text or f"line {number}"
    builder.take_missing(len(cells) - len(found) - len(texts))
    values = _numbers(found)
    if values is not None:
        builder.take_numbers(values)
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    builder.take_texts(Counter(texts) if builder.texts is not None else {}, lengths, kind="text")


def _numbers(cells: Sequence[str]) -> NumberArray | None:
    """Return the cells as whole numbers if all are, else as floats, else nothing."""
    try:
        whole = list(map(int, cells))
    except ValueError:
        pass
    else:
        for kind in (np.int64, np.uint64, np.float64):
            try:
                return np.array(whole, dtype=kind)
            except OverflowError:
                continue
        return np.array(list(map(float, cells)))  # over 1e308: infinite
    try:
        return np.array(list(map(float, cells)))
    except ValueError:
        return None


def _remarks(state: _Rows) -> tuple[str, ...]:
    if not state.ragged:
        return ()
    line, cells = state.first_ragged
    rows = "row was" if state.ragged == 1 else "rows were"
    left = f"{state.ragged:,} {rows} left out for not having {state.width} cells"
    return (f"{left}; the first at line {line} has {cells}",)
