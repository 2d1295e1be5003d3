"""Time to exhaustion: a cache, a GPU or a container whose floor rises until it is full."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from detectors.forecast import (
    FEWEST,
    SPAN_SECONDS,
    SPANS_OF_A_FLOOR,
    Floors,
    Forecast,
    forecast,
)
from detectors.hold import Hold
from detectors.limit import Gauge
from detectors.offered import Subject, unjudged
from detectors.records import Absence, Level, Reading, Verdict
from detectors.saved import mark_of, pack, unpack
from detectors.shares import Share, fullest

NEEDED_SECONDS = FEWEST * SPANS_OF_A_FLOOR * SPAN_SECONDS
_VERSION = 1  # of the memory's layout


class ExhaustionConfig(BaseModel):
    """Settings of one forecast of time to exhaustion."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["exhaustion"] = "exhaustion"
    name: str = Field(default="", max_length=64, description="Unique in a tier; else made.")
    signal: Gauge = Field(description="What fills up: a share, or an amount with a `divisor`.")
    divisor: Gauge | None = Field(default=None, description="What there is of it in all.")
    instead: Gauge | None = Field(
        default=None, description="Judged where `signal` is not told, such as a process' memory."
    )
    horizon_seconds: float = Field(
        default=720, gt=0, description="Raised when it would be full sooner than this."
    )
    floor: float = Field(
        default=0.8, gt=0, lt=1, description="And only when the floor is above this share."
    )
    clear: float = Field(default=0.7, gt=0, lt=1, description="Calm with a floor under this.")
    fit_seconds: float = Field(
        default=900, ge=600, le=960, description="Time through which the line is drawn."
    )
    hold_seconds: float = Field(default=60, ge=0, description="It must hold so long to raise.")
    clear_seconds: float = Field(default=60, ge=0, description="Calm of so long clears.")
    stale_seconds: float = Field(default=60, gt=0, description="Older readings are not judged.")
    cause: str = Field(default="memory_exhaustion", description="Code that alerts share.")

    @model_validator(mode="after")
    def _band(self) -> Self:
        if self.clear >= self.floor:
            msg = f"clear {self.clear:g} must be under floor {self.floor:g}"
            raise ValueError(msg)
        return self

    def build(self) -> Exhaustion:
        """Return the detector with these settings."""
        return Exhaustion(self)


@dataclass(frozen=True, slots=True)
class ExhaustionMemory:
    """The floors of the last quarter of an hour, and the persistence."""

    floors: Floors = field(default_factory=Floors)
    hold: Hold = field(default_factory=Hold)


class Exhaustion:
    """Raises while something still has room, when it will be full in minutes.

    Inputs: `signal` over `divisor` (of several devices the fullest), or `instead` where it is not
    told. Silent where neither is offered, or there is no limit.
    Rules: the smallest value of each minute, a leak lifts it and a burst does not; a straight line
    through the floors of `fit_seconds` (of median slope; a step that stands is no rise). GPU memory
    is not judged while the engine does not answer: it may be loading. A breach while the line
    reaches 1 within `horizon_seconds` and the floor is above `floor`; raised once that has held
    for `hold_seconds` of watched time. Calm while the floor is under `clear`, or the line needs
    twice the horizon.
    Parameters: `horizon_seconds`, `floor`, `clear`, `fit_seconds`, `hold_seconds`,
    `clear_seconds`.
    Verdict: warning for a breach that has not lasted yet, critical while raised, unknown above
    `floor` without eight minutes of floors; statistic is the floor, threshold `floor`, effect the
    slope in shares a minute; `details` has the seconds until full and their 90 % interval.
    Smallest change seen: a rise that reaches the limit within the horizon, from a floor of 0.8 on:
    1.7 % a minute there, less nearer the limit. With bursts and noise as in `docs/statistics.md`
    no false episode in 90 days; at 2 % a minute 7 minutes of lead, 3.6 in 19 of 20 cases.

    >>> from datetime import UTC, datetime
    >>> def scrape(second: float, share: float) -> Reading:
    ...     return Reading("chat", "a", "scrape", datetime(2026, 1, 1, tzinfo=UTC), second, 0.01,
    ...                    values={"kv_cache_usage_ratio": share})
    >>> ahead = ExhaustionConfig(signal="kv_cache_usage_ratio", cause="kv_cache_exhaustion").build()
    >>> memory = ahead.start()
    >>> for second in range(0, 700, 5):
    ...     memory, (verdict,) = ahead.step(memory, scrape(second, 0.6 + 0.0004 * second))
    >>> str(verdict.level), verdict.reason.split(" at")[0]
    ('critical', 'kv_cache_usage_ratio: floor of the last minute 0.858, full in 5.9 min')

    *Trade-offs*: what fills up faster than a minute is not foreseen; the hard limits see it. A leak
    too slow to end within the horizon is told only when it is near its end, an hour-long ramp of
    honest load looks like a leak. A cache that is full by design (blocks of a prefix cache counted
    as used) has a high floor that stands still, and is quiet. The interval takes the line for
    straight. A floor lags behind by up to a minute, and a steep line is full that much sooner.
    """

    def __init__(self, config: ExhaustionConfig) -> None:
        self.config = config
        self.name = config.name or f"{config.signal}_exhaustion"
        named = (config.signal, config.divisor, config.instead)
        self.signals = frozenset(signal for signal in named if signal)
        self._mark = mark_of(config, version=_VERSION)
        self._subject = Subject(self.name, config.signal, config.cause)
        self._spans = math.ceil(config.fit_seconds / SPAN_SECONDS)

    def start(self) -> ExhaustionMemory:
        return ExhaustionMemory()

    def step(
        self, memory: ExhaustionMemory, reading: Reading
    ) -> tuple[ExhaustionMemory, tuple[Verdict, ...]]:
        if reading.restarted:
            memory = ExhaustionMemory()
        signal = self._told(reading)
        if self._unlimited(reading):
            return memory, ()
        needed = [signal, *([self.config.divisor] if self.config.divisor else [])]
        stale = self.config.stale_seconds
        unknown = unjudged(self._subject, reading, needed, stale_seconds=stale)
        if unknown is not None:
            return replace(memory, hold=memory.hold.missed()), unknown
        if not reading.up and signal.startswith("gpu_"):
            return replace(memory, hold=memory.hold.missed()), (self._loading(reading),)
        share = fullest(reading, signal, self.config.divisor)
        if share is None:
            return replace(memory, hold=memory.hold.missed()), ()
        return self._judge(memory, reading, share)

    def _loading(self, reading: Reading) -> Verdict:
        """Return the verdict on a GPU whose engine does not answer: it may be loading weights."""
        reason = f"the engine does not answer: {reading.problem}"
        return reading.verdict(self.name, self.config.signal, Level.UNKNOWN, reason=reason)

    def _told(self, reading: Reading) -> str:
        """Return the signal that is judged in this reading."""
        other, first = self.config.instead, self.config.signal
        if other is not None and other in reading.values and first not in reading.values:
            return other
        return first

    def _unlimited(self, reading: Reading) -> bool:
        """Whether the source says that there is no limit: then it has a finding, too."""
        divisor = self.config.divisor or ""
        return reading.absent.get(divisor) is Absence.UNUSABLE and divisor == "memory_limit_bytes"

    def _judge(
        self, memory: ExhaustionMemory, reading: Reading, share: Share
    ) -> tuple[ExhaustionMemory, tuple[Verdict, ...]]:
        now = reading.monotonic_seconds
        floors = memory.floors.seen(max(share.value, 0.0), now, spans=self._spans)
        ahead = forecast(floors) if floors.floor > self.config.clear else None
        breach = floors.floor > self.config.floor and (
            ahead is not None and ahead.seconds < self.config.horizon_seconds
        )
        calm = floors.floor < self.config.clear or (
            ahead is not None and ahead.seconds > 2 * self.config.horizon_seconds
        )
        hold = memory.hold.seen(
            now,
            breach=breach,
            calm=calm,
            hold_seconds=self.config.hold_seconds,
            clear_seconds=self.config.clear_seconds,
        )
        memory = ExhaustionMemory(floors, hold)
        return memory, (self._judged(memory, reading, share, ahead),)

    def _judged(
        self, memory: ExhaustionMemory, reading: Reading, share: Share, ahead: Forecast | None
    ) -> Verdict:
        floor, place = memory.floors.floor, f" on device {share.device}" if share.device else ""
        words = f"{self._told(reading)}: floor of the last minute {floor:.3g}{place}"
        level = memory.hold.level
        if ahead is not None:
            words += f", {ahead.words()}; {memory.hold.words(self.config.hold_seconds)}"
        elif floor > self.config.floor and level is Level.OK:
            watched = f"{memory.floors.watched_seconds:.0f} s watched"
            words += f", {watched}, a forecast needs {NEEDED_SECONDS:g} s"
            return reading.verdict(self.name, self.config.signal, Level.UNKNOWN, reason=words)
        else:
            words += f"; a forecast is made above {self.config.clear:g}"
        return reading.verdict(
            self.name,
            self.config.signal,
            level,
            reason=words,
            statistic=floor,
            threshold=self.config.floor,
            effect=60 * ahead.slope if ahead else None,
            evidence=memory.hold.held_seconds or 0.0,
            samples=len(memory.floors.lows),
            cause=self.config.cause,
            details=_details(memory.hold, ahead),
        )

    def save(self, memory: ExhaustionMemory) -> bytes:
        return pack(memory, mark=self._mark)

    def load(self, data: bytes) -> ExhaustionMemory:
        # Nobody watched between `save` and `load`, however short that was.
        memory = unpack(data, ExhaustionMemory, mark=self._mark)
        return replace(memory, hold=memory.hold.missed())


def _details(hold: Hold, ahead: Forecast | None) -> dict[str, float]:
    details = {"breached": float(hold.breached)}
    if ahead is None:
        return details
    found = {
        "seconds_to_exhaustion": ahead.seconds,
        "earliest_seconds": ahead.earliest_seconds,
        "latest_seconds": ahead.latest_seconds,
    }
    return details | {name: value for name, value in found.items() if math.isfinite(value)}
