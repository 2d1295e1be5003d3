"""Memory of PyTorch's allocator that is free and cannot be used."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from detectors.hold import Hold
from detectors.offered import Subject, unjudged
from detectors.recent import Recent
from detectors.records import Absence, Level, Reading, Verdict
from detectors.saved import mark_of, pack, unpack

CAUSE = "memory_fragmented"
_RESERVED, _ALLOCATED = "allocator_reserved_bytes", "allocator_allocated_bytes"
_SPLIT, _LARGEST = "allocator_inactive_split_bytes", "allocator_largest_free_bytes"
_RETRIES = "allocator_retries_total"
_EXPANDABLE = (
    "split_share_meaningless_with_expandable_segments"  # finding of the allocator's source
)
_VERSION = 1  # of the memory's layout


class FragmentationConfig(BaseModel):
    """Settings of the fragmentation detector."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["fragmentation"] = "fragmentation"
    name: str = Field(default="fragmentation", max_length=64, description="Unique in a tier.")
    split: float = Field(
        default=0.25, gt=0, lt=1, description="Share of the reserved bytes in split free pieces."
    )
    slack: float = Field(
        default=0.30, gt=0, lt=1, description="Share of the reserved bytes that is not allocated."
    )
    shattered: float = Field(
        default=0.80, gt=0, lt=1, description="Share of that slack outside its largest free block."
    )
    window_seconds: float = Field(
        default=300, gt=0, description="Retries of the allocator are counted over this."
    )
    hold_seconds: float = Field(
        default=600, ge=0, description="Shares without retries must hold so long to warn."
    )
    clear_seconds: float = Field(default=300, ge=0, description="Calm of so long clears.")
    stale_seconds: float = Field(default=120, gt=0, description="Older readings are not judged.")

    def build(self) -> Fragmentation:
        """Return the detector with these settings."""
        return Fragmentation(self)


@dataclass(frozen=True, slots=True)
class FragmentationMemory:
    """Retries over the window, and how long memory has been in pieces."""

    retries: Recent = field(default_factory=Recent)
    hold: Hold = field(default_factory=Hold)


@dataclass(frozen=True, slots=True)
class _Pieces:
    """The worst device: shares of its reserved bytes; None where a figure is not told."""

    device: str
    reserved: float
    split: float | None
    slack: float
    largest: float | None  # bytes

    @property
    def outside(self) -> float | None:
        """Share of the slack outside the largest free block."""
        free = self.slack * self.reserved
        if self.largest is None or free <= 0:
            return None
        return min(max(1.0 - self.largest / free, 0.0), 1.0)


class Fragmentation:
    """Raises when the allocator starts to fail because its free memory is in pieces.

    Inputs: `allocator_reserved_bytes` and `allocator_allocated_bytes`, each device;
    `allocator_inactive_split_bytes`, `allocator_largest_free_bytes` and `allocator_retries_total`
    where told. Silent without an allocator probe; unknown, and no alert, without CUDA.
    Rules: memory is in pieces while split pieces are `split` of what is reserved, or while
    `slack` of it is unallocated and `shattered` of that lies outside the largest block. Retries
    (the driver gave nothing, the cache was flushed) are the earliest sure sign of pressure.
    Parameters: `split`, `slack`, `shattered`, `window_seconds`, `hold_seconds`, `clear_seconds`.
    Verdict: critical while memory is in pieces and retries were counted within the window; warning
    for retries alone, and for pieces that last `hold_seconds`; statistic is the split share (the
    slack where that is not told), threshold its limit, effect the retries of the window. The
    reason names the setting to try.
    Smallest change seen: one retry; a quarter of the reserved bytes in split pieces.

    >>> from datetime import UTC, datetime
    >>> def scrape(second: float, split: float, retries: float) -> Reading:
    ...     values = {"allocator_reserved_bytes": 60e9, "allocator_allocated_bytes": 40e9,
    ...               "allocator_inactive_split_bytes": split, "allocator_retries_total": retries}
    ...     return Reading("chat", "a", "scrape", datetime(2026, 1, 1, tzinfo=UTC), second, 0.01,
    ...                    values=values)
    >>> pieces = FragmentationConfig().build()
    >>> memory, (verdict,) = pieces.step(pieces.start(), scrape(0, 18e9, 0))
    >>> memory, (verdict,) = pieces.step(memory, scrape(10, 18e9, 2))
    >>> str(verdict.level), verdict.reason.split(";")[0]
    ('critical', '0.3 of 60 GB reserved in split free pieces, slack 0.333, 2 retries in 10 s')

    *Trade-offs*: slack is high without harm after a peak, so it counts with its largest block only,
    whose measuring (a snapshot) is off by default. With expandable segments split pieces can be
    given back: the share is not told then, and retries remain. vLLM and TGI reserve their cache at
    start: their figures hardly move, and the usage of the cache is the live signal there.
    """

    def __init__(self, config: FragmentationConfig) -> None:
        self.config = config
        self.name = config.name
        self.signals = frozenset({_RESERVED, _ALLOCATED, _SPLIT, _LARGEST, _RETRIES})
        self._mark = mark_of(config, version=_VERSION)
        self._subject = Subject(self.name, _RESERVED, CAUSE)

    def start(self) -> FragmentationMemory:
        return FragmentationMemory()

    def step(
        self, memory: FragmentationMemory, reading: Reading
    ) -> tuple[FragmentationMemory, tuple[Verdict, ...]]:
        if reading.restarted:
            memory = FragmentationMemory()
        unknown = unjudged(
            self._subject,
            reading,
            (_RESERVED, _ALLOCATED),
            stale_seconds=self.config.stale_seconds,
            idle=(Absence.NO_SAMPLE, Absence.SWITCHED_OFF),
        )
        if unknown is not None:
            return replace(memory, hold=memory.hold.missed()), unknown
        found = _worst(reading)
        row = (reading.monotonic_seconds, reading.values.get(_RETRIES, 0.0))
        retries = memory.retries.seen(row, window_seconds=self.config.window_seconds)
        broken = self._broken(found)
        hold = memory.hold.seen(
            reading.monotonic_seconds,
            breach=broken,
            calm=not broken,
            hold_seconds=self.config.hold_seconds,
            clear_seconds=self.config.clear_seconds,
        )
        memory = FragmentationMemory(retries, hold)
        return memory, (self._judged(memory, reading, found),)

    def _broken(self, found: _Pieces) -> bool:
        """Whether free memory is in pieces."""
        if found.split is not None and found.split >= self.config.split:
            return True
        outside = found.outside
        shattered = outside is not None and outside >= self.config.shattered
        return found.slack >= self.config.slack and shattered

    def _judged(self, memory: FragmentationMemory, reading: Reading, found: _Pieces) -> Verdict:
        grown = memory.retries.grown()
        seconds, retries = grown if grown is not None else (0.0, 0.0)
        level = Level.WARNING if retries > 0 or memory.hold.raised else Level.OK
        if retries > 0 and memory.hold.breached:
            level = Level.CRITICAL
        share = found.slack if found.split is None else found.split
        words = [f"{share:.3g} of {found.reserved / 1e9:.3g} GB reserved in split free pieces"]
        if found.split is None:
            words = [f"{found.reserved / 1e9:.3g} GB reserved"]
        words.append(f"slack {found.slack:.3g}")
        if found.outside is not None:
            words.append(f"{found.outside:.3g} of it outside the largest block")
        words.append(f"{retries:g} retries in {seconds:.0f} s")
        reason = ", ".join(words) + (f" on device {found.device}" if found.device else "")
        return reading.verdict(
            self.name,
            _RESERVED,
            level,
            reason=reason if level is Level.OK else f"{reason}; {_advice(reading)}",
            statistic=share,
            threshold=self.config.slack if found.split is None else self.config.split,
            effect=retries,
            evidence=memory.hold.held_seconds or 0.0,
            cause=CAUSE,
            details={"breached": float(level is Level.CRITICAL), "slack_ratio": found.slack},
        )

    def save(self, memory: FragmentationMemory) -> bytes:
        return pack(memory, mark=self._mark)

    def load(self, data: bytes) -> FragmentationMemory:
        # Nobody watched between `save` and `load`, however short that was.
        memory = unpack(data, FragmentationMemory, mark=self._mark)
        return replace(memory, hold=memory.hold.missed())


def _worst(reading: Reading) -> _Pieces:
    """Return the device with most split pieces, else with most slack."""
    devices = sorted(reading.parts.get(_RESERVED, {})) or [""]
    found = [_pieces(reading, device) for device in devices]
    return max(found, key=lambda it: (it.split or 0.0, it.slack))


def _pieces(reading: Reading, device: str) -> _Pieces:
    def told(signal: str) -> float | None:
        if not device:
            return reading.values.get(signal)
        return reading.parts.get(signal, {}).get(device)

    reserved, allocated, split = told(_RESERVED) or 0.0, told(_ALLOCATED) or 0.0, told(_SPLIT)
    if reserved <= 0:
        return _Pieces(device, 0.0, None if split is None else 0.0, 0.0, None)
    share = None if split is None else split / reserved
    slack = max(reserved - allocated, 0.0) / reserved
    return _Pieces(device, reserved, share, slack, told(_LARGEST))


def _advice(reading: Reading) -> str:
    """Return the setting to try. Splitting limits and expandable segments exclude each other."""
    if any(finding.code == _EXPANDABLE for finding in reading.findings):
        return (
            "expandable segments are on already (do not add max_split_size_mb): leave more room, "
            "by a smaller batch or memory fraction"
        )
    return (
        "try PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, or instead of it "
        "max_split_size_mb:512,garbage_collection_threshold:0.8, never both; a restart undoes the "
        "pieces until then"
    )
