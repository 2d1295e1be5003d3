"""Memory of a container against its limit, before the kernel kills it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from detectors.hysteresis import Hysteresis
from detectors.offered import Subject, unjudged
from detectors.records import Absence, Level, Reading, Verdict
from detectors.saved import mark_of, pack, unpack

CAUSE = "memory_high"
_SET, _RSS, _LIMIT = "memory_working_set_bytes", "memory_rss_bytes", "memory_limit_bytes"
_VERSION = 1  # of the memory's layout


class ContainerMemoryConfig(BaseModel):
    """Settings of the detector of a container's memory."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["container_memory"] = "container_memory"
    name: str = Field(default="container_memory", max_length=64, description="Unique in a tier.")
    warn: float = Field(default=0.75, gt=0, lt=1, description="Share of the limit that warns.")
    trip: float = Field(default=0.80, gt=0, lt=1, description="Share of the limit that raises.")
    clear: float = Field(default=0.70, gt=0, lt=1, description="Cleared at or below this share.")
    breaches: int = Field(default=3, ge=1, le=5, description="Of the last five scrapes, to raise.")
    calms: int = Field(default=3, ge=1, description="Calm scrapes in a row, to clear.")
    stale_seconds: float = Field(default=60, gt=0, description="Older readings are not judged.")

    @model_validator(mode="after")
    def _order(self) -> Self:
        if not self.clear < self.warn <= self.trip:
            msg = f"expected clear {self.clear:g} < warn {self.warn:g} <= trip {self.trip:g}"
            raise ValueError(msg)
        return self

    def build(self) -> ContainerMemory:
        """Return the detector with these settings."""
        return ContainerMemory(self)


@dataclass(frozen=True, slots=True)
class ContainerMemoryMemory:
    """Persistence beyond `trip` and beyond `warn`."""

    raised: Hysteresis = field(default_factory=Hysteresis)
    warned: Hysteresis = field(default_factory=Hysteresis)


class ContainerMemory:
    """Raises when the memory that the kernel looks at comes near the limit.

    Inputs: `memory_limit_bytes` with `memory_working_set_bytes`, with `memory_rss_bytes`, or with
    both: the larger counts. Silent where no limit is set.
    Parameters: `warn`, `trip` and `clear` as shares of the limit; `breaches` of the last five
    scrapes to raise, `calms` in a row to clear.
    Verdict: warning from `warn` on, critical from `trip` on, once it has lasted; statistic is the
    share, threshold `trip`.
    Smallest change seen: 0.80 of the limit in three of five scrapes. How long the rest will last is
    the forecast's business (`exhaustion`).

    >>> from datetime import UTC, datetime
    >>> def scrape(used: float) -> Reading:
    ...     values = {"memory_working_set_bytes": used, "memory_limit_bytes": 32e9}
    ...     return Reading("chat", "a", "scrape", datetime(2026, 1, 1, tzinfo=UTC), 0.0, 0.01,
    ...                    values=values)
    >>> memory_detector = ContainerMemoryConfig().build()
    >>> memory = memory_detector.start()
    >>> for used in (20e9, 25e9, 27e9, 27e9, 27e9):
    ...     memory, (verdict,) = memory_detector.step(memory, scrape(used))
    >>> str(verdict.level), verdict.reason.split(", 3")[0]
    ('critical', 'working set 27 of 32 GB, 0.844 of the limit (0.8 raises)')

    *Trade-offs*: a working set holds page cache that the kernel would give up first, so a server
    that reads large files can be high without danger; RSS alone misses shared memory. Spikes
    between scrapes are not seen, and one spike is enough for the kernel.
    """

    def __init__(self, config: ContainerMemoryConfig) -> None:
        self.config = config
        self.name = config.name
        self.signals = frozenset({_SET, _RSS, _LIMIT})
        self._mark = mark_of(config, version=_VERSION)
        self._subject = Subject(self.name, _SET, CAUSE)

    def start(self) -> ContainerMemoryMemory:
        return ContainerMemoryMemory()

    def step(
        self, memory: ContainerMemoryMemory, reading: Reading
    ) -> tuple[ContainerMemoryMemory, tuple[Verdict, ...]]:
        if reading.restarted:
            memory = ContainerMemoryMemory()
        if reading.absent.get(_LIMIT) is Absence.UNUSABLE:  # none is set; a finding says so
            return memory, ()
        told = [it for it in (_SET, _RSS) if it in reading.values] or [_SET]
        stale = self.config.stale_seconds
        unknown = unjudged(self._subject, reading, (*told, _LIMIT), stale_seconds=stale)
        if unknown is not None:
            return memory, unknown
        if reading.values[_LIMIT] <= 0:
            return memory, ()
        signal = max(told, key=reading.values.__getitem__)
        share = reading.values[signal] / reading.values[_LIMIT]
        memory = replace(
            memory,
            raised=self._seen(memory.raised, share, self.config.trip),
            warned=self._seen(memory.warned, share, self.config.warn),
        )
        return memory, (self._judged(memory, reading, signal, share),)

    def _seen(self, known: Hysteresis, share: float, trip: float) -> Hysteresis:
        return known.seen(
            breach=share >= trip,
            calm=share <= self.config.clear,
            breaches=self.config.breaches,
            calms=self.config.calms,
        )

    def _judged(
        self, memory: ContainerMemoryMemory, reading: Reading, signal: str, share: float
    ) -> Verdict:
        level = Level.OK
        if memory.warned.raised or memory.raised.breached:
            level = Level.WARNING
        if memory.raised.raised:
            level = Level.CRITICAL
        subject = "working set" if signal == _SET else "resident memory"
        used, limit = reading.values[signal] / 1e9, reading.values[_LIMIT] / 1e9
        reason = (
            f"{subject} {used:.3g} of {limit:.3g} GB, {share:.3g} of the limit "
            f"({self.config.trip:g} raises), {memory.raised.words()}"
        )
        return reading.verdict(
            self.name,
            _SET,
            level,
            reason=reason,
            statistic=share,
            threshold=self.config.trip,
            evidence=float(memory.raised.breaches),
            samples=len(memory.raised.recent),
            cause=CAUSE,
            details={"breached": float(memory.raised.breached)},
        )

    def save(self, memory: ContainerMemoryMemory) -> bytes:
        return pack(memory, mark=self._mark)

    def load(self, data: bytes) -> ContainerMemoryMemory:
        return unpack(data, ContainerMemoryMemory, mark=self._mark)
