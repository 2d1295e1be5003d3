"""What is read when a file was rotated while nobody followed it, and what is told as lost."""

from __future__ import annotations

import gzip
import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.ingest.follower import Follower
from collector.ingest.rotated import Position, rotated_files

HOUR = 3600.0
BEGAN = 1_700_000_000.0


class Writer:
    """A log that is written and rotated by a clock of its own: each write is an hour later."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.moment = BEGAN

    def add(self, text: str) -> None:
        with self.path.open("a") as file:
            file.write(text)
        self.moment += HOUR
        os.utime(self.path, (self.moment, self.moment))

    def rename(self, *, packed: bool = False, most: int = 9) -> None:
        """Rotate as logrotate does: `log.1` becomes `log.2`, packed from then on."""
        for number in range(most, 0, -1):
            for ending in ("", ".gz"):
                old = self.path.with_name(f"{self.path.name}.{number}{ending}")
                if old.exists():
                    old.rename(self.path.with_name(f"{self.path.name}.{number + 1}{ending}"))
        first = self.path.with_name(f"{self.path.name}.1")
        self.path.rename(first)
        if packed:
            pack(first)

    def copy(self, name: str) -> None:
        """Rotate by copy and truncate."""
        copied = self.path.with_name(name)
        shutil.copyfile(self.path, copied)
        os.utime(copied, (self.moment, self.moment))
        self.path.write_text("")


def pack(path: Path) -> None:
    """Pack as gzip does: another inode, the time of the last write in whole seconds."""
    packed = path.with_name(path.name + ".gz")
    packed.write_bytes(gzip.compress(path.read_bytes()))
    modified = int(path.stat().st_mtime)
    os.utime(packed, (modified, modified))
    path.unlink()


@pytest.fixture
def log(tmp_path: Path) -> Writer:
    return Writer(tmp_path / "generations.jsonl")


def a_follower(log: Writer, position: Position | None = None, *, read_bytes: int = 64) -> Follower:
    return Follower(log.path, max_line_bytes=1000, position=position, read_bytes=read_bytes)


def the_rest(follower: Follower) -> tuple[str, int]:
    """Read until nothing more comes; return it, and how many files were told as lost."""
    text, lost, quiet = b"", 0, 0
    while quiet < 4:
        chunk = follower.read_now()
        text += chunk.payload
        lost += chunk.lost
        quiet = 0 if chunk.payload or chunk.restarts else quiet + 1
    follower.close()
    return text.decode(), lost


def stopped(log: Writer) -> Position:
    """Read all there is, and stop; return the position that is saved."""
    follower = a_follower(log)
    the_rest(follower)
    assert follower.position is not None
    return follower.position


@pytest.mark.parametrize("packed", [False, True])
def test_a_file_rotated_several_times_while_nobody_followed_is_read_in_order(
    log: Writer, packed: bool
) -> None:
    log.add("read\n")
    position = stopped(log)

    log.add("one\n")
    for text in ("two\n", "three\n", "four\n"):
        log.rename(packed=packed)
        log.add(text)

    assert the_rest(a_follower(log, position)) == ("one\ntwo\nthree\nfour\n", 0)


def test_dated_names_are_read_in_the_order_of_writing(log: Writer) -> None:
    log.add("read\n")
    position = stopped(log)

    for name in ("generations.jsonl-20261129", "generations-2026-11-30T00-00-00.jsonl"):
        log.add(f"before {name}\n")
        log.path.rename(log.path.with_name(name))
    log.add("now\n")

    text, lost = the_rest(a_follower(log, position))
    assert text == (
        "before generations.jsonl-20261129\nbefore generations-2026-11-30T00-00-00.jsonl\nnow\n"
    )
    assert lost == 0


def test_files_written_in_the_same_moment_are_ordered_by_their_number(log: Writer) -> None:
    log.add("read\n")
    position = stopped(log)
    log.add("one\n")
    for text in ("two\n", "three\n"):
        log.rename()
        log.add(text)
    for file in log.path.parent.iterdir():
        os.utime(file, (BEGAN + 9 * HOUR, BEGAN + 9 * HOUR))

    assert the_rest(a_follower(log, position))[0] == "one\ntwo\nthree\n"


def test_copies_of_a_truncated_file_are_read_before_what_came_after(log: Writer) -> None:
    log.add("read\n")
    position = stopped(log)

    log.add("one\n")
    log.copy("generations.jsonl.2")
    log.add("two\n")
    log.copy("generations.jsonl.1")
    log.add("three\n")

    assert the_rest(a_follower(log, position)) == ("one\ntwo\nthree\n", 0)


def test_what_was_written_before_a_truncation_is_read_from_the_copy_while_following(
    log: Writer,
) -> None:
    log.add("one\n")
    follower = a_follower(log)
    first = follower.read_now()

    log.add("late\n")
    log.copy("generations.jsonl.1")
    log.add("new\n")
    second = follower.read_now()

    assert (first.payload, second.payload, second.restarts) == (b"one\n", b"late\n", 1)
    assert the_rest(follower) == ("new\n", 0)


def test_a_file_that_is_packed_while_it_is_read_does_not_count_twice(log: Writer) -> None:
    log.add("one\n")
    follower = a_follower(log)
    follower.read_now()

    log.rename(packed=True)
    log.add("two\n")

    assert the_rest(follower) == ("two\n", 0)


def test_files_rotated_twice_between_two_looks_are_all_read(log: Writer) -> None:
    log.add("one\n")
    follower = a_follower(log)
    follower.read_now()

    for text in ("two\n", "three\n"):
        log.rename()
        log.add(text)

    assert the_rest(follower) == ("two\nthree\n", 0)


def test_a_file_that_is_gone_is_told_and_the_next_one_is_read(log: Writer) -> None:
    log.add("read\n")
    position = stopped(log)

    log.add("never seen\n")
    log.rename()
    log.add("two\n")
    log.rename()
    log.add("three\n")
    log.path.with_name("generations.jsonl.2").unlink()

    assert the_rest(a_follower(log, position)) == ("two\nthree\n", 1)


def test_all_rotated_files_gone_is_told_once(log: Writer) -> None:
    log.add("read\n")
    position = stopped(log)

    log.path.unlink()
    log.path.with_name("other").write_text("takes the inode")
    follower = a_follower(log, position)
    waiting = [follower.read_now() for _ in range(3)]
    log.add("new\n")
    log.add("newer\n")

    assert all("no such file yet" in chunk.problem for chunk in waiting)
    assert sum(chunk.lost for chunk in waiting) == 0
    assert the_rest(follower) == ("new\nnewer\n", 1)


def test_a_saved_position_without_times_goes_on_at_the_path(log: Writer) -> None:
    log.add("read\n")
    old = stopped(log)
    position = Position(old.device, old.inode, old.offset, old.digest)

    log.rename()
    log.add("two\n")
    log.path.with_name("generations.jsonl.1").unlink()
    (log.path.parent / "generations.jsonl.7").write_text("from long ago\n")

    assert the_rest(a_follower(log, position)) == ("two\n", 1)


def test_a_packed_file_that_is_cut_off_gives_what_it_has_and_is_told(log: Writer) -> None:
    log.add("read\n")
    position = stopped(log)

    log.rename()
    log.add("".join(f"{number} {'x' * 40}\n" for number in range(200)))
    log.rename(packed=True)
    log.add("now\n")
    packed = log.path.with_name("generations.jsonl.1.gz")
    modified = packed.stat().st_mtime
    packed.write_bytes(packed.read_bytes()[:-12])
    os.utime(packed, (modified, modified))

    text, lost = the_rest(a_follower(log, position))

    assert text.startswith("0 xxx")
    assert text.endswith("now\n")
    assert lost == 1


def test_a_packed_file_is_gone_on_with_after_a_restart(log: Writer) -> None:
    log.add("read\n")
    position = stopped(log)
    lines = [f"{number} {'x' * 40}\n" for number in range(50)]
    log.rename()
    log.add("".join(lines))
    log.rename(packed=True)
    log.add("now\n")
    before = a_follower(log, position)
    first = b"".join(before.read_now().payload for _ in range(10)).decode()
    before.close()

    rest, lost = the_rest(a_follower(log, before.position))

    assert 0 < len(first) < len("".join(lines))
    assert (first + rest, lost) == ("".join(lines) + "now\n", 0)


def test_what_only_looks_like_a_rotated_file_is_left_alone(log: Writer) -> None:
    log.add("now\n")
    for name in (
        "generations.jsonl.bak",
        "generations.jsonl.swp",
        "generations.jsonl~",
        "generations2.jsonl",
        "my-generations.jsonl.1",
    ):
        log.path.with_name(name).write_text("no\n")
    log.path.with_name("generations.jsonl.1").mkdir()
    log.path.with_name("generations.jsonl.2.gz").write_text("")

    names = [file.path.name for file in rotated_files(log.path)]

    assert names == ["generations.jsonl.2.gz"]


def test_a_file_being_packed_is_taken_once(log: Writer) -> None:
    log.add("one\n")
    log.rename()
    plain = log.path.with_name("generations.jsonl.1")
    plain.with_name(plain.name + ".gz").write_bytes(b"half of it")

    assert [file.path for file in rotated_files(log.path)] == [plain]


@settings(max_examples=60)
@given(st.lists(st.sampled_from(["add", "rotate", "pack", "restart", "read"]), max_size=25))
def test_nothing_is_lost_or_doubled_whatever_happens_between_two_looks(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str]
) -> None:
    log = Writer(tmp_path_factory.mktemp("log") / "f.jsonl")
    log.add("first\n")
    follower = a_follower(log)
    written, got, lost = "first\n", follower.read_now().payload, 0
    for step in steps:
        if step == "add":
            line = f"{len(written)}:{'z' * 30}\n"
            log.add(line)
            written += line
        elif step in {"rotate", "pack"} and log.path.exists() and log.path.stat().st_size:
            log.rename(packed=step == "pack", most=40)
        elif step == "restart":
            follower.close()
            follower = a_follower(log, follower.position)
        else:
            chunk = follower.read_now()
            got, lost = got + chunk.payload, lost + chunk.lost
    rest, more = the_rest(follower)

    assert got.decode() + rest == written
    assert lost + more == 0
