"""Snapshots of memory that may be lost: one file, replaced whole, checked when read.

Layout: magic, length of the header, SHA-256 of the header, header (JSON: version, moment, and
name, length and SHA-256 of each section), then the sections one after the other.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec

_MAGIC: Final = b"FUSEWIRE\n"
_VERSION: Final = 1
_DIGEST: Final = 32
_START: Final = len(_MAGIC) + 4 + _DIGEST
_LARGEST: Final = 1 << 30


class SnapshotError(Exception):
    """A snapshot cannot be written or used; the service starts without it and says so."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What was remembered at a moment, by name of section."""

    at: datetime
    sections: Mapping[str, bytes]


class _Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    length: int
    sha256: str


class _Header(msgspec.Struct, frozen=True):
    version: int
    at: datetime
    sections: tuple[_Section, ...]


def write(path: Path, sections: Mapping[str, bytes], at: datetime) -> None:
    """Replace the snapshot at `path`: after a crash there is the old one or the new one.

    Args:
        path: The file; its folder must exist. `path` with `.tmp` added is used on the way.
        sections: Bytes by name.
        at: The moment they speak of, aware UTC.

    Raises:
        SnapshotError: If it cannot be written; the old file is then untouched.
    """
    listed = tuple(
        _Section(name, len(data), hashlib.sha256(data).hexdigest())
        for name, data in sections.items()
    )
    header = msgspec.json.encode(_Header(_VERSION, at, listed))
    start = _MAGIC + len(header).to_bytes(4, "little") + hashlib.sha256(header).digest()
    on_the_way = path.with_name(path.name + ".tmp")
    try:
        with on_the_way.open("wb") as file:
            file.writelines((start, header, *sections.values()))
            file.flush()
            os.fsync(file.fileno())
        on_the_way.replace(path)
        _sync_folder(path.absolute().parent)
    except OSError as error:
        msg = f"snapshot {path}: cannot be written: {error.strerror}"
        raise SnapshotError(msg) from error


def _sync_folder(folder: Path) -> None:
    """Make the renaming itself durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read(path: Path) -> Snapshot:
    """Read a snapshot back.

    Raises:
        SnapshotError: If there is none, or it is torn, damaged or of another version.
    """
    try:
        size = path.stat().st_size
        if size > _LARGEST:
            msg = f"snapshot {path}: {size} bytes, at most {_LARGEST} are read; remove it"
            raise SnapshotError(msg)
        data = path.read_bytes()
    except OSError as error:
        msg = f"snapshot {path}: cannot be read: {error.strerror}"
        raise SnapshotError(msg) from error
    header, body = _header(path, data)
    sections: dict[str, bytes] = {}
    for section in header.sections:
        part = data[body : body + section.length]
        if hashlib.sha256(part).hexdigest() != section.sha256:
            msg = f"snapshot {path}: section {section.name!r} is damaged; remove the file"
            raise SnapshotError(msg)
        sections[section.name] = part
        body += section.length
    if body != len(data):
        msg = f"snapshot {path}: {len(data)} bytes, its header says {body}; remove the file"
        raise SnapshotError(msg)
    return Snapshot(header.at, sections)


def _header(path: Path, data: bytes) -> tuple[_Header, int]:
    """Return the header and where the sections begin."""
    if not data.startswith(_MAGIC):
        msg = f"snapshot {path}: not a snapshot of Fusewire; remove the file"
        raise SnapshotError(msg)
    end = _START + int.from_bytes(data[len(_MAGIC) : len(_MAGIC) + 4], "little")
    raw = data[_START:end]
    if hashlib.sha256(raw).digest() != data[_START - _DIGEST : _START]:
        msg = f"snapshot {path}: its header is torn or damaged; remove the file"
        raise SnapshotError(msg)
    try:
        header = msgspec.json.decode(raw, type=_Header)
    except msgspec.MsgspecError as error:
        msg = f"snapshot {path}: its header cannot be read: {error}; remove the file"
        raise SnapshotError(msg) from error
    if header.version != _VERSION:
        msg = f"snapshot {path}: version {header.version}, this build reads {_VERSION}; remove it"
        raise SnapshotError(msg)
    return header, end
