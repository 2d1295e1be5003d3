"""A vector store that has become slow: the tier behind it idles, then gets everything at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from detectors.hysteresis import Hysteresis
from detectors.offered import Subject, unjudged
from detectors.recent import Recent
from detectors.records import Histogram, Level, Reading, Verdict
from detectors.saved import mark_of, pack, unpack
from detectors.usual import Usual

CAUSE = "vector_store_slow"
_SEARCH, _DELETED = "vector_search_seconds", "vector_deleted_ratio"
_VERSION = 1  # of the memory's layout


class VectorLatencyConfig(BaseModel):
    """Settings of the detector of a slow vector store."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["vector_latency"] = "vector_latency"
    name: str = Field(default="vector_latency", max_length=64, description="Unique in a tier.")
    trip_seconds: float = Field(
        default=1.0, gt=0, description="A mean search time that is a breach by itself."
    )
    times: float = Field(default=3.0, gt=1, description="So many times the usual is a breach.")
    least_seconds: float = Field(
        default=0.2, ge=0, description="Faster searches are never a breach against the usual."
    )
    slow_share: float = Field(
        default=0.05, gt=0, lt=1, description="Of the searches over `trip_seconds`: a breach."
    )
    deleted: float = Field(
        default=0.3, gt=0, lt=1, description="Share of deleted vectors that warns."
    )
    window_seconds: float = Field(default=120, ge=15, description="Means are taken over this.")
    least_searches: int = Field(default=5, ge=1, description="In the window, to judge them.")
    span_seconds: float = Field(default=300, ge=60, description="Usual is a median of such means.")
    spans: int = Field(default=12, ge=3, le=24, description="How many of them.")
    fewest: int = Field(default=3, ge=1, description="Of them, before the usual is known.")
    breaches: int = Field(default=4, ge=1, le=5, description="Of the last five reads, to raise.")
    calms: int = Field(default=4, ge=1, description="Calm reads in a row, to clear.")
    stale_seconds: float = Field(default=120, gt=0, description="Older readings are not judged.")

    def build(self) -> VectorLatency:
        """Return the detector with these settings."""
        return VectorLatency(self)


@dataclass(frozen=True, slots=True)
class VectorLatencyMemory:
    """Sum, count and quick searches over the window; what is usual; the persistence."""

    recent: Recent = field(default_factory=Recent)
    usual: Usual = field(default_factory=Usual)
    hysteresis: Hysteresis = field(default_factory=Hysteresis)


@dataclass(frozen=True, slots=True)
class _Searches:
    """What the window holds."""

    mean_seconds: float
    slow: float  # share over `trip_seconds`, as the buckets tell
    count: float


class VectorLatency:
    """Names the vector store when prompts wait for it, so that nobody blames the engine.

    Inputs: of a neighbour, `vector_search_seconds` (means and buckets), `vector_deleted_ratio`.
    Silent where it tells neither.
    Rules: over `window_seconds` with `least_searches`, a breach is a mean at or above
    `trip_seconds`; one at or above `times` the median of the last hour, if above
    `least_seconds`; or `slow_share` of the searches slower than `trip_seconds`, by the first bucket
    bound at or above it. Breaches do not enter what is usual. A deleted share above `deleted` warns
    by itself: searches walk deleted vectors until they are compacted.
    Parameters: as above; `breaches` of the last five reads to raise, `calms` in a row to clear.
    Verdict: critical while latency is raised, warning for what has not lasted and for deleted
    vectors; statistic is the mean in seconds, threshold the limit, effect how many times the usual.
    Smallest change seen: three times the usual mean, above 0.2 s, in four of five reads.

    >>> from datetime import UTC, datetime
    >>> def scrape(second: float, sum: float) -> Reading:
    ...     found = Histogram((), (), second, sum)
    ...     return Reading("chat", "milvus", "milvus", datetime(2026, 1, 1, tzinfo=UTC), second,
    ...                    0.01, {"vector_deleted_ratio": 0.4}, neighbour=True,
    ...                    histograms={"vector_search_seconds": found})
    >>> vectors = VectorLatencyConfig().build()
    >>> memory, total = vectors.start(), 0.0
    >>> for second in range(0, 1500, 15):
    ...     total += 15 * (0.04 if second < 1400 else 12.0)
    ...     memory, (verdict,) = vectors.step(memory, scrape(second, total))
    >>> str(verdict.level), verdict.reason.split(";")[0]
    ('critical', 'vector store milvus: a search takes 9 s, 225 times the usual 0.04 s')

    *Trade-offs*: it says that searches are slow, not that a prompt waited for them. A mean hides
    few very slow searches; the slow share sees them where buckets are given. Larger result sets are
    slower without a fault.
    """

    def __init__(self, config: VectorLatencyConfig) -> None:
        self.config = config
        self.name = config.name
        self.signals = frozenset({_SEARCH, _DELETED})
        self._mark = mark_of(config, version=_VERSION)
        self._subject = Subject(self.name, _SEARCH, CAUSE)

    def start(self) -> VectorLatencyMemory:
        return VectorLatencyMemory()

    def step(
        self, memory: VectorLatencyMemory, reading: Reading
    ) -> tuple[VectorLatencyMemory, tuple[Verdict, ...]]:
        if reading.restarted:
            memory = VectorLatencyMemory(usual=memory.usual, hysteresis=memory.hysteresis)
        told = [it for it in (_SEARCH, _DELETED) if it in reading.known] or [_SEARCH]
        stale = self.config.stale_seconds
        answers = [unjudged(self._subject, reading, (it,), stale_seconds=stale) for it in told]
        if None not in answers:
            return memory, next((answer for answer in answers if answer), ())
        recent, found = self._found(memory, reading)
        usual, limit = memory.usual, self._limit(memory.usual)
        breach = found is not None and (
            found.mean_seconds >= limit or found.slow >= self.config.slow_share
        )
        hysteresis = memory.hysteresis.seen(
            breach=breach,
            calm=not breach,
            breaches=self.config.breaches,
            calms=self.config.calms,
        )
        if found is not None and not breach:
            usual = usual.seen(
                found.mean_seconds,
                reading.monotonic_seconds,
                span_seconds=self.config.span_seconds,
                spans=self.config.spans,
            )
        memory = VectorLatencyMemory(recent, usual, hysteresis)
        return memory, (self._judged(memory, reading, found, limit),)

    def _found(
        self, memory: VectorLatencyMemory, reading: Reading
    ) -> tuple[Recent, _Searches | None]:
        histogram = reading.histograms.get(_SEARCH)
        if histogram is None:
            return Recent(), None
        quick = _quick(histogram, self.config.trip_seconds)
        row = (reading.monotonic_seconds, histogram.sum, histogram.total, quick)
        recent = memory.recent.seen(row, window_seconds=self.config.window_seconds)
        grown = recent.grown()
        if grown is None or grown[2] < self.config.least_searches:
            return recent, None
        _, seconds, count, fast = grown
        slow = max(1.0 - fast / count, 0.0)
        return recent, _Searches(max(seconds, 0.0) / count, slow, count)

    def _limit(self, usual: Usual) -> float:
        level = usual.level(fewest=self.config.fewest)
        if level is None:
            return self.config.trip_seconds
        own = max(self.config.times * level, self.config.least_seconds)
        return min(own, self.config.trip_seconds)

    def _judged(
        self,
        memory: VectorLatencyMemory,
        reading: Reading,
        found: _Searches | None,
        limit: float,
    ) -> Verdict:
        usual = memory.usual.level(fewest=self.config.fewest)
        deleted = reading.values.get(_DELETED)
        level = memory.hysteresis.level
        words = ["few searches lately" if found is None else _speed(found, usual)]
        if found is not None and found.slow > 0:
            words.append(f"{found.slow:.2g} of them over {self.config.trip_seconds:g} s")
        advice = ["its prompts wait there: the engine is not to blame"] * (level is not Level.OK)
        if deleted is not None:
            words.append(f"{deleted:.2g} of the vectors deleted")
            if deleted > self.config.deleted:
                level = Level.WARNING if level is Level.OK else level
                advice.append("compact the collection")
        reason = "; ".join((f"vector store {reading.target}: {words[0]}", *words[1:], *advice))
        times = found.mean_seconds / usual if found is not None and usual else None
        return reading.verdict(
            self.name,
            _SEARCH,
            level,
            reason=f"{reason}; {memory.hysteresis.words()}",
            statistic=found.mean_seconds if found else 0.0,
            threshold=limit,
            effect=times,
            evidence=float(memory.hysteresis.breaches),
            samples=int(found.count) if found else 0,
            cause=CAUSE,
            details={"breached": float(memory.hysteresis.breached)},
        )

    def save(self, memory: VectorLatencyMemory) -> bytes:
        return pack(memory, mark=self._mark)

    def load(self, data: bytes) -> VectorLatencyMemory:
        return unpack(data, VectorLatencyMemory, mark=self._mark)


def _speed(found: _Searches, usual: float | None) -> str:
    words = f"a search takes {found.mean_seconds:.2g} s"
    if usual:
        words += f", {found.mean_seconds / usual:.3g} times the usual {usual:.2g} s"
    return words


def _quick(histogram: Histogram, seconds: float) -> float:
    """Return the searches within the first bound at or above `seconds`; all of them without one."""
    for bound, count in zip(histogram.bounds, histogram.counts, strict=True):
        if bound >= seconds:
            return count
    return histogram.total
