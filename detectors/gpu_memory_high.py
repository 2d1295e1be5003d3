"""GPU memory held high, on engines that reserve it at start judged by what is left beside that."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from detectors.hold import Hold
from detectors.offered import Subject, unjudged
from detectors.records import Reading, Verdict
from detectors.saved import mark_of, pack, unpack
from detectors.shares import Share, fullest

CAUSE = "gpu_memory_high"
_USED, _TOTAL = "gpu_memory_used_bytes", "gpu_memory_total_bytes"
_RESERVING = frozenset({"vllm", "tgi", "lorax", "sglang", "trtllm"})
_VERSION = 1  # of the memory's layout


class GpuMemoryHighConfig(BaseModel):
    """Settings of the detector of GPU memory held high."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["gpu_memory_high"] = "gpu_memory_high"
    name: str = Field(default="gpu_memory", max_length=64, description="Unique in a tier.")
    trip: float = Field(default=0.85, gt=0, lt=1, description="Share of the memory in use.")
    headroom: float = Field(
        default=0.5,
        gt=0,
        le=1,
        description="Of what an engine that reserves its memory leaves free, this much may go.",
    )
    full: float = Field(default=0.99, gt=0, le=1, description="Too much on any engine.")
    warm_up_seconds: float = Field(
        default=600, ge=0, description="Watched time before the level of such an engine is known."
    )
    hold_seconds: float = Field(default=300, ge=0, description="It must hold so long to raise.")
    clear_seconds: float = Field(default=60, ge=0, description="Calm of so long clears.")
    stale_seconds: float = Field(default=90, gt=0, description="Older readings are not judged.")

    def build(self) -> GpuMemoryHigh:
        """Return the detector with these settings."""
        return GpuMemoryHigh(self)


@dataclass(frozen=True, slots=True)
class GpuMemoryMemory:
    """`watched_seconds` since start; `settled` is the smallest share since the warm-up."""

    watched_seconds: float = 0.0
    settled: float | None = None
    hold: Hold = field(default_factory=Hold)


class GpuMemoryHigh:
    """Raises when a GPU's memory stays nearly full, and not because the engine reserved it.

    Inputs: `gpu_memory_used_bytes` and `gpu_memory_total_bytes`, the fullest device; the engine's
    name, and `kv_cache_usage_ratio` where the engine did not say its name.
    Rules: on vLLM, TGI, LoRAX, SGLang and TensorRT-LLM, and on any engine that tells the usage of
    a KV cache, most memory is taken at start. There the level is the smallest share seen after
    `warm_up_seconds`, and a breach is growth that takes `headroom` of what was left free above it,
    with `trip` exceeded. On others a breach is a share above `trip`. A share of `full` is a breach
    on any.
    Parameters: `trip`, `headroom`, `full`, `warm_up_seconds`, `hold_seconds`, `clear_seconds`.
    Verdict: warning for a breach that has not lasted `hold_seconds` yet, critical while raised;
    statistic is the share, threshold the share from which it counts, effect the growth above the
    level.
    Smallest change seen: on a plain server any share above 0.85 for 5 minutes; on vLLM with 0.92
    reserved growth to 0.96.

    >>> from datetime import UTC, datetime
    >>> def scrape(second: float, used: float, engine: str) -> Reading:
    ...     values = {"gpu_memory_used_bytes": used, "gpu_memory_total_bytes": 80e9}
    ...     return Reading("chat", "a", "scrape", datetime(2026, 1, 1, tzinfo=UTC), second, 0.01,
    ...                    values=values, identity=Identity(engine))
    >>> from detectors.records import Identity
    >>> high = GpuMemoryHighConfig().build()
    >>> for engine in ("", "vllm"):
    ...     memory = high.start()
    ...     for second in range(0, 1200, 5):
    ...         memory, (verdict,) = high.step(memory, scrape(second, 0.92 * 80e9, engine))
    ...     print(engine or "plain", verdict.level)
    plain critical
    vllm ok

    *Trade-offs*: an engine that reserves memory and has too much of it from its first minute on is
    not seen before `full`. Growth during the warm-up counts as start. The level can only fall, so
    memory that was lent to another process for a while and comes back looks like growth. A level is
    of the fullest device; when another becomes the fullest, that is growth as well.
    """

    def __init__(self, config: GpuMemoryHighConfig) -> None:
        self.config = config
        self.name = config.name
        self.signals = frozenset({_USED, _TOTAL})
        self._mark = mark_of(config, version=_VERSION)
        self._subject = Subject(self.name, _USED, CAUSE)

    def start(self) -> GpuMemoryMemory:
        return GpuMemoryMemory()

    def step(
        self, memory: GpuMemoryMemory, reading: Reading
    ) -> tuple[GpuMemoryMemory, tuple[Verdict, ...]]:
        if reading.restarted:
            memory = GpuMemoryMemory()
        stale = self.config.stale_seconds
        unknown = unjudged(self._subject, reading, (_USED, _TOTAL), stale_seconds=stale)
        share = None if unknown is not None else fullest(reading, _USED, _TOTAL)
        if share is None:
            return replace(memory, hold=memory.hold.missed()), unknown or ()
        memory = self._watched(memory, reading, share)
        limit = self._limit(memory, reading)
        hold = memory.hold.seen(
            reading.monotonic_seconds,
            breach=share.value > limit,
            calm=share.value <= limit - 0.02,
            hold_seconds=self.config.hold_seconds,
            clear_seconds=self.config.clear_seconds,
        )
        memory = replace(memory, hold=hold)
        return memory, (self._judged(memory, reading, share, limit),)

    def _watched(self, memory: GpuMemoryMemory, reading: Reading, share: Share) -> GpuMemoryMemory:
        seen, now = memory.hold.seen_seconds, reading.monotonic_seconds
        watched = memory.watched_seconds + (max(now - seen, 0.0) if seen is not None else 0.0)
        if watched < self.config.warm_up_seconds:
            return replace(memory, watched_seconds=watched)
        settled = share.value if memory.settled is None else min(memory.settled, share.value)
        return replace(memory, watched_seconds=watched, settled=settled)

    def _limit(self, memory: GpuMemoryMemory, reading: Reading) -> float:
        """Return the share above which is a breach."""
        if not _reserves(reading):
            return self.config.trip
        if memory.settled is None:
            return self.config.full
        growing = memory.settled + self.config.headroom * (1.0 - memory.settled)
        return min(max(growing, self.config.trip), self.config.full)

    def _judged(
        self, memory: GpuMemoryMemory, reading: Reading, share: Share, limit: float
    ) -> Verdict:
        words = f"{share.words()} of the GPU memory in use, raised above {limit:.3g}"
        if _reserves(reading):
            level = "not known yet" if memory.settled is None else f"{memory.settled:.3g}"
            words += f" (the engine reserves memory: its level since the warm-up is {level})"
        return reading.verdict(
            self.name,
            _USED,
            memory.hold.level,
            reason=f"{words}; {memory.hold.words(self.config.hold_seconds)}",
            statistic=share.value,
            threshold=limit,
            effect=None if memory.settled is None else share.value - memory.settled,
            evidence=memory.hold.held_seconds or 0.0,
            cause=CAUSE,
            details={
                "breached": float(memory.hold.breached),
                "free_bytes": share.whole - share.used,
            },
        )

    def save(self, memory: GpuMemoryMemory) -> bytes:
        return pack(memory, mark=self._mark)

    def load(self, data: bytes) -> GpuMemoryMemory:
        # Nobody watched between `save` and `load`, however short that was.
        memory = unpack(data, GpuMemoryMemory, mark=self._mark)
        return replace(memory, hold=memory.hold.missed())


def _reserves(reading: Reading) -> bool:
    return reading.identity.engine in _RESERVING or "kv_cache_usage_ratio" in reading.values
