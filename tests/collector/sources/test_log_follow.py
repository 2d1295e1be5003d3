"""Log files as they live: growing, rotated, truncated, missing, endless lines, split writes."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.sources.logs import follow as log_follow
from collector.sources.logs.follow import LINE_BYTES, LogFollower
from collector.sources.logs.scan import scan
from tests.collector.sources.looked import FIXTURES

LIMIT = 65_536
WHOLE = b"".join(path.read_bytes() for path in sorted((FIXTURES / "logs").glob("*.txt")))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "server.log"


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def everything(follower: LogFollower, limit: int = LIMIT) -> bytes:
    """Read until two reads in a row give nothing."""
    found, idle = b"", 0
    while idle < 2:
        piece = follower.read(limit)
        assert not piece.problem
        found += piece.data
        idle = 0 if piece.data else idle + 1
    return found


def test_a_file_is_entered_at_its_end_and_followed(log: Path) -> None:
    append(log, b"old\nhalf")
    follower = LogFollower(log, from_end=True)

    entered = follower.read(LIMIT)
    append(log, b" and half\nnew\n")
    grown = follower.read(LIMIT)

    assert entered.data == b""
    assert follower.history == b"old\n"
    assert grown.data == b"half and half\nnew\n"


def test_a_file_that_appears_later_is_read_from_its_start(log: Path) -> None:
    follower = LogFollower(log, from_end=True)

    before = follower.read(LIMIT)
    append(log, b"first\n")
    after = follower.read(LIMIT)

    assert "no such file yet" in before.problem
    assert after.data == b"first\n"


def test_the_rest_of_a_file_that_was_renamed_is_read_before_the_new_one(log: Path) -> None:
    append(log, b"1\n")
    follower = LogFollower(log, from_end=False)
    assert everything(follower) == b"1\n"

    append(log, b"2\nunfinished")
    log.rename(log.with_suffix(".log.1"))
    append(log, b"3\n")

    assert everything(follower) == b"2\nunfinished\n3\n"


def test_a_file_that_was_truncated_is_read_from_its_start_also_when_it_grew_again(
    log: Path,
) -> None:
    append(log, b"1\n2\n")
    follower = LogFollower(log, from_end=False)
    everything(follower)

    log.write_bytes(b"a\n")
    shorter = follower.read(LIMIT)
    log.write_bytes(b"b\nc\nd\n")
    longer = follower.read(LIMIT)

    assert (shorter.data, shorter.restarts) == (b"a\n", 1)
    assert (longer.data, longer.restarts) == (b"b\nc\nd\n", 1)


def test_a_line_without_end_is_cut_and_memory_stays_bounded(log: Path) -> None:
    append(log, b"x" * (3 * LINE_BYTES + 5))
    follower = LogFollower(log, from_end=False)

    piece = follower.read(LIMIT)
    append(log, b"y\nshort\n")
    rest = follower.read(LIMIT)

    assert piece.long_lines == 3
    assert {len(line) for line in piece.data.split(b"\n")[:-1] if line} == {LINE_BYTES}
    assert rest.data == b"xxxxxy\nshort\n"


def test_a_progress_bar_ends_its_lines_with_a_carriage_return(log: Path) -> None:
    append(log, b"  0%\r 50%\r100%")
    follower = LogFollower(log, from_end=False)

    assert follower.read(LIMIT).data == b"  0%\n 50%\n"


def test_one_read_is_bounded_and_says_what_is_left(log: Path) -> None:
    append(log, b"0123456789abcde\n" * 10_000)
    follower = LogFollower(log, from_end=False)

    piece = follower.read(LIMIT)

    assert len(piece.data) == LIMIT
    assert piece.lag_bytes == 160_000 - LIMIT
    assert len(everything(follower)) == 160_000 - LIMIT


def test_what_can_never_be_caught_up_with_is_passed_over_and_counted(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_follow, "MOST_LAG_BYTES", 100_000)
    append(log, b"0123456789abcde\n" * 10_000)
    follower = LogFollower(log, from_end=False)

    piece = follower.read(LIMIT)

    assert piece.jumped_bytes == 160_000 - LIMIT
    assert piece.lag_bytes == 0


def test_a_pipe_and_a_folder_are_refused_and_hold_nobody_up(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    assert "regular file" in LogFollower(pipe, from_end=False).read(LIMIT).problem
    assert LogFollower(tmp_path, from_end=False).read(LIMIT).problem


@contextmanager
def as_nobody() -> Iterator[None]:
    """Give up root's right to read everything, for the length of the block."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(65_534)
    try:
        yield
    finally:
        os.seteuid(before)


def test_a_file_that_may_not_be_read_says_so() -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)  # so that it is the file that is refused
        log = Path(folder) / "server.log"
        append(log, b"secret\n")
        log.chmod(0)

        with as_nobody():
            problem = LogFollower(log, from_end=False).read(LIMIT).problem
        log.chmod(0o644)
        with as_nobody():
            readable = LogFollower(log, from_end=False).read(LIMIT).problem

    assert "permission denied" in problem
    assert readable == ""


def test_the_words_for_a_file_that_may_not_be_read_say_what_to_do(log: Path) -> None:
    words = log_follow._words(log, PermissionError(13, "Permission denied"))

    assert words == f"log {log}: permission denied; let the user that runs Fusewire read it"


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, len(WHOLE)), max_size=12), st.integers(2 * LINE_BYTES, LIMIT))
def test_how_writes_are_split_changes_no_count(cuts: list[int], limit: int) -> None:
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "server.log"
        follower = LogFollower(log, from_end=False)
        edges = [0, *sorted(cuts), len(WHOLE)]
        for start, stop in pairwise(edges):
            append(log, WHOLE[start:stop])
            counts += scan(follower.read(limit).data).counts
        counts += scan(everything(follower, limit)).counts
        follower.close()

    assert counts == scan(WHOLE).counts
