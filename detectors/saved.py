"""Detector memories as bytes for the snapshot, and back.

The bytes carry a mark (detector, layout version, settings). A memory saved under another mark is
refused: the caller then starts anew, which is always safe, instead of judging with thresholds
that the memory was not made for.
"""

from __future__ import annotations

import hashlib
from typing import TypeVar

import msgspec
from pydantic import BaseModel

MemoryT = TypeVar("MemoryT")


def mark_of(config: BaseModel, *, version: int) -> str:
    """Return the mark of memories made by a detector with these settings.

    Args:
        config: The detector's settings.
        version: Version of the memory's layout; raised when fields change their meaning.
    """
    digest = hashlib.sha256(config.model_dump_json().encode()).hexdigest()[:16]
    return f"{type(config).__name__}/{version}/{digest}"


def pack(memory: object, *, mark: str) -> bytes:
    """Return `memory` (dataclasses of plain values and bytes) with its mark."""
    return msgspec.msgpack.encode((mark, msgspec.Raw(msgspec.msgpack.encode(memory))))


def unpack(data: bytes, memory: type[MemoryT], *, mark: str) -> MemoryT:
    """Return what `pack` was given.

    Raises:
        ValueError: If the bytes are damaged or of another mark.
    """
    try:
        found, body = msgspec.msgpack.decode(data, type=tuple[str, msgspec.Raw])
    except msgspec.DecodeError as error:
        msg = f"saved memory: {len(data)} bytes that are not a memory of {mark}: {error}"
        raise ValueError(msg) from error
    if found != mark:
        msg = f"saved memory: made by {found!r}, expected {mark!r}; start with a new memory"
        raise ValueError(msg)
    try:
        return msgspec.msgpack.decode(body, type=memory)
    except msgspec.DecodeError as error:
        msg = f"saved memory of {mark}: {error}; start with a new memory"
        raise ValueError(msg) from error
