"""Parquet by pyarrow, one column at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from collector.reports.extra import need
from collector.reports.records import (
    MOST_CATEGORIES,
    Bounds,
    Column,
    ColumnBuilder,
    Table,
    TableError,
)

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

_BATCH_ROWS = 1 << 18
_UNITS_A_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


@dataclass(frozen=True, slots=True)
class _File:
    """An open file's footer; columns are read through handles of their own, from any thread."""

    path: Path
    metadata: pq.FileMetaData
    schema: pa.Schema
    stride: int

    def read(self, name: str) -> Column:
        import pyarrow as pa

        kind = self.schema.field(name).type
        unfit = _unfit(kind)
        if unfit:
            return Column(-(-self.metadata.num_rows // self.stride), str(kind), unfit=unfit)
        builder = ColumnBuilder()
        try:
            for array in self._arrays(name):
                _take(builder, array)
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            why = f"column {name!r} cannot be read: {_first_line(error)}"
            msg = f"{self.path}: {why}; write the file anew"
            raise TableError(msg) from error
        return builder.built()

    def _arrays(self, name: str) -> Iterator[pa.Array]:
        """Yield every stride-th value, batch by batch."""
        import pyarrow.parquet as pq

        skipped = 0
        with pq.ParquetFile(self.path, metadata=self.metadata) as file:
            for batch in file.iter_batches(_BATCH_ROWS, columns=[name], use_threads=False):
                array = batch.column(0)
                if self.stride > 1:
                    size = len(array)
                    array = array.take(np.arange(skipped, size, self.stride))
                    skipped = (skipped - size) % self.stride
                yield array


def open_parquet(path: Path, bounds: Bounds) -> Table:
    """Open a Parquet file: only its footer is read now, and each column when it is compared.

    Raises:
        TableError: If pyarrow is not installed, the file is damaged, or it has too many columns.
    """
    need("pyarrow", f"{path}: reading Parquet")
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            metadata = file.metadata
            if metadata.num_columns > bounds.columns:
                raise TableError(_too_wide(path, metadata.num_columns, bounds))
            schema = file.schema_arrow
    except (pa.ArrowException, OSError) as error:
        msg = f"{path}: is no whole Parquet file: {_first_line(error)}; write it anew"
        raise TableError(msg) from error
    twice = [name for name, count in Counter(schema.names).items() if count > 1]
    if twice:
        msg = (
            f"{path}: {len(twice):,} column names are there twice, the first is {twice[0]!r}; "
            "give each column a name of its own"
        )
        raise TableError(msg)
    if metadata.num_rows == 0:
        msg = f"{path}: has no rows; nothing can be compared"
        raise TableError(msg)
    stride = max(-(-metadata.num_rows // bounds.rows), 1)
    found = _File(path, metadata, schema, stride)
    return Table(path, metadata.num_rows, stride, tuple(schema.names), found.read)


def _too_wide(path: Path, columns: int, bounds: Bounds) -> str:
    return (
        f"{path}: {columns:,} columns, expected at most {bounds.columns:,}; "
        "write a file with the columns to compare"
    )


def _unfit(kind: pa.DataType) -> str:
    """Say why a type is not compared; empty if it is."""
    from pyarrow import types

    if types.is_dictionary(kind):
        return _unfit(kind.value_type)
    if types.is_timestamp(kind) or types.is_date(kind):
        return "holds moments: they differ between any two files"
    fit = (
        *(types.is_integer, types.is_floating, types.is_decimal, types.is_boolean),
        *(types.is_string, types.is_large_string, types.is_string_view),
        *(types.is_time, types.is_duration, types.is_null),
    )
    return "" if any(test(kind) for test in fit) else "holds neither numbers nor text"


def _take(builder: ColumnBuilder, array: pa.Array) -> None:
    """Add an array of a type that is fit to a column."""
    import pyarrow as pa
    from pyarrow import compute, types

    if types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if array.null_count:
        builder.take_missing(array.null_count)
        array = array.drop_null()
    kind = array.type
    if types.is_boolean(kind):
        array = compute.if_else(array, "true", "false")
        _take_texts(builder, array, "truth value")
    elif types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        _take_texts(builder, array, "text")
    elif types.is_decimal(kind):
        builder.take_numbers(array.cast(pa.float64()).to_numpy())
    elif types.is_time(kind) or types.is_duration(kind):
        whole = pa.int32() if kind.bit_width == 32 else pa.int64()  # noqa: PLR2004  # time32
        builder.take_numbers(array.cast(whole).to_numpy() / _UNITS_A_SECOND[kind.unit])
    elif not types.is_null(kind):
        builder.take_numbers(array.to_numpy(zero_copy_only=False))


def _take_texts(builder: ColumnBuilder, array: pa.Array, kind: str) -> None:
    from pyarrow import compute

    lengths = compute.utf8_length(array).to_numpy().astype(np.int64)
    counts: dict[str, int] = {}
    if builder.texts is not None:
        for one in compute.value_counts(array)[: MOST_CATEGORIES + 1]:
            counts[one["values"].as_py()] = one["counts"].as_py()
    builder.take_texts(counts, lengths, kind=kind)


def _first_line(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
