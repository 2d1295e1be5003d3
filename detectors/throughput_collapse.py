"""An engine that still makes tokens, far fewer than it is used to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from detectors.hysteresis import Hysteresis
from detectors.offered import Subject, unjudged
from detectors.recent import Recent
from detectors.records import Absence, Level, Reading, Verdict
from detectors.saved import mark_of, pack, unpack
from detectors.usual import Usual

CAUSE = "throughput_collapse"
_MADE, _RUNNING, _STEPS = "generation_tokens_total", "requests_running", "engine_steps_total"
_VERSION = 1  # of the memory's layout


class ThroughputCollapseConfig(BaseModel):
    """Settings of the detector of collapsed throughput."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["throughput_collapse"] = "throughput_collapse"
    name: str = Field(default="throughput", max_length=64, description="Unique in a tier.")
    share: float = Field(
        default=0.4, gt=0, lt=1, description="Of the usual rate: at or below is a breach."
    )
    window_seconds: float = Field(default=60, ge=15, description="Rates are taken over this.")
    span_seconds: float = Field(default=300, ge=60, description="Usual is a median of such means.")
    spans: int = Field(default=12, ge=3, le=24, description="How many of them.")
    fewest: int = Field(default=3, ge=1, description="Of them, before anything is judged.")
    breaches: int = Field(default=5, ge=1, le=5, description="Of the last five scrapes, to raise.")
    calms: int = Field(default=6, ge=1, description="Calm scrapes in a row, to clear.")
    stale_seconds: float = Field(default=60, gt=0, description="Older readings are not judged.")

    def build(self) -> ThroughputCollapse:
        """Return the detector with these settings."""
        return ThroughputCollapse(self)


@dataclass(frozen=True, slots=True)
class ThroughputMemory:
    """The window's counter and running requests; usual rates of the whole and per request."""

    recent: Recent = field(default_factory=Recent)
    whole: Usual = field(default_factory=Usual)
    each: Usual = field(default_factory=Usual)
    hysteresis: Hysteresis = field(default_factory=Hysteresis)


@dataclass(frozen=True, slots=True)
class _Rates:
    """Tokens (or steps) a second, whole and per running request, against what is usual."""

    whole: float
    each: float
    usual_whole: float
    usual_each: float

    @property
    def share(self) -> float:
        """The larger of the two shares of what is usual: both must have fallen."""
        return max(self.whole / self.usual_whole, self.each / self.usual_each)


class ThroughputCollapse:
    """Raises when requests run and come forward at a fraction of the usual speed.

    Inputs: `requests_running`, `generation_tokens_total`; `engine_steps_total` in its place where
    the engine counts tokens at a request's end.
    Rules: over `window_seconds` in which requests ran all the time, the rate of tokens and the rate
    per running request are both at or below `share` of their own median over the last hour of
    such windows. A larger batch lowers the second and raises the first, a smaller one the other
    way, so load alone is no breach. Breaches do not enter what is usual.
    Parameters: `share`, `window_seconds`, `span_seconds`, `spans`, `fewest`, `breaches`, `calms`.
    Verdict: warning for a breach that has not lasted, critical while raised; unknown until
    `fewest` spans with work were seen; ok without work. Statistic is the larger share of the two,
    threshold `share`, effect the tokens a second.
    Smallest change seen: a fall to 0.4 of the usual speed for a minute and five scrapes.

    >>> from datetime import UTC, datetime
    >>> def scrape(second: float, made: float) -> Reading:
    ...     values = {"requests_running": 8, "generation_tokens_total": made}
    ...     return Reading("chat", "a", "scrape", datetime(2026, 1, 1, tzinfo=UTC), second, 0.01,
    ...                    values=values)
    >>> collapse = ThroughputCollapseConfig().build()
    >>> memory, made = collapse.start(), 0.0
    >>> for second in range(0, 2000, 5):
    ...     made += 5 * (400 if second < 1800 else 80)
    ...     memory, (verdict,) = collapse.step(memory, scrape(second, made))
    >>> str(verdict.level), verdict.reason.split(";")[0]
    ('critical', '80 tokens/s with 8 running, 0.2 of the usual 400')

    *Trade-offs*: a storm of long prompts takes the engine's steps from the answers, and looks like
    a collapse of decoding: that it is, and the cause is the input. A collapse that builds up over
    more than an hour becomes usual. An engine that has collapsed before Fusewire started is not
    seen, nor one that stands still entirely (`stalled` sees that sooner).
    """

    def __init__(self, config: ThroughputCollapseConfig) -> None:
        self.config = config
        self.name = config.name
        self.signals = frozenset({_MADE, _RUNNING})
        self._mark = mark_of(config, version=_VERSION)
        self._subject = Subject(self.name, _MADE, CAUSE)

    def start(self) -> ThroughputMemory:
        return ThroughputMemory()

    def step(
        self, memory: ThroughputMemory, reading: Reading
    ) -> tuple[ThroughputMemory, tuple[Verdict, ...]]:
        if reading.restarted:
            memory = ThroughputMemory(whole=memory.whole, each=memory.each)
        counter = _STEPS if _STEPS in reading.values else _MADE
        unknown = unjudged(
            self._subject,
            reading,
            (counter, _RUNNING),
            stale_seconds=self.config.stale_seconds,
            idle=(Absence.NO_DATA, Absence.NO_SAMPLE),
        )
        if unknown is not None:
            return memory, unknown
        running = reading.values[_RUNNING]
        row = (reading.monotonic_seconds, reading.values[counter], running)
        recent = memory.recent if running > 0 else Recent()
        recent = recent.seen(row, window_seconds=self.config.window_seconds)
        rates = self._rates(recent, memory)
        breach = rates is not None and rates.share <= self.config.share
        hysteresis = memory.hysteresis.seen(
            breach=breach,
            calm=not breach,
            breaches=self.config.breaches,
            calms=self.config.calms,
        )
        whole, each = memory.whole, memory.each
        measured = self._measured(recent)
        if measured is not None and not breach:
            whole, each = self._learnt(memory, measured, reading.monotonic_seconds)
        memory = ThroughputMemory(recent, whole, each, hysteresis)
        return memory, (self._judged(memory, reading, measured, rates),)

    def _measured(self, recent: Recent) -> tuple[float, float] | None:
        """Return the rates of a whole window with work; None before."""
        grown = recent.grown()
        if grown is None or grown[0] < self.config.window_seconds or recent.least(2) <= 0:
            return None
        whole = max(grown[1], 0.0) / grown[0]
        return whole, whole / recent.mean(2)

    def _rates(self, recent: Recent, memory: ThroughputMemory) -> _Rates | None:
        measured = self._measured(recent)
        whole = memory.whole.level(fewest=self.config.fewest)
        each = memory.each.level(fewest=self.config.fewest)
        if measured is None or not whole or not each:
            return None
        return _Rates(*measured, whole, each)

    def _learnt(
        self, memory: ThroughputMemory, measured: tuple[float, float], now: float
    ) -> tuple[Usual, Usual]:
        seconds, spans = self.config.span_seconds, self.config.spans
        whole = memory.whole.seen(measured[0], now, span_seconds=seconds, spans=spans)
        return whole, memory.each.seen(measured[1], now, span_seconds=seconds, spans=spans)

    def _judged(
        self,
        memory: ThroughputMemory,
        reading: Reading,
        measured: tuple[float, float] | None,
        rates: _Rates | None,
    ) -> Verdict:
        made = "steps" if _STEPS in reading.values else "tokens"
        running, level = reading.values[_RUNNING], memory.hysteresis.level
        known = memory.whole.level(fewest=self.config.fewest)
        if rates is not None:
            reason = (
                f"{rates.whole:.3g} {made}/s with {running:g} running, "
                f"{rates.whole / rates.usual_whole:.2g} of the usual {rates.usual_whole:.3g}; "
                f"{rates.each / rates.usual_each:.2g} of it per request, "
                f"{memory.hysteresis.words()}"
            )
        elif running > 0 and not known and level is Level.OK:
            have, need = len(memory.whole.means), self.config.fewest
            reason = f"collecting what is usual: {have} of {need} spans with work"
            return reading.verdict(self.name, _MADE, Level.UNKNOWN, reason=reason)
        else:
            reason = "no work" if running <= 0 else "not a whole window with work yet"
        return reading.verdict(
            self.name,
            _MADE,
            level,
            reason=reason,
            statistic=rates.share if rates else 1.0,
            threshold=self.config.share,
            effect=measured[0] if measured else None,
            evidence=float(memory.hysteresis.breaches),
            samples=len(memory.whole.means),
            cause=CAUSE,
            details={"breached": float(memory.hysteresis.breached)},
        )

    def save(self, memory: ThroughputMemory) -> bytes:
        return pack(memory, mark=self._mark)

    def load(self, data: bytes) -> ThroughputMemory:
        return unpack(data, ThroughputMemory, mark=self._mark)
