"""Files of every format become the same columns; hostile ones end in words with the place."""

from __future__ import annotations

import gzip
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from collector.reports.records import Bounds, TableError
from tests.collector.reports.tables import opened, write

MIXED = {
    "latency": [0.5, None, 2.25, 1e300],
    "tokens": [1, 2**62 + 1, 3, 4],
    "huge": [2**64 - 1, 0, 1, 2],
    "model": ["a", "b", None, "a"],
}


@pytest.mark.parametrize("name", ["t.parquet", "t.csv", "t.csv.gz", "t.jsonl", "t.jsonl.gz"])
def test_every_format_gives_the_same_columns(tmp_path: Path, name: str) -> None:
    columns: dict[str, Any] = dict(MIXED)
    if name.endswith("parquet"):
        columns = {**MIXED, "huge": pa.array(MIXED["huge"], pa.uint64())}

    table = opened(write(tmp_path / name, columns))

    assert (table.rows, table.stride, table.remarks) == (4, 1, ())
    assert table.names == tuple(MIXED)
    latency, tokens, huge, model = map(table.read, table.names)
    assert latency.numbers.tolist() == [0.5, 2.25, 1e300]
    assert (latency.rows, latency.missing) == (4, 1)
    assert tokens.numbers.tolist() == [1, 3, 4, 2**62 + 1]
    assert huge.numbers.tolist() == [0, 1, 2, 2**64 - 1]
    assert model.texts == {"a": 2, "b": 1}
    assert model.text_lengths.tolist() == [1, 1, 1]
    assert (model.rows, model.missing) == (4, 1)


def test_parquet_types_are_numbers_texts_or_said_to_be_unfit(tmp_path: Path) -> None:
    moments = pa.array([1, 2, None], pa.timestamp("us"))
    table = pa.table(
        {
            "half": pa.array([1.5, None, np.nan], pa.float16()),
            "price": pa.array([Decimal("1.25"), Decimal(2), None]),
            "flag": [True, False, True],
            "coded": pa.array(["x", "y", "x"]).dictionary_encode(),
            "took": pa.array([1, 2, 3], pa.duration("ms")),
            "of_day": pa.array([1, 2, 3], pa.time32("s")),
            "nothing": pa.nulls(3),
            "at": moments,
            "list": [[1], [2], [3]],
            "bytes": [b"a", b"b", b"c"],
        }
    )
    pq.write_table(table, tmp_path / "t.parquet")

    found = opened(tmp_path / "t.parquet")

    columns = {name: found.read(name) for name in found.names}
    assert columns["half"].numbers.tolist() == [1.5]
    assert columns["half"].missing == 2
    assert columns["price"].numbers.tolist() == [1.25, 2.0]
    assert columns["flag"].texts == {"true": 2, "false": 1}
    assert columns["coded"].texts == {"x": 2, "y": 1}
    assert columns["took"].numbers.tolist() == [0.001, 0.002, 0.003]  # seconds
    assert columns["of_day"].numbers.tolist() == [1, 2, 3]
    assert columns["nothing"].missing == 3
    assert "moments" in columns["at"].unfit
    assert columns["list"].unfit
    assert columns["bytes"].unfit


def test_csv_cells_that_are_no_numbers_are_counted_with_their_first_line(tmp_path: Path) -> None:
    text = "n;s\n1;a\n2.5; NA \n#REF!;c\n;d\n 4 ;e\nnan;f\n-inf;g\n1;2;3\n"
    (tmp_path / "t.csv").write_text(text)

    table = opened(tmp_path / "t.csv")

    column = table.read("n")
    assert column.numbers.tolist() == [-np.inf, 1.0, 2.5, 4.0]
    assert column.missing == 2
    assert column.text_lengths.tolist() == [5]
    assert column.first_text == "line 4"
    assert table.remarks == (
        "1 row was left out for not having 2 cells; the first at line 9 has 3",
    )


def test_quoted_cells_may_hold_line_breaks_and_a_mark_may_come_first(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes('\ufeff"a,b",c\n"1\n2",3\n"x ""y""",4\n'.encode())

    table = opened(tmp_path / "t.csv")

    assert table.names == ("a,b", "c")
    assert table.read("c").numbers.tolist() == [3, 4]
    assert table.read("a,b").text_lengths.tolist() == [3, 5]


def test_json_rows_are_flattened_and_broken_lines_are_counted(tmp_path: Path) -> None:
    text = (
        '{"a": 1, "usage": {"in": 2, "out": {"x": 1.5}}, "tags": ["p"], "ok": true}\n\n'
        '{"a": NaN, "usage": {"in": 4}, "s": "t"}\n{"a": 3,\n{"a": 1e400}\n[1]\n'
    )
    (tmp_path / "t.jsonl").write_text(text)

    table = opened(tmp_path / "t.jsonl")

    assert (table.rows, set(table.names)) == (2, {"a", "usage.in", "usage.out.x", "ok", "s"})
    assert (table.read("a").numbers.tolist(), table.read("a").missing) == ([1], 1)
    assert table.read("usage.in").numbers.tolist() == [2, 4]
    assert table.read("s").missing == 1
    assert table.read("ok").texts == {"true": 1}
    assert "3 lines were left out, no rows; the first: line 4: " in table.remarks[0]
    assert table.remarks[1] == "tags holds lists, which are not compared"


@pytest.mark.parametrize("name", ["t.parquet", "t.csv", "t.jsonl"])
def test_of_a_long_file_every_so_manyth_row_is_read(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / name, {"n": list(range(1000)), "m": [1.5] * 1000})

    table = opened(path, Bounds(rows=300, cells=500))

    step = 5 if name.endswith("csv") else 4  # 1,001 lines of two columns in 500 cells
    assert table.stride == step
    assert table.read("n").numbers.tolist() == list(range(0, 1000, step))
    assert table.read("n").rows == len(range(0, 1000, step))


def hostile(folder: Path) -> dict[str, bytes]:
    """Files that cannot be compared."""
    whole = write(folder / "whole.parquet", {"a": list(range(10_000))}).read_bytes()
    row = b'{"a": 1}\n' * 3000
    return {
        "empty.csv": b"",
        "blank.csv": b"\n \n",
        "short.parquet": whole[: len(whole) // 2],
        "head.parquet": b"PAR1",
        "packed.parquet": gzip.compress(whole),
        "headless.csv": b"1,2\n3,4\n",
        "twice.csv": b"a,b,a\n1,2,3\n",
        "bare.csv": b"a,b\n",
        "ragged.csv": b"a,b\n1\n2\n",
        "latin.csv": "a,b\n1,2\n3,caf\xe9\n".encode("latin-1"),
        "utf16.csv": "a,b\n1,2\n".encode("utf-16"),
        "zeros.csv": b"a,b\n\0\0\0",
        "cut.csv.gz": gzip.compress(b"a,b\n" + bytes(str(list(range(99_999))), "ascii"))[:-20],
        "array.json": b'[{"a": 1}]',
        "text.jsonl": b"{not json}\n",
        "cut.jsonl.gz": gzip.compress(row)[:-9],
        "zip.csv": b"PK\x03\x04xxxx",
        "wide.csv": b",".join(b"c%d" % i for i in range(10_001)) + b"\n",
        "wide.jsonl": b"{" + b",".join(b'"c%d": 1' % i for i in range(10_001)) + b"}\n",
        "long.csv": b"a\n" + b"x" * 2000 + b"\n",
        "quote.csv": b'a,b\n1,"2\n' + b"3,4\n" * 1000,
        "mac.csv": b"a,b\r1,2\r",
        "generations.jsonl": b'{"request": {}, "response": {}}\n',
    }


WORDS = {
    "empty.csv": "is empty",
    "blank.csv": "is empty",
    "short.parquet": "no whole Parquet file",
    "head.parquet": "no whole Parquet file",
    "packed.parquet": "gzip around Parquet",
    "headless.csv": "line 1: all cells are numbers; begin with a line of column names",
    "twice.csv": "line 1, column 3: the name 'a' is taken",
    "bare.csv": "no row with 2 cells",
    "ragged.csv": "no row with 2 cells",
    "latin.csv": "line 3, byte 6: is no UTF-8",
    "utf16.csv": "UTF-16: save it as UTF-8",
    "zeros.csv": "zero bytes",
    "cut.csv.gz": "cannot be read",
    "array.json": "one object a line",
    "text.jsonl": "none of 1 lines is a row: line 1: ",
    "cut.jsonl.gz": "cannot be read",
    "zip.csv": "a zip archive",
    "wide.csv": "10,001 columns, expected at most 10,000",
    "wide.jsonl": "10,001 or more columns, expected at most 10,000",
    "long.csv": "line 2: is longer than 1,000 bytes",
    "quote.csv": "line 252: is no CSV: field larger than field limit",
    "mac.csv": "line 1: is no header",
    "generations.jsonl": "none of 1 lines is a generation",
}


@pytest.mark.parametrize("name", sorted(WORDS))
def test_a_hostile_file_is_refused_with_words_and_the_place(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(hostile(tmp_path)[name])
    bounds = Bounds(line_bytes=1000) if name in {"long.csv", "quote.csv"} else Bounds()

    with pytest.raises(TableError) as caught:
        opened(path, bounds)

    assert str(caught.value).startswith(f"{path}: ")
    assert WORDS[name] in str(caught.value)
    assert "caf" not in str(caught.value).removeprefix(str(path))


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="is no file"):
        opened(tmp_path)


def test_a_damaged_column_is_named_when_it_is_read(tmp_path: Path) -> None:
    path = write(tmp_path / "t.parquet", {"a": list(range(50_000))})
    data = bytearray(path.read_bytes())
    data[200:20_000] = bytes(19_800)
    path.write_bytes(bytes(data))
    table = opened(path)

    with pytest.raises(TableError, match="column 'a' cannot be read: "):
        table.read("a")


def test_a_long_cell_is_text_like_any_other(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b\n" + "x" * 500_000 + ",1\n")

    assert opened(tmp_path / "t.csv").read("a").text_lengths.tolist() == [500_000]


def test_parquet_with_too_many_columns_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "t.parquet", {f"c{i}": [1] for i in range(30)})

    with pytest.raises(TableError, match="30 columns, expected at most 29"):
        opened(path, Bounds(columns=29))


@pytest.mark.slow
def test_a_million_columns_are_refused_in_seconds(tmp_path: Path) -> None:
    names = [f"c{i}" for i in range(1_000_000)]
    (tmp_path / "t.csv").write_text(",".join(names) + "\n" + ",".join("1" * 1_000_000) + "\n")

    with pytest.raises(TableError, match="1,000,000 columns, expected at most 10,000"):
        opened(tmp_path / "t.csv")
