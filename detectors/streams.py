"""Streams that a proxy holds open, against a bound that its own memory teaches."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from detectors.hysteresis import Hysteresis
from detectors.line import Line
from detectors.offered import Subject, unjudged
from detectors.records import Level, Reading, Verdict
from detectors.saved import mark_of, pack, unpack

CAUSE = "streams_high"
SIGNAL = "client_streams_active"
_RSS, _LIMIT = "memory_rss_bytes", "memory_limit_bytes"
_VERSION = 1  # of the memory's layout


class StreamsConfig(BaseModel):
    """Settings of the detector of open streams."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["streams"] = "streams"
    name: str = Field(default="streams", max_length=64, description="Unique in a tier.")
    warn: int = Field(default=20, ge=1, description="Streams that warn, until a bound is learnt.")
    trip: int = Field(default=30, ge=1, description="Streams that raise, until a bound is learnt.")
    warn_share: float = Field(
        default=0.75, gt=0, lt=1, description="The bound warns where memory reaches this share."
    )
    trip_share: float = Field(
        default=0.80, gt=0, lt=1, description="The bound raises where memory reaches this share."
    )
    memory_seconds: float = Field(
        default=3600, gt=0, description="What is older hardly counts for the slope."
    )
    fewest: int = Field(default=20, ge=3, description="Reads before a slope is believed.")
    correlation: float = Field(
        default=0.8, gt=0, le=1, description="Of memory with streams, for a slope to be believed."
    )
    breaches: int = Field(default=3, ge=1, le=5, description="Of the last five reads, to raise.")
    calms: int = Field(default=3, ge=1, description="Calm reads in a row, to clear.")
    stale_seconds: float = Field(default=120, gt=0, description="Older readings are not judged.")

    @model_validator(mode="after")
    def _order(self) -> Self:
        if self.warn >= self.trip or self.warn_share >= self.trip_share:
            msg = (
                f"warn {self.warn} must be under trip {self.trip}, warn_share {self.warn_share:g} "
                f"under trip_share {self.trip_share:g}"
            )
            raise ValueError(msg)
        return self

    def build(self) -> Streams:
        """Return the detector with these settings."""
        return Streams(self)


@dataclass(frozen=True, slots=True)
class StreamsMemory:
    """Resident memory over streams, and the persistence of breaches."""

    line: Line = field(default_factory=Line)
    hysteresis: Hysteresis = field(default_factory=Hysteresis)


@dataclass(frozen=True, slots=True)
class _Bound:
    """Streams that warn and raise; `slope` in bytes a stream, None where nothing is learnt."""

    warn: float
    trip: float
    slope: float | None = None


class Streams:
    """Raises before a proxy that collects streams runs out of memory.

    Inputs: `client_streams_active`; `memory_rss_bytes` and `memory_limit_bytes` where told.
    Rules: a straight line through resident memory over streams, of the last hour. Where at least
    `fewest` reads of enough different numbers of streams lie on it (`correlation`), the bounds
    are the streams at which memory would reach `warn_share` and `trip_share` of the limit; else
    `warn` and `trip`.
    Parameters: as above; `breaches` of the last five reads to raise, `calms` in a row to clear.
    Verdict: warning from the first bound on, critical once the second has lasted; statistic is the
    number of streams, threshold the bound, effect the bytes a stream.
    Smallest change seen: 30 streams in three of five reads, with nothing learnt.

    >>> from datetime import UTC, datetime
    >>> def scrape(second: float, streams: int) -> Reading:
    ...     values = {"client_streams_active": float(streams), "memory_limit_bytes": 2e9,
    ...               "memory_rss_bytes": 2e8 + 3e7 * streams}
    ...     return Reading("chat", "proxy", "client", datetime(2026, 1, 1, tzinfo=UTC), second,
    ...                    0.01, values=values, neighbour=True)
    >>> streams = StreamsConfig().build()
    >>> memory = streams.start()
    >>> for step in range(45):
    ...     memory, (verdict,) = streams.step(memory, scrape(15.0 * step, step))
    >>> str(verdict.level), verdict.reason.split(";")[0]
    ('warning', '44 streams at proxy, 43 warn and 47 raise: 30 MB each, limit 2 GB')

    *Trade-offs*: memory that is not given back when streams end flattens the line or bends it, and
    then nothing is learnt. A proxy whose memory grows for other reasons at the same time teaches a
    bound that is too low. One long stream and one short one count alike.
    """

    def __init__(self, config: StreamsConfig) -> None:
        self.config = config
        self.name = config.name
        self.signals = frozenset({SIGNAL})
        self._mark = mark_of(config, version=_VERSION)
        self._subject = Subject(self.name, SIGNAL, CAUSE)

    def start(self) -> StreamsMemory:
        return StreamsMemory()

    def step(
        self, memory: StreamsMemory, reading: Reading
    ) -> tuple[StreamsMemory, tuple[Verdict, ...]]:
        if reading.restarted:
            memory = StreamsMemory(memory.line)
        stale = self.config.stale_seconds
        unknown = unjudged(self._subject, reading, (SIGNAL,), stale_seconds=stale)
        if unknown is not None:
            return memory, unknown
        streams, line = reading.values[SIGNAL], memory.line
        if not reading.obstacle((_RSS,), stale_seconds=stale):
            line = line.seen(
                streams,
                reading.values[_RSS],
                reading.monotonic_seconds,
                memory_seconds=self.config.memory_seconds,
            )
        bound = self._bound(line, reading)
        hysteresis = memory.hysteresis.seen(
            breach=streams >= bound.trip,
            calm=streams < bound.warn,
            breaches=self.config.breaches,
            calms=self.config.calms,
        )
        memory = StreamsMemory(line, hysteresis)
        return memory, (self._judged(memory, reading, bound),)

    def _bound(self, line: Line, reading: Reading) -> _Bound:
        plain = _Bound(self.config.warn, self.config.trip)
        limit = reading.values.get(_LIMIT, 0.0)
        sure = line.points >= self.config.fewest and line.correlation >= self.config.correlation
        if not sure or line.spread < 1.0 or limit <= 0:
            return plain
        warn = line.where(self.config.warn_share * limit)
        trip = line.where(self.config.trip_share * limit)
        if warn is None or trip is None:
            return plain
        return _Bound(max(warn, 1.0), max(trip, 1.0), line.slope)

    def _judged(self, memory: StreamsMemory, reading: Reading, bound: _Bound) -> Verdict:
        streams, level = reading.values[SIGNAL], memory.hysteresis.level
        if level is Level.OK and streams >= bound.warn:
            level = Level.WARNING
        how = "nothing learnt from its memory yet"
        if bound.slope is not None:
            limit = reading.values[_LIMIT] / 1e9
            how = f"{bound.slope / 1e6:.3g} MB each, limit {limit:.3g} GB"
        reason = (
            f"{streams:g} streams at {reading.target}, {bound.warn:.0f} warn and "
            f"{bound.trip:.0f} raise: {how}; {memory.hysteresis.words()}"
        )
        if level is not Level.OK:
            reason += "; bound the streams a pod takes, and answer 503 with Retry-After beyond"
        return reading.verdict(
            self.name,
            SIGNAL,
            level,
            reason=reason,
            statistic=streams,
            threshold=bound.trip,
            effect=bound.slope,
            evidence=float(memory.hysteresis.breaches),
            samples=memory.line.points,
            cause=CAUSE,
            details={"breached": float(memory.hysteresis.breached)},
        )

    def save(self, memory: StreamsMemory) -> bytes:
        return pack(memory, mark=self._mark)

    def load(self, data: bytes) -> StreamsMemory:
        return unpack(data, StreamsMemory, mark=self._mark)
