"""What the pipeline needs from a detector; nothing inherits from these."""

from __future__ import annotations

from typing import Protocol, TypeVar

from detectors.records import Panel, Reading, Verdict

MemoryT = TypeVar("MemoryT")


class ReadingDetector(Protocol[MemoryT]):
    """Judges one target, once per completed scrape. Memory is one value a target.

    `signals` are the canonical signals it reads: the source keeps those.
    """

    @property
    def name(self) -> str: ...

    @property
    def signals(self) -> frozenset[str]: ...

    def start(self) -> MemoryT:
        """Return the memory of a target not yet seen."""
        ...

    def step(self, memory: MemoryT, reading: Reading) -> tuple[MemoryT, tuple[Verdict, ...]]: ...

    def save(self, memory: MemoryT) -> bytes:
        """Return `memory` as bytes that `load` reads back, also in a later release or not at all.

        `load` raises ValueError for bytes it does not know; the caller then starts anew.
        """
        ...

    def load(self, data: bytes) -> MemoryT: ...


class TickDetector(Protocol[MemoryT]):
    """Judges all streams of a tier in one step per closed tick. Memory is one value a tier."""

    @property
    def name(self) -> str: ...

    @property
    def signals(self) -> frozenset[str]: ...

    def start(self) -> MemoryT: ...

    def step(self, memory: MemoryT, panel: Panel) -> tuple[MemoryT, tuple[Verdict, ...]]: ...

    def save(self, memory: MemoryT) -> bytes: ...

    def load(self, data: bytes) -> MemoryT: ...
