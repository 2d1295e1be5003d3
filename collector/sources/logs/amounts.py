"""Amounts in the words of log lines: torch's out-of-memory message of every version, and sizes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_UNITS: Final = {b"bytes": 1, b"KiB": 1 << 10, b"MiB": 1 << 20, b"GiB": 1 << 30, b"TiB": 1 << 40}
_SIZE: Final = rb"(\d{1,12}(?:\.\d{1,6})?)\s(bytes|KiB|MiB|GiB|TiB)"
_MOST_BYTES: Final = 2048  # of one message; real ones have under 800
_MOST_LINES: Final = 12  # terminals and shippers wrap it


def _of(text: str) -> re.Pattern[bytes]:
    return re.compile(text.encode().replace(b"SIZE", _SIZE).replace(b" ", rb"\s"))


_TRIED: Final = _of("Tried to allocate SIZE")
_DEVICE: Final = _of(r"GPU (\d{1,4})\b")
_TOTAL: Final = (_of("SIZE total capacity"), _of("total capac(?:i)?ty of SIZE"))
_FREE: Final = (_of("SIZE free"), _of("of which SIZE is free"))
_ALLOCATED: Final = (_of("SIZE already allocated"), _of("memory SIZE is allocated by PyTorch"))
_PRIVATE: Final = (_of("SIZE allocated in private pools"),)
_UNALLOCATED: Final = (_of("SIZE is reserved by PyTorch but unallocated"), _of("SIZE cached"))
_RESERVED: Final = (_of("SIZE reserved in total"),)


@dataclass(frozen=True, slots=True)
class TorchOom:
    """One out-of-memory error of torch in bytes; None where the message does not say.

    `unallocated` is what the allocator holds from the driver without a tensor in it, `free` what
    the driver had left. `allocated` does not count CUDA graphs' own pools, `reserved` does.
    """

    tried: float
    device: str = ""
    total: float | None = None
    free: float | None = None
    allocated: float | None = None
    reserved: float | None = None
    unallocated: float | None = None

    @property
    def room(self) -> float | None:
        """Free bytes in and beside the allocator; None if not all is known."""
        if self.free is None or self.unallocated is None:
            return None
        return self.free + self.unallocated

    @property
    def with_room(self) -> bool:
        """Whether there were enough free bytes, only not in one piece or not for this process."""
        return self.room is not None and self.tried < self.room


def torch_oom(text: bytes, place: int) -> TorchOom | None:
    """Read the message that begins with `out of memory. Tried` at `place` in `text`.

    Returns:
        Its amounts, None if it does not even say how much was tried. A message over several
        lines is read as far as it is there.
    """
    stop = text.find(b"out of memory. Tried", place + 1, place + _MOST_BYTES)
    window = text[place : place + _MOST_BYTES if stop < 0 else stop]
    lines = window.split(b"\n", _MOST_LINES)[:_MOST_LINES]
    whole = lines[0]
    if b"total" not in whole or not any(end in whole for end in (b"unallocated", b")")):
        whole = b" ".join(line.strip() for line in lines)
    tried = _first((_TRIED,), whole)
    if tried is None:
        return None
    device = _DEVICE.search(whole)
    allocated, private = _first(_ALLOCATED, whole), _first(_PRIVATE, whole) or 0.0
    unallocated, reserved = _first(_UNALLOCATED, whole), _first(_RESERVED, whole)
    if reserved is not None and allocated is not None:  # before torch 2.1: the whole, not the rest
        unallocated = max(reserved - allocated, 0.0)
    elif unallocated is not None and allocated is not None:
        reserved = allocated + private + unallocated
    return TorchOom(
        tried=tried,
        device=device[1].decode() if device else "",
        total=_first(_TOTAL, whole),
        free=_first(_FREE, whole),
        allocated=allocated,
        reserved=reserved,
        unallocated=unallocated,
    )


def size_text(size: float) -> str:
    """Return bytes as people read them.

    >>> size_text(1.5 * 1024**3), size_text(3 * 1024**2), size_text(12)
    ('1.50 GiB', '3.00 MiB', '12 bytes')
    """
    for name, unit in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= unit:
            return f"{size / unit:.2f} {name}"
    return f"{size:.0f} bytes"


def _first(patterns: tuple[re.Pattern[bytes], ...], text: bytes) -> float | None:
    for pattern in patterns:
        found = pattern.search(text)
        if found is not None:
            return float(found[1]) * _UNITS[found[2]]
    return None
