"""A queue that grows faster than it drains, or makes requests wait too long."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from detectors.hysteresis import Hysteresis
from detectors.records import Level, Reading, Verdict
from detectors.saved import mark_of, pack, unpack

CAUSE = "queue_growing"
FEWEST = 3  # scrapes, for a slope to mean something
LEAST_GAIN = 1.0  # requests over the ring: less is a queue that stands still
_VERSION = 1  # of the memory's layout


class QueueGrowthConfig(BaseModel):
    """Settings of the queue detector."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["queue_growth"] = "queue_growth"
    name: str = Field(default="queue_growth", max_length=64, description="Unique in a tier.")
    waiting_per_running: float = Field(
        default=1.0, gt=0, description="A queue is long from this many waiting per running one."
    )
    least_waiting: int = Field(
        default=2, ge=1, description="A queue shorter than this never counts as growing."
    )
    trip_seconds: float = Field(
        default=5.0, gt=0, description="Mean time in the queue that is a breach by itself."
    )
    clear_seconds: float = Field(default=1.0, ge=0, description="Mean time in the queue when calm.")
    ring: int = Field(default=6, ge=3, le=60, description="Scrapes over which growth is fitted.")
    breaches: int = Field(default=3, ge=1, le=5, description="Of the last five scrapes, to raise.")
    calms: int = Field(default=3, ge=1, description="Calm scrapes in a row, to clear.")
    stale_seconds: float = Field(default=60, gt=0, description="Older readings are not judged.")

    @model_validator(mode="after")
    def _band(self) -> Self:
        if self.clear_seconds >= self.trip_seconds:
            msg = (
                f"clear_seconds {self.clear_seconds:g} must be under "
                f"trip_seconds {self.trip_seconds:g}"
            )
            raise ValueError(msg)
        return self

    def build(self) -> QueueGrowth:
        """Return the detector with these settings."""
        return QueueGrowth(self)


@dataclass(frozen=True, slots=True)
class Sample:
    """One scrape: when (monotonic), how many wait, and the queue histogram's sum and count."""

    seconds: float
    waiting: float
    queued_seconds: float | None
    queued_requests: float | None


@dataclass(frozen=True, slots=True)
class QueueMemory:
    """The newest `ring` samples, oldest first, and the persistence of breaches."""

    samples: tuple[Sample, ...] = ()
    hysteresis: Hysteresis = field(default_factory=Hysteresis)


@dataclass(frozen=True, slots=True)
class _Facts:
    """What the ring says of the queue now."""

    waiting: float
    running: float
    growth_per_second: float | None  # requests a second, least squares; None with under 3 samples
    gained: float  # requests over the ring, by that slope
    rising: bool  # the newest scrape is not below the one before
    wait_seconds: float | None  # mean over requests that left the queue within the ring


class QueueGrowth:
    """Raises when requests come faster than the engine takes them, before they time out.

    Inputs: `requests_waiting`, `requests_running`, and the histogram `queue_seconds` where the
    engine has one (its absence only removes the second rule).
    Rules, either is a breach: (1) at least `waiting_per_running` wait per running request, the
    least-squares slope over the last `ring` scrapes is positive and the newest scrape did not
    fall; (2) some wait, and the mean time in the queue of the requests that left it within the
    ring is `trip_seconds` or more. Calm: nobody waits, or fewer than half of rule 1's length and
    a mean time at or below `clear_seconds`. Persistence as for a limit: `breaches` of five,
    `calms` in a row.
    Verdict: statistic is the number waiting, threshold the length from which rule 1 counts,
    effect the growth in requests a second, evidence the breaches of the last five scrapes.
    Smallest change seen: a queue as long as the running batch that gains one request over the
    ring; a queue that stands still is seen by rule 2 alone.

    >>> from datetime import UTC, datetime
    >>> def scrape(second: int, waiting: float) -> Reading:
    ...     return Reading("chat", "a", "scrape", datetime(2026, 1, 1, tzinfo=UTC), float(second),
    ...                    0.01, values={"requests_running": 8, "requests_waiting": waiting})
    >>> queue = QueueGrowthConfig().build()
    >>> memory = queue.start()
    >>> for step, waiting in enumerate([0, 6, 12, 18, 24, 30]):
    ...     memory, (verdict,) = queue.step(memory, scrape(5 * step, waiting))
    >>> str(verdict.level), verdict.reason
    ('critical', '30 waiting, 8 running, growing by 1.2 requests/s, 4 of the last 5 scrapes')

    *Trade-offs*: a burst that jumps and then drains is let pass if it drains within two scrapes;
    a slow engine that takes nobody from the queue has no queue times, and only rule 1 sees it.
    The mean hides a few requests that wait very long beside many that do not. Autoscaling that
    brings a fresh target up to load can look like growth for three scrapes.
    """

    def __init__(self, config: QueueGrowthConfig) -> None:
        self.config = config
        self.name = config.name
        self.signals = frozenset({"requests_waiting", "requests_running", "queue_seconds"})
        self._mark = mark_of(config, version=_VERSION)

    def start(self) -> QueueMemory:
        return QueueMemory()

    def step(
        self, memory: QueueMemory, reading: Reading
    ) -> tuple[QueueMemory, tuple[Verdict, ...]]:
        if reading.restarted:
            memory = QueueMemory()
        needed = ("requests_waiting", "requests_running")
        obstacle = reading.obstacle(needed, stale_seconds=self.config.stale_seconds)
        if obstacle:
            unknown = reading.verdict(
                self.name, "requests_waiting", Level.UNKNOWN, reason=obstacle, cause=CAUSE
            )
            return memory, (unknown,)
        samples = (*memory.samples, _sample(reading))[-self.config.ring :]
        facts = _facts(samples, reading.values["requests_running"])
        hysteresis = memory.hysteresis.seen(
            breach=self._growing(facts) or self._slow(facts),
            calm=self._calm(facts),
            breaches=self.config.breaches,
            calms=self.config.calms,
        )
        return QueueMemory(samples, hysteresis), (self._judged(hysteresis, reading, facts),)

    def _long_from(self, facts: _Facts) -> float:
        """Return the number waiting from which a queue counts as long."""
        return max(self.config.waiting_per_running * facts.running, self.config.least_waiting)

    def _growing(self, facts: _Facts) -> bool:
        growth = facts.growth_per_second
        is_long = facts.waiting >= self._long_from(facts)
        return is_long and facts.rising and growth is not None and facts.gained >= LEAST_GAIN

    def _slow(self, facts: _Facts) -> bool:
        seconds = facts.wait_seconds
        return facts.waiting > 0 and seconds is not None and seconds >= self.config.trip_seconds

    def _calm(self, facts: _Facts) -> bool:
        if facts.waiting <= 0:  # those who left long ago say nothing of who comes now
            return True
        quick = facts.wait_seconds is None or facts.wait_seconds <= self.config.clear_seconds
        return quick and facts.waiting < self._long_from(facts) / 2

    def _judged(self, hysteresis: Hysteresis, reading: Reading, facts: _Facts) -> Verdict:
        words = [f"{facts.waiting:g} waiting", f"{facts.running:g} running"]
        if self._growing(facts):
            words.append(f"growing by {facts.growth_per_second:.2g} requests/s")
        if facts.wait_seconds is not None:
            words.append(f"mean time in the queue {facts.wait_seconds:.2g} s")
        details = {"breached": float(hysteresis.breached), "calm": float(hysteresis.calm)}
        if facts.wait_seconds is not None:
            details["wait_seconds"] = facts.wait_seconds
        return reading.verdict(
            self.name,
            "requests_waiting",
            hysteresis.level,
            reason=f"{', '.join(words)}, {hysteresis.words()}",
            statistic=facts.waiting,
            threshold=self._long_from(facts),
            effect=facts.growth_per_second,
            evidence=float(hysteresis.breaches),
            samples=len(hysteresis.recent),
            cause=CAUSE,
            details=details,
        )

    def save(self, memory: QueueMemory) -> bytes:
        return pack(memory, mark=self._mark)

    def load(self, data: bytes) -> QueueMemory:
        return unpack(data, QueueMemory, mark=self._mark)


def _sample(reading: Reading) -> Sample:
    histogram = reading.histograms.get("queue_seconds")
    return Sample(
        seconds=reading.monotonic_seconds,
        waiting=reading.values["requests_waiting"],
        queued_seconds=histogram.sum if histogram else None,
        queued_requests=histogram.total if histogram else None,
    )


def _facts(samples: tuple[Sample, ...], running: float) -> _Facts:
    """Return what the ring says; `samples` holds at least one, the newest last."""
    newest = samples[-1]
    before = samples[-2] if len(samples) > 1 else newest
    slope = _slope(samples) if len(samples) >= FEWEST else None
    return _Facts(
        waiting=newest.waiting,
        running=running,
        growth_per_second=slope,
        gained=slope * (newest.seconds - samples[0].seconds) if slope is not None else 0.0,
        rising=newest.waiting >= before.waiting,
        wait_seconds=_mean_wait(samples),
    )


def _slope(samples: tuple[Sample, ...]) -> float | None:
    """Return the least-squares slope of `waiting` in requests a second; None without a span."""
    center = sum(sample.seconds for sample in samples) / len(samples)
    spread = sum((sample.seconds - center) ** 2 for sample in samples)
    if spread <= 0:
        return None
    first = samples[0].waiting  # subtracted, so that a queue that stands still is exactly 0
    covariance = sum((sample.seconds - center) * (sample.waiting - first) for sample in samples)
    return covariance / spread


def _mean_wait(samples: tuple[Sample, ...]) -> float | None:
    """Return the mean queue time of requests that left the queue within the ring, in seconds."""
    known = [
        (sample.queued_seconds, sample.queued_requests)
        for sample in samples
        if sample.queued_seconds is not None and sample.queued_requests is not None
    ]
    if not known:
        return None
    left = known[-1][1] - known[0][1]
    return (known[-1][0] - known[0][0]) / left if left > 0 else None
