"""A limit with hysteresis on a gauge, or on the ratio of two gauges."""

from __future__ import annotations

import difflib
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from detectors.hysteresis import Hysteresis
from detectors.records import Absence, Level, Reading, Verdict
from detectors.saved import mark_of, pack, unpack
from detectors.signals import READING_SIGNALS, Kind

_VERSION = 1  # of the memory's layout
_NO = frozenset({Absence.NO_FAMILY, Absence.NOT_IN_VERSION})


def known_gauge(name: str) -> str:
    """Return `name` if it is a canonical gauge.

    Raises:
        ValueError: If it is not; the message names the nearest one.
    """
    gauges = [row.name for row in READING_SIGNALS if row.kind is Kind.GAUGE]
    if name in gauges:
        return name
    near = difflib.get_close_matches(name, gauges, n=1, cutoff=0.0)
    msg = f"{name!r} is not a gauge that Fusewire reads; the nearest is {near[0]!r}"
    raise ValueError(msg)


Gauge: TypeAlias = Annotated[str, AfterValidator(known_gauge)]


class WhenConfig(BaseModel):
    """A condition without which a limit is no breach: `signal` above `above`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    signal: Gauge = Field(description="The gauge that must be high for a breach to count.")
    above: float = Field(default=0.0, description="In the signal's unit.")


class LimitConfig(BaseModel):
    """Settings of one limit with hysteresis on a reading."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["limit"] = "limit"
    name: str = Field(default="", max_length=64, description="Unique in a tier; else made.")
    signal: Gauge = Field(description="The gauge that is judged, high is bad.")
    divisor: Gauge | None = Field(
        default=None, description="Judge signal / divisor, 0 to 1 for a share, instead of signal."
    )
    trip: float = Field(description="Raised at or above this value, in the signal's unit.")
    clear: float = Field(description="Cleared at or below this value; must be under trip.")
    when: WhenConfig | None = Field(
        default=None, description="Only a breach while this holds; calm while it does not."
    )
    breaches: int = Field(default=3, ge=1, le=5, description="Of the last five scrapes, to raise.")
    calms: int = Field(default=3, ge=1, description="Calm scrapes in a row, to clear.")
    stale_seconds: float = Field(default=60, gt=0, description="Older readings are not judged.")
    cause: str = Field(default="limit_reached", description="Code that alerts and breakers share.")
    optional: bool = Field(
        default=False,
        description="Targets may lack the signals for good: then unknown without a cause, so "
        "that no alert follows.",
    )

    @model_validator(mode="after")
    def _band(self) -> Self:
        if self.clear >= self.trip:
            msg = f"clear {self.clear:g} must be under trip {self.trip:g}"
            raise ValueError(msg)
        return self

    def build(self) -> Limit:
        """Return the detector with these settings."""
        return Limit(self)


class Limit:
    """Raises when a gauge stays high, clears when it has come well down.

    Inputs: `signal`, `divisor` and the signal of `when`, from each completed scrape.
    Parameters: `trip` and `clear` (the band between them changes nothing), `breaches` of the last
    five scrapes to raise, `calms` scrapes in a row to clear.
    Verdict: warning for a breach that has not lasted yet, critical while raised; statistic is the
    value, threshold is `trip`, evidence the breaches of the last five; `details["breached"]` says
    whether this very scrape breached, for who counts breaches himself. Missing or stale input is
    unknown and leaves the memory as it is; a restart of the target empties it.
    Smallest change seen: any value at `trip` in `breaches` of five scrapes, so at 5 s a spell of
    10 s is the shortest that always raises.

    >>> from datetime import UTC, datetime
    >>> def scrape(value: float) -> Reading:
    ...     return Reading("chat", "a", "scrape", datetime(2026, 1, 1, tzinfo=UTC), 0.0, 0.01,
    ...                    values={"kv_cache_usage_ratio": value})
    >>> limit = LimitConfig(signal="kv_cache_usage_ratio", trip=0.95, clear=0.8).build()
    >>> memory, levels = limit.start(), []
    >>> for value in [0.97, 0.98, 0.97, 0.9, 0.7, 0.7, 0.7]:
    ...     memory, (verdict,) = limit.step(memory, scrape(value))
    ...     levels.append(str(verdict.level))
    >>> levels
    ['warning', 'warning', 'critical', 'critical', 'critical', 'critical', 'ok']
    >>> verdict.reason
    'kv_cache_usage_ratio 0.7, trip at 0.95, 0 of the last 5 scrapes'

    *Trade-offs*: it looks at the moment of the scrape, so spikes between scrapes are missed and a
    gauge that swings across `trip` with the period of the scrapes may be seen always or never.
    It gives no forewarning; that is for forecasts. A gauge that saturates by design (a cache that
    fills up and stays full) needs `when`, or it alarms for good.
    """

    def __init__(self, config: LimitConfig) -> None:
        self.config = config
        self.name = config.name or f"{config.signal}_limit"
        named = (config.signal, config.divisor, config.when.signal if config.when else None)
        self._needed = tuple(dict.fromkeys(signal for signal in named if signal))
        self.signals = frozenset(self._needed)
        self._mark = mark_of(config, version=_VERSION)
        self._subject = f"{config.signal} / {config.divisor}" if config.divisor else config.signal

    def start(self) -> Hysteresis:
        return Hysteresis()

    def step(self, memory: Hysteresis, reading: Reading) -> tuple[Hysteresis, tuple[Verdict, ...]]:
        if reading.restarted:
            memory = Hysteresis()
        obstacle = reading.obstacle(self._needed, stale_seconds=self.config.stale_seconds)
        if not obstacle and self.config.divisor and reading.values[self.config.divisor] <= 0:
            obstacle = f"{self.config.divisor} is {reading.values[self.config.divisor]:g}"
        if obstacle:
            return memory, (self._unknown(reading, obstacle),)
        value = reading.values[self.config.signal]
        if self.config.divisor:
            value /= reading.values[self.config.divisor]
        holds = self._holds(reading)
        memory = memory.seen(
            breach=holds and value >= self.config.trip,
            calm=not holds or value <= self.config.clear,
            breaches=self.config.breaches,
            calms=self.config.calms,
        )
        return memory, (self._judged(memory, reading, value),)

    def _holds(self, reading: Reading) -> bool:
        when = self.config.when
        return when is None or reading.values[when.signal] > when.above

    def _unknown(self, reading: Reading, obstacle: str) -> Verdict:
        missing = [signal for signal in self._needed if signal not in reading.values]
        never_told = self.config.optional and reading.up and missing
        if never_told and all(reading.absent.get(s, Absence.NO_FAMILY) in _NO for s in missing):
            reason = f"{obstacle}; the target does not tell it and the configuration does not say"
            return reading.verdict(self.name, self.config.signal, Level.UNKNOWN, reason=reason)
        return reading.verdict(
            self.name,
            self.config.signal,
            Level.UNKNOWN,
            reason=obstacle,
            cause=self.config.cause,
        )

    def _judged(self, memory: Hysteresis, reading: Reading, value: float) -> Verdict:
        when = self.config.when
        reason = f"{self._subject} {value:.3g}, trip at {self.config.trip:.3g}"
        if when is not None:
            reason += f" while {when.signal} > {when.above:g} (now {reading.values[when.signal]:g})"
        return reading.verdict(
            self.name,
            self.config.signal,
            memory.level,
            reason=f"{reason}, {memory.words()}",
            statistic=value,
            threshold=self.config.trip,
            evidence=float(memory.breaches),
            samples=len(memory.recent),
            cause=self.config.cause,
            details={"breached": float(memory.breached), "calm": float(memory.calm)},
        )

    def save(self, memory: Hysteresis) -> bytes:
        return pack(memory, mark=self._mark)

    def load(self, data: bytes) -> Hysteresis:
        return unpack(data, Hysteresis, mark=self._mark)
