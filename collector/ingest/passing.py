"""Passes large bodies to workers through memory of the kernel instead of a pipe.

A pipe takes 64 kB at a time: 2.8 MB cost 3.6 ms on both sides together, this costs 1.1 ms
(docs/adr/0003). The memory has no name, so nothing of it can be left behind: it is gone with its
last descriptor, however a process ends.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from collector.ingest.records import MEBIBYTE, Decoded, Defaults, Limits

SMALLEST_BYTES: Final = 262_144  # under it a pipe is as good
LARGEST_BYTES: Final = 8 * MEBIBYTE  # what the loop copies at once, under 4 ms
_PROBE: Final = b"fusewire"


@dataclass(frozen=True, slots=True)
class Lent:
    """A body in memory that a process of the same user can open by `path`, until it is closed."""

    descriptor: int
    size: int

    @property
    def path(self) -> str:
        return f"/proc/{os.getpid()}/fd/{self.descriptor}"

    def close(self) -> None:
        os.close(self.descriptor)


def lend(body: bytes) -> Lent | None:
    """Put a body where a worker can read it; None where the system has no room for it."""
    try:
        descriptor = os.memfd_create("fusewire-body")
    except (AttributeError, OSError):  # not Linux, or no descriptor left
        return None
    lent = Lent(descriptor, len(body))
    try:
        written = os.write(descriptor, body)
    except OSError:
        written = -1
    if written != len(body):
        lent.close()
        return None
    return lent


def read(path: str, size: int) -> bytes:
    """Return the body that another process lent.

    Raises:
        OSError: If it cannot be opened, or is not all there.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        body = os.pread(descriptor, size, 0)
    finally:
        os.close(descriptor)
    if len(body) != size:
        msg = f"{path}: {len(body)} bytes of a body, expected {size}"
        raise OSError(msg)
    return body


def work_on_lent(
    lent: tuple[str, int],
    work: Callable[[bytes, str, Defaults, Limits], Decoded],
    encoding: str,
    defaults: Defaults,
    limits: Limits,
) -> Decoded:
    """Do `work` on a body that was lent; runs in a worker."""
    return work(read(*lent), encoding, defaults, limits)


def readable(path: str, size: int) -> Literal["lent", "piped"]:
    """Say how bodies can come to this process; runs in a worker."""
    try:
        return "lent" if read(path, size) == _PROBE else "piped"
    except OSError:  # /proc is hidden from us, or another user's
        return "piped"


def probe() -> Lent | None:
    """Return a small body for `readable`."""
    return lend(_PROBE)
