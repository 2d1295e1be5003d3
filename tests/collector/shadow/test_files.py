"""Plain or packed, long or cut off: lines with their numbers, or where it ended."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest

from collector.shadow.files import lines_of
from collector.shadow.records import FileProblemError, RawLine


def lines(path: Path, line_bytes: int = 100) -> list[RawLine]:
    return list(lines_of(path, line_bytes=line_bytes))


@pytest.mark.parametrize("packed", [True, False])
def test_lines_are_numbered_and_blank_ones_left_out(tmp_path: Path, packed: bool) -> None:
    path = tmp_path / "lines"
    data = b"one\n\n  \ntwo\r\nlast"
    path.write_bytes(gzip.compress(data) if packed else data)

    assert [(one.number, one.data.strip()) for one in lines(path)] == [
        (1, b"one"),
        (4, b"two"),
        (5, b"last"),
    ]


@pytest.mark.parametrize("length", [99, 100, 101, 250, 300, 5_000])
def test_a_line_that_is_too_long_is_passed_over(tmp_path: Path, length: int) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"x" * length + b"\nnext\n")
    found = lines(path)

    assert [one.oversized for one in found] == [length > 100, False]
    assert (found[1].number, found[1].data) == (2, b"next\n")
    assert len(found[0].data) == (0 if length > 100 else length + 1)


def test_a_line_as_long_as_may_be_at_the_end_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"x" * 100)

    assert [(one.oversized, len(one.data)) for one in lines(path)] == [(False, 100)]


def test_a_file_that_is_cut_off_says_after_which_line(tmp_path: Path) -> None:
    path = tmp_path / "lines.gz"
    path.write_bytes(gzip.compress(bytes(range(97, 110)) * 4 + b"\nnext\n" * 3)[:-12])

    with pytest.raises(
        FileProblemError, match=rf"{re.escape(str(path))}: cannot be read after line"
    ):
        lines(path)


def test_a_damaged_packing_is_a_problem_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "lines.gz"
    packed = bytearray(gzip.compress(b"line\n" * 200))
    packed[12:20] = b"\xff" * 8
    path.write_bytes(packed)

    with pytest.raises(FileProblemError, match="give a whole file"):
        lines(path)


@pytest.mark.parametrize("name", ["", "absent"])
def test_a_folder_or_nothing_is_no_file(tmp_path: Path, name: str) -> None:
    with pytest.raises(FileProblemError, match="is no file"):
        lines(tmp_path / name)


def test_the_place_in_the_file_is_told(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"a\nb\n")
    places: list[int] = []

    list(lines_of(path, line_bytes=100, progress=places.append))

    assert len(places) == 2
    assert places[-1] == 4
