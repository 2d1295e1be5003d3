"""A snapshot is read back exactly, or refused with the reason; never half."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.store import snapshot
from collector.store.snapshot import Snapshot, SnapshotError, read, write

AT = datetime(2026, 11, 29, 12, 0, 0, 5, tzinfo=UTC)
SECTIONS = {"counts": b"\x00\x01" * 500, "memories": b"", "readings": b"{}"}


def test_a_snapshot_comes_back(tmp_path: Path) -> None:
    write(tmp_path / "s", SECTIONS, AT)

    assert read(tmp_path / "s") == Snapshot(AT, SECTIONS)
    assert [path.name for path in tmp_path.iterdir()] == ["s"]


def test_a_new_snapshot_replaces_the_old(tmp_path: Path) -> None:
    write(tmp_path / "s", SECTIONS, AT)
    (tmp_path / "s.tmp").write_bytes(b"left by a crash")

    write(tmp_path / "s", {"counts": b"2"}, AT)

    assert read(tmp_path / "s").sections == {"counts": b"2"}


def test_a_snapshot_that_cannot_be_written_leaves_the_old(tmp_path: Path) -> None:
    write(tmp_path / "s", SECTIONS, AT)
    (tmp_path / "s.tmp").mkdir()

    with pytest.raises(SnapshotError, match=r"s: cannot be written: Is a directory"):
        write(tmp_path / "s", {}, AT)

    assert read(tmp_path / "s").sections == SECTIONS


def test_no_snapshot_is_said(tmp_path: Path) -> None:
    with pytest.raises(SnapshotError, match="cannot be read: No such file"):
        read(tmp_path / "s")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("snapshot") / "s"
    write(path, SECTIONS, AT)
    return path.read_bytes()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("damaged") / "s"


@given(st.data())
def test_a_torn_snapshot_is_refused(whole: bytes, place: Path, data: st.DataObject) -> None:
    place.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])

    with pytest.raises(SnapshotError):
        read(place)


@given(st.data())
def test_a_changed_byte_is_found(whole: bytes, place: Path, data: st.DataObject) -> None:
    where = data.draw(st.integers(0, len(whole) - 1))
    damaged = bytearray(whole)
    damaged[where] ^= data.draw(st.integers(1, 255))
    place.write_bytes(damaged)

    with pytest.raises(SnapshotError, match="remove"):
        read(place)


def test_bytes_after_the_end_are_found(whole: bytes, place: Path) -> None:
    place.write_bytes(whole + b"x")

    with pytest.raises(SnapshotError, match="its header says"):
        read(place)


def test_another_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "_VERSION", 2)
    write(tmp_path / "s", SECTIONS, AT)
    monkeypatch.undo()

    with pytest.raises(SnapshotError, match="version 2, this build reads 1; remove it"):
        read(tmp_path / "s")


def test_a_header_of_another_shape_is_refused(tmp_path: Path) -> None:
    header = msgspec.json.encode({"version": 1})
    digest = hashlib.sha256(header).digest()
    size = len(header).to_bytes(4, "little")
    (tmp_path / "s").write_bytes(b"FUSEWIRE\n" + size + digest + header)

    with pytest.raises(SnapshotError, match="its header cannot be read"):
        read(tmp_path / "s")


def test_an_absurd_size_is_refused_before_reading(tmp_path: Path) -> None:
    with (tmp_path / "s").open("wb") as file:
        file.truncate((1 << 30) + 1)  # sparse: takes no room

    with pytest.raises(SnapshotError, match="at most 1073741824 are read"):
        read(tmp_path / "s")
