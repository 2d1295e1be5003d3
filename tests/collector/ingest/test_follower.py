"""Following a file through everything that writers and rotation do to it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.ingest.follower import Follower
from tests.collector.busy_threads import busy_threads, turns


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "generations.jsonl"


def add(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def a_follower(path: Path, **settings: int) -> Follower:
    return Follower(path, max_line_bytes=settings.pop("longest", 1000), **settings)  # type: ignore[arg-type]  # ints


def all_of(follower: Follower, reads: int = 4) -> str:
    return b"".join(follower.read_now().payload for _ in range(reads)).decode()


def test_lines_come_once_and_in_order(log: Path) -> None:
    add(log, "one\ntwo\n")
    follower = a_follower(log)

    first = follower.read_now()
    add(log, "three\n")
    second = follower.read_now()
    third = follower.read_now()

    assert (first.payload, second.payload, third.payload) == (b"one\ntwo\n", b"three\n", b"")
    assert third.lag_bytes == 0


def test_a_missing_file_is_waited_for(log: Path) -> None:
    follower = a_follower(log)

    before = follower.read_now()
    add(log, "one\n")
    after = follower.read_now()

    assert "no such file" in before.problem
    assert (after.payload, after.problem) == (b"one\n", "")


def test_a_folder_that_is_missing_is_a_problem_not_an_exception(tmp_path: Path) -> None:
    assert a_follower(tmp_path / "none" / "file").read_now().problem
    assert "directory" in a_follower(tmp_path).read_now().problem.lower()


def test_a_partial_last_line_waits_for_its_end(log: Path) -> None:
    add(log, "one\ntw")
    follower = a_follower(log)

    first, second = follower.read_now(), follower.read_now()
    add(log, "o\n")
    third = follower.read_now()

    assert (first.payload, second.payload, third.payload) == (b"one\n", b"", b"two\n")
    assert second.lag_bytes == 2


def test_a_renamed_file_is_read_to_its_end_before_the_new_one(log: Path) -> None:
    add(log, "one\n")
    follower = a_follower(log)
    follower.read_now()

    log.rename(log.with_suffix(".1"))
    add(log.with_suffix(".1"), "late\n")  # the writer has not noticed yet
    add(log, "new\n")

    assert all_of(follower) == "late\nnew\n"


def test_a_line_without_end_is_given_up_when_its_file_is_gone(log: Path) -> None:
    add(log, "one\ncut of")
    follower = a_follower(log)
    assert follower.read_now().payload == b"one\n"

    log.rename(log.with_suffix(".1"))
    add(log, "new\n")

    assert [follower.read_now().payload for _ in range(4)] == [
        b"",
        b"cut of",
        b"new\n",
        b"",
    ]


def test_a_truncated_file_is_read_from_its_start(log: Path) -> None:
    add(log, "one\ntwo\n")
    follower = a_follower(log)
    follower.read_now()

    log.write_text("a\n")
    chunk = follower.read_now()

    assert (chunk.payload, chunk.restarts) == (b"a\n", 1)


def test_a_file_truncated_and_grown_past_the_position_is_noticed_by_its_bytes(log: Path) -> None:
    add(log, "one\ntwo\n")
    follower = a_follower(log)
    follower.read_now()

    log.write_text("something else that is longer\n")
    chunk = follower.read_now()

    assert (chunk.payload, chunk.restarts) == (b"something else that is longer\n", 1)


def test_a_line_that_is_too_long_is_skipped_and_counted(log: Path) -> None:
    add(log, "one\n" + "x" * 5000 + "\ntwo\n")
    follower = a_follower(log, longest=100, read_bytes=64)

    chunks = [follower.read_now() for _ in range(100)]

    assert b"".join(chunk.payload for chunk in chunks) == b"one\ntwo\n"
    assert sum(chunk.skipped for chunk in chunks) == 1


def test_a_long_line_within_the_limit_is_read_though_longer_than_a_read(log: Path) -> None:
    add(log, "x" * 500 + "\ny\n")

    assert all_of(a_follower(log, longest=1000, read_bytes=64)) == "x" * 500 + "\ny\n"


def test_reads_are_bounded(log: Path) -> None:
    add(log, "0123456\n" * 1000)
    follower = a_follower(log, read_bytes=100)

    chunks = [follower.read_now() for _ in range(90)]

    assert max(len(chunk.payload) for chunk in chunks) <= 100
    assert b"".join(chunk.payload for chunk in chunks) == log.read_bytes()


def test_a_restart_goes_on_where_the_last_one_stopped(log: Path) -> None:
    add(log, "one\ntw")
    before = a_follower(log)
    before.read_now()
    before.close()

    add(log, "o\n")
    after = Follower(log, max_line_bytes=1000, position=before.position)

    assert all_of(after) == "two\n"


def test_a_restart_after_a_rotation_first_finishes_the_renamed_file(log: Path) -> None:
    add(log, "one\n")
    before = a_follower(log)
    before.read_now()
    before.close()

    add(log, "two\n")
    log.rename(log.with_name("generations.jsonl.1"))
    add(log, "three\n")
    after = Follower(log, max_line_bytes=1000, position=before.position)

    assert all_of(after) == "two\nthree\n"


def test_a_restart_after_the_old_file_is_gone_reads_the_new_one(log: Path, tmp_path: Path) -> None:
    add(log, "one\n")
    before = a_follower(log)
    before.read_now()
    before.close()

    add(tmp_path / "other", "all new and longer\n")
    (tmp_path / "other").replace(log)
    after = Follower(log, max_line_bytes=1000, position=before.position)

    assert all_of(after) == "all new and longer\n"


@given(
    st.lists(st.tuples(st.sampled_from(["add", "read", "rotate"]), st.integers(1, 40)), max_size=30)
)
def test_no_order_of_writes_reads_and_rotations_loses_or_doubles_a_line(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]
) -> None:
    log = tmp_path_factory.mktemp("log") / "f"
    follower = a_follower(log, read_bytes=64)
    written, got, number = "", b"", 0
    for step, amount in steps:
        if step == "add":
            line = f"{len(written)}:" + "z" * amount + "\n"
            add(log, line)
            written += line
        elif step == "rotate" and log.exists() and follower.position is not None:
            for _ in range(50):  # rotations are far apart: the follower sees each file
                got += follower.read_now().payload
            number += 1
            log.rename(log.with_name(f"f.{number}"))
        else:
            got += follower.read_now().payload
    for _ in range(100):
        got += follower.read_now().payload
    follower.close()

    assert got.decode() == written


def test_a_new_file_of_the_same_size_is_new(log: Path) -> None:
    add(log, "one\n")
    follower = a_follower(log)
    all_of(follower)

    log.rename(log.with_suffix(".1"))
    add(log, "two\n")

    assert all_of(follower) == "two\n"


@pytest.mark.anyio
async def test_reading_does_not_hold_the_loop(log: Path) -> None:
    add(log, "one\n")

    async with busy_threads() as gate:
        reading = asyncio.create_task(a_follower(log).read())
        await turns()
        held = reading.done()
        gate.set()
        chunk = await reading

    assert not held, "it was read on the loop"
    assert chunk.payload == b"one\n"


@pytest.mark.parametrize(
    ("history", "expected"),
    [
        ("", "new\n"),
        ("old\nolder\n", "new\n"),
        ("old\nhalf of a ", "half of a new\n"),  # a line being written is not history
        ("half of a ", "half of a new\n"),
        ("old\n" + "x" * 990, "x" * 990 + "new\n"),
    ],
)
def test_a_file_that_is_there_at_the_start_is_entered_behind_its_last_line(
    log: Path, history: str, expected: str
) -> None:
    add(log, history)
    follower = a_follower(log, from_end=True)

    before = follower.read_now()
    add(log, "new\n")

    assert (before.payload, before.restarts) == (b"", 0)
    assert all_of(follower) == expected


def test_the_end_inside_a_line_that_is_too_long_waits_for_the_next(log: Path) -> None:
    add(log, "old\n" + "x" * 5000)
    follower = a_follower(log, from_end=True, longest=100)

    before = follower.read_now()
    add(log, "xx\nnew\n")

    assert before.payload == b""
    assert all_of(follower) == "new\n"


def test_a_file_that_appears_later_is_read_from_its_start(log: Path) -> None:
    follower = a_follower(log, from_end=True)

    missing = follower.read_now()
    add(log, "one\n")

    assert missing.problem
    assert all_of(follower) == "one\n"


def test_after_a_rotation_the_new_file_is_read_from_its_start(log: Path) -> None:
    add(log, "old\n")
    follower = a_follower(log, from_end=True)
    follower.read_now()

    log.rename(log.with_suffix(".1"))
    add(log, "one\n")

    assert all_of(follower) == "one\n"


def test_a_file_truncated_after_the_start_is_read_from_its_start(log: Path) -> None:
    add(log, "old\nolder\n")
    follower = a_follower(log, from_end=True)
    follower.read_now()

    log.write_text("one\n")

    assert all_of(follower) == "one\n"


def test_a_saved_position_goes_before_the_end(log: Path) -> None:
    add(log, "one\n")
    before = a_follower(log)
    before.read_now()
    before.close()

    add(log, "two\n")
    after = Follower(log, max_line_bytes=1000, position=before.position, from_end=True)

    assert all_of(after) == "two\n"


def test_a_folder_in_the_files_place_does_not_spend_the_first_entry(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.mkdir()
    follower = a_follower(log, from_end=True)

    assert follower.read_now().problem
    assert follower.position is None
