"""What a file becomes before it is compared: a table of columns, read one at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import numpy as np

from detectors.records import IntArray
from detectors.two_sample import NumberArray

MOST_CATEGORIES = 100  # distinct texts of a column; with more it is free text
MOST_CATEGORY_LETTERS = 64
Progress: TypeAlias = Callable[[str, float], None]  # what is done, and the share of it, 0 to 1


class TableError(ValueError):
    """A file that cannot be compared; the message says where and what to do, never what it held."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What reading a file may cost.

    Of a longer file every k-th row is read, with the smallest k that holds `rows` a column and
    `cells` in all (of formats that are read whole; Parquet is read column by column).
    """

    rows: int = 10_000_000
    cells: int = 100_000_000
    columns: int = 10_000
    line_bytes: int = 16 << 20


@dataclass(frozen=True, slots=True)
class Column:
    """The values of one column, by what they are; every row is in exactly one of the parts.

    `numbers` (a,) holds the numbers without NaN, in the file's own type, ascending. `missing`
    counts nulls, NaN and empty cells. Texts and truth values are counted by value in `texts` while
    there are few short ones (else None), and `text_lengths` (b,) has their lengths in characters,
    ascending. `stored` names the type for people; `first_text` says where the first text stands
    ("line 17"), if known. `unfit` says why the column cannot be compared, empty if it can.
    """

    rows: int
    stored: str
    numbers: NumberArray = field(default_factory=lambda: np.empty(0))
    missing: int = 0
    texts: Mapping[str, int] | None = field(default_factory=dict)
    text_lengths: IntArray = field(default_factory=lambda: np.empty(0, np.int64))
    first_text: str = ""
    unfit: str = ""

    @property
    def present(self) -> int:
        return self.rows - self.missing


@dataclass(frozen=True, slots=True)
class Table:
    """A file that is open for comparison. `read` gives a column by its name, from any thread.

    `rows` is what the file holds, `stride` that every stride-th of them is read; `remarks` are
    sentences about what a person should know (rows that were left out, and why). Columns in
    `only_named` are compared only if they are asked for.
    """

    path: Path
    rows: int
    stride: int
    names: tuple[str, ...]
    read: Callable[[str], Column]
    remarks: tuple[str, ...] = ()
    only_named: frozenset[str] = frozenset()


def stride_for(rows: int, columns: int, bounds: Bounds) -> int:
    """Return which rows are read of a file that is held whole: every so many-th."""
    most = max(min(bounds.rows, bounds.cells // max(columns, 1)), 1)
    return max(-(-rows // most), 1)


@dataclass
class ColumnBuilder:
    """A column being read piece by piece."""

    rows: int = 0
    numbers: list[NumberArray] = field(default_factory=list)
    missing: int = 0
    texts: Counter[str] | None = field(default_factory=Counter)
    lengths: list[IntArray] = field(default_factory=list)
    kinds: set[str] = field(default_factory=set)
    first_text: str = ""

    def take_numbers(self, values: NumberArray) -> None:
        """Add numbers (n,); NaN counts as missing."""
        if values.dtype.kind == "f":
            known = ~np.isnan(values)
            if not known.all():
                self.missing += len(values) - int(known.sum())
                self.rows += len(values) - int(known.sum())
                values = values[known]
        if len(values):
            self.rows += len(values)
            self.numbers.append(values)
            self.kinds.add(str(values.dtype))

    def take_missing(self, count: int) -> None:
        self.missing += count
        self.rows += count

    def take_texts(self, counts: Mapping[str, int], lengths: IntArray, *, kind: str) -> None:
        """Add texts by value, and their lengths (n,), in characters."""
        if len(lengths) == 0:
            return
        self.rows += len(lengths)
        self.lengths.append(lengths)
        self.kinds.add(kind)
        if self.texts is None:
            return
        self.texts.update(counts)
        longest = int(lengths.max(initial=0))
        if len(self.texts) > MOST_CATEGORIES or longest > MOST_CATEGORY_LETTERS:
            self.texts = None

    def built(self) -> Column:
        """Return the column; each part is sorted here, once, and the builder is empty after."""
        numbers = np.concatenate(self.numbers) if self.numbers else np.empty(0)
        lengths = np.concatenate(self.lengths) if self.lengths else np.empty(0, np.int64)
        self.numbers, self.lengths = [], []
        numbers.sort()
        lengths.sort()
        return Column(
            rows=self.rows,
            stored=" and ".join(sorted(self.kinds)) or "nothing",
            numbers=numbers,
            missing=self.missing,
            texts=None if self.texts is None else dict(self.texts),
            text_lengths=lengths,
            first_text=self.first_text,
        )
