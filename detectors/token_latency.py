"""The slowest tokens: the 99th percentile of the time between tokens against its own past."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from detectors.hysteresis import Hysteresis
from detectors.offered import Subject, unjudged
from detectors.records import Absence, Level, Reading, Verdict
from detectors.saved import mark_of, pack, unpack
from detectors.usual import Usual

CAUSE = "token_latency_high"
SIGNAL = "inter_token_p99_seconds"
_IDLE = (Absence.NO_DATA, Absence.NO_SAMPLE, Absence.TOO_FEW, Absence.UNUSABLE)
_VERSION = 1  # of the memory's layout


class TokenLatencyConfig(BaseModel):
    """Settings of the detector of token latency."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["token_latency"] = "token_latency"
    name: str = Field(default="token_latency", max_length=64, description="Unique in a tier.")
    objective_seconds: float = Field(
        default=0, ge=0, description="A 99th percentile at or above is a breach; 0: none is set."
    )
    times: float = Field(default=3.0, gt=1, description="So many times the usual is a breach.")
    least_seconds: float = Field(
        default=0.05, ge=0, description="Faster tokens are never a breach against the usual."
    )
    span_seconds: float = Field(default=300, ge=60, description="Usual is a median of such means.")
    spans: int = Field(default=12, ge=3, le=24, description="How many of them.")
    fewest: int = Field(default=3, ge=1, description="Of them, before the usual is known.")
    breaches: int = Field(default=5, ge=1, le=5, description="Of the last five scrapes, to raise.")
    calms: int = Field(default=6, ge=1, description="Calm scrapes in a row, to clear.")
    stale_seconds: float = Field(default=60, gt=0, description="Older readings are not judged.")

    def build(self) -> TokenLatency:
        """Return the detector with these settings."""
        return TokenLatency(self)


@dataclass(frozen=True, slots=True)
class TokenLatencyMemory:
    """What is usual, and the persistence of breaches."""

    usual: Usual = field(default_factory=Usual)
    hysteresis: Hysteresis = field(default_factory=Hysteresis)


class TokenLatency:
    """Raises when users see answers stutter.

    Input: `inter_token_p99_seconds` (over the last minute) with the bucket that it lies in.
    Rules: a limit is `objective_seconds`, and `times` the median of the last hour's values, but
    at least `least_seconds`; the smaller counts. A breach is a bucket that lies wholly at or above
    the limit. Where the limit lies inside the bucket, nobody knows on which side the quantile is:
    that is a warning at most. Breaches do not enter what is usual.
    Parameters: `objective_seconds`, `times`, `least_seconds`, `span_seconds`, `spans`, `fewest`,
    `breaches` of the last five scrapes to raise, `calms` in a row to clear.
    Verdict: warning for what has not lasted or is not certain, critical while raised; unknown until
    a limit is known, and without traffic (no alert follows). Statistic is the quantile in seconds,
    threshold the limit, samples the tokens behind it.
    Smallest change seen: the first bucket bound at or above three times the usual.

    >>> from datetime import UTC, datetime
    >>> from detectors.records import Quantile
    >>> def scrape(value: float, lower: float, upper: float) -> Reading:
    ...     return Reading("chat", "a", "scrape", datetime(2026, 1, 1, tzinfo=UTC), 0.0, 0.01,
    ...                    values={"inter_token_p99_seconds": value},
    ...                    quantiles={"inter_token_p99_seconds":
    ...                               Quantile(value, lower, upper, 900, 60)})
    >>> slow = TokenLatencyConfig(objective_seconds=0.2).build()
    >>> memory = slow.start()
    >>> for buckets in [(0.3, 0.1, 0.5)] * 9 + [(0.6, 0.5, 0.75)] * 5:
    ...     memory, (verdict,) = slow.step(memory, scrape(*buckets))
    ...     if buckets[0] == 0.3: doubtful = str(verdict.level)
    >>> doubtful, str(verdict.level), verdict.reason.split(";")[0]
    ('warning', 'critical', '99th percentile between tokens 0.6 s (bucket 0.5 to 0.75 s)')

    *Trade-offs*: one percentile of one minute hides a few very slow answers among many, and with
    coarse buckets the certain breach comes late or never; give the engine finer ones. Long prompts
    that are prefilled in between stretch it without a fault of the engine. A level that is bad from
    the start is usual: set the objective.
    """

    def __init__(self, config: TokenLatencyConfig) -> None:
        self.config = config
        self.name = config.name
        self.signals = frozenset({SIGNAL})
        self._mark = mark_of(config, version=_VERSION)
        self._subject = Subject(self.name, SIGNAL, CAUSE)

    def start(self) -> TokenLatencyMemory:
        return TokenLatencyMemory()

    def step(
        self, memory: TokenLatencyMemory, reading: Reading
    ) -> tuple[TokenLatencyMemory, tuple[Verdict, ...]]:
        if reading.restarted:
            memory = TokenLatencyMemory(memory.usual)
        stale = self.config.stale_seconds
        unknown = unjudged(self._subject, reading, (SIGNAL,), stale_seconds=stale, idle=_IDLE)
        if unknown is not None:
            return memory, unknown
        value = reading.values[SIGNAL]
        quantile = reading.quantiles.get(SIGNAL)
        limit = self._limit(memory)
        breach = limit is not None and (quantile.lower if quantile else value) >= limit
        hysteresis = memory.hysteresis.seen(
            breach=breach,
            calm=limit is None or value < limit,
            breaches=self.config.breaches,
            calms=self.config.calms,
        )
        usual = memory.usual
        if not breach:
            usual = usual.seen(
                value,
                reading.monotonic_seconds,
                span_seconds=self.config.span_seconds,
                spans=self.config.spans,
            )
        memory = TokenLatencyMemory(usual, hysteresis)
        return memory, (self._judged(memory, reading, limit),)

    def _limit(self, memory: TokenLatencyMemory) -> float | None:
        usual = memory.usual.level(fewest=self.config.fewest)
        limits = [self.config.objective_seconds] if self.config.objective_seconds > 0 else []
        if usual is not None:
            limits.append(max(self.config.times * usual, self.config.least_seconds))
        return min(limits, default=None)

    def _judged(self, memory: TokenLatencyMemory, reading: Reading, limit: float | None) -> Verdict:
        value, quantile = reading.values[SIGNAL], reading.quantiles.get(SIGNAL)
        words = f"99th percentile between tokens {value:.3g} s"
        if quantile is not None:
            words += f" (bucket {quantile.lower:g} to {quantile.upper:g} s)"
        usual = memory.usual.level(fewest=self.config.fewest)
        if limit is None:
            have = f"{len(memory.usual.means)} of {self.config.fewest} spans"
            reason = f"{words}; collecting what is usual: {have}"
            return reading.verdict(self.name, SIGNAL, Level.UNKNOWN, reason=reason)
        level, doubt = memory.hysteresis.level, ""
        if level is Level.OK and value >= limit:
            level, doubt = Level.WARNING, ", the bucket is too coarse to say more"
        known = f", usual {usual:.3g} s" if usual is not None else ""
        reason = f"{words}; limit {limit:.3g} s{known}{doubt}, {memory.hysteresis.words()}"
        return reading.verdict(
            self.name,
            SIGNAL,
            level,
            reason=reason,
            statistic=value,
            threshold=limit,
            effect=value / usual if usual else None,
            evidence=float(memory.hysteresis.breaches),
            samples=int(quantile.samples) if quantile else 0,
            cause=CAUSE,
            details={"breached": float(memory.hysteresis.breached)},
        )

    def save(self, memory: TokenLatencyMemory) -> bytes:
        return pack(memory, mark=self._mark)

    def load(self, data: bytes) -> TokenLatencyMemory:
        return unpack(data, TokenLatencyMemory, mark=self._mark)
