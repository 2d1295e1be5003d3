"""Requests whose logits held NaN: a broken weight, kernel or GPU."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from detectors.records import Absence, Level, Reading, Verdict
from detectors.saved import mark_of, pack, unpack

CAUSE = "logits_corrupted"
SIGNAL = "corrupted_requests_total"
_VERSION = 1  # of the memory's layout


class CorruptedConfig(BaseModel):
    """Settings of the corrupted-logits detector."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["corrupted"] = "corrupted"
    name: str = Field(default="corrupted", max_length=64, description="Unique in a tier.")
    hold_seconds: float = Field(
        default=300, gt=0, description="Critical for so long after the last corrupted request."
    )
    stale_seconds: float = Field(default=60, gt=0, description="Older readings are not judged.")

    def build(self) -> Corrupted:
        """Return the detector with these settings."""
        return Corrupted(self)


@dataclass(frozen=True, slots=True)
class CorruptedMemory:
    """What is known of the counter.

    `count` is its value at the last usable scrape; `seen_seconds` the monotonic time of that
    scrape, None when nothing was watched just before; `since_seconds` the watched time since it
    last rose, None if it never did.
    """

    count: float | None = None
    seen_seconds: float | None = None
    since_seconds: float | None = None


class Corrupted:
    """Raises at the first request with NaN logits; one is one too many.

    Input: `corrupted_requests_total`, which vLLM has only with VLLM_COMPUTE_NANS_IN_LOGITS=1.
    Parameter: `hold_seconds`, for which the verdict stays critical after the last such request,
    so that a breaker finds its confirmation. Only time that was watched counts: failed scrapes
    and a restart of Fusewire prolong it.
    Verdict: critical on any rise; warning if the counter was above 0 at first sight (when that
    happened is not known); statistic is the rise since the last scrape, threshold 1. Targets
    without the counter are unknown without a cause, so that no alert follows.
    Smallest change seen: one request.

    >>> from datetime import UTC, datetime
    >>> def scrape(count: float) -> Reading:
    ...     return Reading("chat", "a", "scrape", datetime(2026, 1, 1, tzinfo=UTC), 0.0, 0.01,
    ...                    values={"corrupted_requests_total": count})
    >>> corrupted = CorruptedConfig().build()
    >>> memory, (verdict,) = corrupted.step(corrupted.start(), scrape(0))
    >>> memory, (verdict,) = corrupted.step(memory, scrape(2))
    >>> str(verdict.level), verdict.reason
    ('critical', '2 more requests with NaN logits, 2 in all')

    *Trade-offs*: without the engine's switch it sees nothing, and NaN logits then look like empty
    answers that count as successes. A wrong answer without a NaN is never seen here.
    """

    def __init__(self, config: CorruptedConfig) -> None:
        self.config = config
        self.name = config.name
        self.signals = frozenset({SIGNAL})
        self._mark = mark_of(config, version=_VERSION)

    def start(self) -> CorruptedMemory:
        return CorruptedMemory()

    def step(
        self, memory: CorruptedMemory, reading: Reading
    ) -> tuple[CorruptedMemory, tuple[Verdict, ...]]:
        obstacle = reading.obstacle((SIGNAL,), stale_seconds=self.config.stale_seconds)
        if obstacle:
            unknown = _unknown(self.name, reading, obstacle)
            return replace(memory, seen_seconds=None), (unknown,)
        rise = 0.0
        if memory.count is not None:
            rise = max(reading.values[SIGNAL] - memory.count, 0.0)
        first = memory.count is None
        memory = _advanced(memory, reading, rise)
        return memory, (self._judged(memory, reading, rise, first=first),)

    def _judged(
        self, memory: CorruptedMemory, reading: Reading, rise: float, *, first: bool
    ) -> Verdict:
        count, since = reading.values[SIGNAL], memory.since_seconds
        level, reason = Level.OK, f"{count:g} requests with NaN logits in all, no more of late"
        if rise > 0:
            level = Level.CRITICAL
            reason = f"{rise:g} more requests with NaN logits, {count:g} in all"
        elif since is not None and since <= self.config.hold_seconds:
            level = Level.CRITICAL
            reason = f"last request with NaN logits {since:.0f} s ago, {count:g} in all"
        elif first and count > 0:
            level = Level.WARNING
            reason = f"{count:g} requests with NaN logits before the first scrape"
        return reading.verdict(
            self.name,
            SIGNAL,
            level,
            reason=reason,
            statistic=rise,
            threshold=1.0,
            cause=CAUSE,
            details={"breached": float(rise > 0), "count": count},
        )

    def save(self, memory: CorruptedMemory) -> bytes:
        return pack(memory, mark=self._mark)

    def load(self, data: bytes) -> CorruptedMemory:
        # Nobody watched between `save` and `load`, however short that was.
        return replace(unpack(data, CorruptedMemory, mark=self._mark), seen_seconds=None)


def _advanced(memory: CorruptedMemory, reading: Reading, rise: float) -> CorruptedMemory:
    """Return the memory after a usable scrape in which the counter rose by `rise`."""
    now, since = reading.monotonic_seconds, memory.since_seconds
    if rise > 0:
        since = 0.0
    elif since is not None and memory.seen_seconds is not None:
        since += max(now - memory.seen_seconds, 0.0)
    return CorruptedMemory(reading.values[SIGNAL], now, since)


def _unknown(name: str, reading: Reading, obstacle: str) -> Verdict:
    """Return the verdict of a reading that cannot be judged."""
    absent = reading.absent.get(SIGNAL, Absence.NO_FAMILY)
    never = absent in {Absence.NO_FAMILY, Absence.NOT_IN_VERSION}
    if reading.up and SIGNAL not in reading.values and never:
        reason = f"{obstacle}; vLLM has it with VLLM_COMPUTE_NANS_IN_LOGITS=1"
        return reading.verdict(name, SIGNAL, Level.UNKNOWN, reason=reason)
    return reading.verdict(name, SIGNAL, Level.UNKNOWN, reason=obstacle, cause=CAUSE)
