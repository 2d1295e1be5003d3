"""Several processes that each loaded the same model onto one GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from detectors.hold import Hold
from detectors.offered import Subject, unjudged
from detectors.records import Level, Reading, Verdict
from detectors.remarks import GpuProcess
from detectors.saved import mark_of, pack, unpack

CAUSE = "duplicate_model"
SIGNAL = "gpu_process_memory_bytes"
_TOTAL = "gpu_memory_total_bytes"
_NAMED = 8  # pids in a reason
_VERSION = 1  # of the memory's layout


class DuplicateCopiesConfig(BaseModel):
    """Settings of the detector of duplicate model copies."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["duplicate_copies"] = "duplicate_copies"
    name: str = Field(default="duplicate_copies", max_length=64, description="Unique in a tier.")
    least_bytes: int = Field(
        default=1 << 30, ge=1, description="Processes with less hold no weights."
    )
    alike: float = Field(
        default=0.1, gt=0, lt=1, description="Two are alike if they differ by at most this share."
    )
    copies: int = Field(default=2, ge=2, description="So many alike on one device are too many.")
    hold_seconds: float = Field(
        default=120, ge=0, description="They must stay so long: restarts overlap for a while."
    )
    clear_seconds: float = Field(default=30, ge=0, description="Calm of so long clears.")
    stale_seconds: float = Field(default=60, gt=0, description="Older readings are not judged.")

    def build(self) -> DuplicateCopies:
        """Return the detector with these settings."""
        return DuplicateCopies(self)


@dataclass(frozen=True, slots=True)
class _Group:
    """Processes of one name on one device that hold about as much, largest first."""

    device: str
    processes: tuple[GpuProcess, ...]

    @property
    def used(self) -> float:
        return sum(process.used_bytes for process in self.processes)


class DuplicateCopies:
    """Raises when one GPU holds the same weights several times over.

    Inputs: the processes on the target's GPUs with their bytes (`nvml` only), each device's
    memory where told. Silent without them.
    Rules: `copies` processes of one name on one device, each with at least `least_bytes`, that
    differ by at most `alike` of the largest, for `hold_seconds`. The target's own need not be among
    them: whose they are is told.
    Parameters: `least_bytes`, `alike`, `copies`, `hold_seconds`, `clear_seconds`.
    Verdict: warning once it has held, critical when one more copy would not fit; statistic is the
    number of copies, threshold `copies`, effect the bytes that the copies beyond the first take.
    The reason has the pids, their bytes and the share of the device.
    Smallest change seen: a second process of 1 GiB.

    >>> from datetime import UTC, datetime
    >>> def scrape(second: float) -> Reading:
    ...     alike = [GpuProcess("0", pid, 15e9, "python", "target") for pid in (71, 72, 73)]
    ...     return Reading("chat", "a", "scrape", datetime(2026, 1, 1, tzinfo=UTC), second, 0.01,
    ...                    values={"gpu_process_memory_bytes": 45e9}, processes=tuple(alike))
    >>> twice = DuplicateCopiesConfig().build()
    >>> memory = twice.start()
    >>> for second in (0, 60, 120):
    ...     memory, (verdict,) = twice.step(memory, scrape(second))
    >>> str(verdict.level), verdict.reason.split(",")[0]
    ('warning', '3 processes "python" on device 0 hold 15 GB each (pids 71')

    *Trade-offs*: it sees bytes, not weights: several different models of one size are told as one,
    and two copies of which one has a much larger cache are not. Servers that reserve a share of the
    GPU each (vLLM) are alike by their settings, and are too many for the same reason. Processes
    hidden in other containers cannot be counted.
    """

    def __init__(self, config: DuplicateCopiesConfig) -> None:
        self.config = config
        self.name = config.name
        self.signals = frozenset({SIGNAL})
        self._mark = mark_of(config, version=_VERSION)
        self._subject = Subject(self.name, SIGNAL, CAUSE)

    def start(self) -> Hold:
        return Hold()

    def step(self, memory: Hold, reading: Reading) -> tuple[Hold, tuple[Verdict, ...]]:
        stale = self.config.stale_seconds
        old = SIGNAL in reading.known and reading.age_of(SIGNAL) > stale
        if old or not reading.processes:
            unknown = unjudged(self._subject, reading, (SIGNAL,), stale_seconds=stale)
            if unknown is not None:
                return memory.missed(), unknown
        groups = self._groups(reading.processes)
        worst = max(groups, key=lambda it: len(it.processes), default=None)
        breach = worst is not None and len(worst.processes) >= self.config.copies
        memory = memory.seen(
            reading.monotonic_seconds,
            breach=breach,
            calm=not breach,
            hold_seconds=self.config.hold_seconds,
            clear_seconds=self.config.clear_seconds,
        )
        return memory, (self._judged(memory, reading, worst if breach else None),)

    def _groups(self, processes: Sequence[GpuProcess]) -> list[_Group]:
        """Return the processes that hold about as much as the largest of their group."""
        found: list[_Group] = []
        ranked = sorted(processes, key=lambda it: (it.device, it.name, -it.used_bytes, it.pid))
        for process in ranked:
            if process.used_bytes < self.config.least_bytes:
                continue
            last = found[-1] if found else None
            if last is not None and self._alike(last.processes[0], process):
                found[-1] = replace(last, processes=(*last.processes, process))
            else:
                found.append(_Group(process.device, (process,)))
        return found

    def _alike(self, largest: GpuProcess, process: GpuProcess) -> bool:
        same = (largest.device, largest.name) == (process.device, process.name)
        return same and process.used_bytes >= (1.0 - self.config.alike) * largest.used_bytes

    def _judged(self, memory: Hold, reading: Reading, group: _Group | None) -> Verdict:
        level, copies, extra = Level.OK, float(group is not None), 0.0
        reason = f"{len(reading.processes)} processes on the GPUs, none twice"
        if memory.raised:
            level = Level.WARNING
        if group is not None:
            copies = float(len(group.processes))
            extra = group.used - group.processes[0].used_bytes
            free = _free(reading, group.device)
            tight = free is not None and free < group.processes[0].used_bytes
            if memory.raised and tight:
                level = Level.CRITICAL
            reason = (
                f"{_words(reading, group, tight=tight)}; {memory.words(self.config.hold_seconds)}"
            )
        return reading.verdict(
            self.name,
            SIGNAL,
            level,
            reason=reason,
            statistic=copies,
            threshold=float(self.config.copies),
            effect=extra,
            evidence=memory.held_seconds or 0.0,
            cause=CAUSE,
            details={"breached": float(memory.breached)},
        )

    def save(self, memory: Hold) -> bytes:
        return pack(memory, mark=self._mark)

    def load(self, data: bytes) -> Hold:
        # Nobody watched between `save` and `load`, however short that was.
        return unpack(data, Hold, mark=self._mark).missed()


def _total(reading: Reading, device: str) -> float | None:
    """Return a device's memory in bytes, None where it is not told."""
    parts = reading.parts.get(_TOTAL)
    return parts.get(device) if parts else reading.values.get(_TOTAL)


def _free(reading: Reading, device: str) -> float | None:
    """Return what the processes of a device leave free, None where its size is not told."""
    total = _total(reading, device)
    used = sum(it.used_bytes for it in reading.processes if it.device == device)
    return None if total is None else total - used


def _words(reading: Reading, group: _Group, *, tight: bool) -> str:
    first = group.processes[0]
    shown = ", ".join(str(process.pid) for process in group.processes[:_NAMED])
    rest = len(group.processes) - _NAMED
    shown += f" and {rest} more" if rest > 0 else ""
    name = f' "{first.name}"' if first.name else ""
    total = _total(reading, group.device)
    share = f", {first.used_bytes / total:.2g} of the device each" if total else ""
    whose = sum(process.attribution == "target" for process in group.processes)
    return (
        f"{len(group.processes)} processes{name} on device {group.device} hold "
        f"{first.used_bytes / 1e9:.3g} GB each (pids {shown}), {group.used / 1e9:.3g} GB together"
        f"{share}; {whose} are the target's own{'; one more does not fit' if tight else ''}; "
        "serve variants from one process, with adapters or a shared engine"
    )
