"""Passes large bodies to workers through memory of the kernel instead of a pipe.

A pipe takes 64 kB at a time; what this saves is in docs/adr/0003. The memory has no name and no
file system, so nothing of it is left behind and no limit of /dev/shm holds: it is gone with its
last descriptor, however a process ends.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from collector.ingest.records import MEBIBYTE, Decoded, Defaults, Limits

SMALLEST_BYTES: Final = 262_144  # under it a pipe is as good
LARGEST_BYTES: Final = 8 * MEBIBYTE  # what the loop copies at once, under 4 ms
PROBE: Final = b"fusewire"


@dataclass(frozen=True, slots=True)
class Lent:
    """A body in memory that a process of the same user can open by `path`."""

    descriptor: int
    size: int

    @property
    def path(self) -> str:
        return f"/proc/{os.getpid()}/fd/{self.descriptor}"


class Lender:
    """Lends bodies to workers.

    What is given back is written over by the next body: fresh memory costs as much as the copy.
    """

    def __init__(self, *, kept: int) -> None:
        """Keep at most `kept` pieces of memory, of at most `LARGEST_BYTES`, for the next bodies."""
        self._kept = kept
        self._free: list[int] = []

    def lend(self, body: bytes) -> Lent | None:
        """Put a body where a worker can read it; None where the system has no room for it."""
        try:
            descriptor = self._free.pop() if self._free else os.memfd_create("fusewire-body")
        except (AttributeError, OSError):  # not Linux, or no descriptor left
            return None
        try:
            written = os.pwrite(descriptor, body, 0)
        except OSError:
            written = -1
        if written != len(body):
            os.close(descriptor)
            return None
        return Lent(descriptor, len(body))

    def take_back(self, lent: Lent) -> None:
        """Nobody reads a body any more."""
        if len(self._free) < self._kept:
            self._free.append(lent.descriptor)
        else:
            os.close(lent.descriptor)

    def close(self) -> None:
        """Let go of what is kept."""
        while self._free:
            os.close(self._free.pop())


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


def readable(path: str, size: int) -> bool:
    """Say whether bodies can be lent to this process; runs in a worker."""
    try:
        return read(path, size) == PROBE
    except OSError:  # /proc is hidden from us, or another user's
        return False
