"""Clients that are refused, ask again at once, and so keep the tier at its limit."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from detectors.hysteresis import Hysteresis
from detectors.offered import Subject, unjudged
from detectors.pulse import Pulses
from detectors.recent import Recent
from detectors.records import Reading, Verdict
from detectors.saved import mark_of, pack, unpack

CAUSE = "retry_storm"
_SENT, _REFUSED = "client_requests_total", "client_rate_limited_total"
_AGAIN, _QUEUE, _BOUND = "client_retries_total", "client_queue_size", "client_queue_bound"
_GROUPS = ((_SENT, _AGAIN), (_SENT, _REFUSED), (_QUEUE, _BOUND))
_VERSION = 1  # of the memory's layout


class RetryStormConfig(BaseModel):
    """Settings of the detector of retry storms."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["retry_storm"] = "retry_storm"
    name: str = Field(default="retry_storm", max_length=64, description="Unique in a tier.")
    retries: float = Field(
        default=0.05, gt=0, lt=1, description="Share of the calls that are retries."
    )
    refused: float = Field(default=0.10, gt=0, lt=1, description="Share of the calls answered 429.")
    queue: float = Field(
        default=0.80, gt=0, lt=1, description="Share of its bound that the client's queue uses."
    )
    clear: float = Field(
        default=0.5, gt=0, lt=1, description="Calm with all shares under this part of their limit."
    )
    least_calls: int = Field(
        default=20, ge=1, description="In the window; with fewer no shares are judged."
    )
    window_seconds: float = Field(default=180, ge=30, description="Shares are taken over this.")
    breaches: int = Field(default=3, ge=1, le=5, description="Of the last five reads, to raise.")
    calms: int = Field(default=3, ge=1, description="Calm reads in a row, to clear.")
    stale_seconds: float = Field(default=120, gt=0, description="Older readings are not judged.")

    def build(self) -> RetryStorm:
        """Return the detector with these settings."""
        return RetryStorm(self)


@dataclass(frozen=True, slots=True)
class RetryStormMemory:
    """Counters over the window, the rhythm of refusals, and the persistence of breaches."""

    recent: Recent = field(default_factory=Recent)
    pulses: Pulses = field(default_factory=Pulses)
    hysteresis: Hysteresis = field(default_factory=Hysteresis)


@dataclass(frozen=True, slots=True)
class _Shares:
    """Shares of the window's calls and of the queue's bound; None where not told."""

    calls: float
    retries: float | None
    refused: float | None
    queue: float | None
    waiting: float | None

    @property
    def amplification(self) -> float | None:
        """Requests for each distinct one."""
        return 1.0 / (1.0 - self.retries) if self.retries is not None and self.retries < 1 else None


class RetryStorm:
    """Raises when a client's retries have become a load of their own.

    Inputs: of a client or broker beside the tier, `client_requests_total` with
    `client_retries_total`, with `client_rate_limited_total` or both; `client_queue_size` with
    `client_queue_bound`. Silent where it tells none of these pairs.
    Rules, any is a breach: over `window_seconds` with at least `least_calls`, retries are above
    `retries` of the calls, or answers 429 above `refused`; the queue is above `queue` of its
    bound. Told beside it: amplification (requests for each distinct one) and synchrony (refusals
    that come in waves of one period: the autocorrelation of their rate).
    Parameters: `retries`, `refused`, `queue`, `clear`, `least_calls`, `window_seconds`, `breaches`
    of the last five reads to raise, `calms` in a row to clear.
    Verdict: warning for a breach that has not lasted, critical while raised. Statistic is the
    largest share in units of its limit, threshold 1, effect the amplification. The reason has what
    to do at the client: nothing at the engine ends it.
    Smallest change seen: retries above 5 % of the calls in three reads.

    >>> from datetime import UTC, datetime
    >>> def scrape(second: float) -> Reading:
    ...     values = {"client_requests_total": 10 * second, "client_retries_total": 3 * second,
    ...               "client_rate_limited_total": 3 * second}
    ...     return Reading("chat", "batch", "client", datetime(2026, 1, 1, tzinfo=UTC), second,
    ...                    0.01, values=values, neighbour=True)
    >>> storm = RetryStormConfig().build()
    >>> memory = storm.start()
    >>> for second in range(0, 75, 15):
    ...     memory, (verdict,) = storm.step(memory, scrape(second))
    >>> str(verdict.level), verdict.reason.split(";")[0]
    ('critical', 'client batch: 0.3 of 600 calls are retries, 0.3 answered 429, 1.43 requests each')

    *Trade-offs*: it believes the client's own counters; a client that counts no retries is judged
    by its 429 answers alone. Retries for other reasons than overload (a network that loses
    connections) count as well. Waves are seen from two reads a period on, so at 15 s between
    reads those faster than 30 s are not.
    """

    def __init__(self, config: RetryStormConfig) -> None:
        self.config = config
        self.name = config.name
        self.signals = frozenset({_SENT, _REFUSED, _AGAIN, _QUEUE, _BOUND})
        self._mark = mark_of(config, version=_VERSION)
        self._subject = Subject(self.name, _SENT, CAUSE)

    def start(self) -> RetryStormMemory:
        return RetryStormMemory()

    def step(
        self, memory: RetryStormMemory, reading: Reading
    ) -> tuple[RetryStormMemory, tuple[Verdict, ...]]:
        if reading.restarted:
            memory = RetryStormMemory(hysteresis=memory.hysteresis)
        groups = [it for it in _GROUPS if not reading.known.isdisjoint(it)] or [_GROUPS[0]]
        stale = self.config.stale_seconds
        answers = [unjudged(self._subject, reading, it, stale_seconds=stale) for it in groups]
        if None not in answers:
            return memory, next((answer for answer in answers if answer), ())
        recent, pulses = self._counted(memory, reading)
        shares = self._shares(recent, reading)
        worst = self._worst(shares)
        hysteresis = memory.hysteresis.seen(
            breach=worst > 1.0,
            calm=worst < self.config.clear,
            breaches=self.config.breaches,
            calms=self.config.calms,
        )
        memory = RetryStormMemory(recent, pulses, hysteresis)
        return memory, (self._judged(memory, reading, shares, worst),)

    def _counted(self, memory: RetryStormMemory, reading: Reading) -> tuple[Recent, Pulses]:
        values, now = reading.values, reading.monotonic_seconds
        counts = [values.get(it, math.nan) for it in (_SENT, _AGAIN, _REFUSED)]
        recent = memory.recent.seen((now, *counts), window_seconds=self.config.window_seconds)
        rhythm = values.get(_REFUSED, values.get(_AGAIN))
        pulses = memory.pulses if rhythm is None else memory.pulses.seen(rhythm, now)
        return recent, pulses

    def _shares(self, recent: Recent, reading: Reading) -> _Shares:
        values, grown = reading.values, recent.grown()
        calls, retries, refused = (0.0, math.nan, math.nan) if grown is None else grown[1:]
        enough = calls >= self.config.least_calls  # not so with NaN
        queue, bound = values.get(_QUEUE), values.get(_BOUND, 0.0)
        return _Shares(
            calls=calls if math.isfinite(calls) else 0.0,
            retries=retries / calls if enough and math.isfinite(retries) else None,
            refused=refused / calls if enough and math.isfinite(refused) else None,
            queue=queue / bound if queue is not None and bound > 0 else None,
            waiting=queue,
        )

    def _worst(self, shares: _Shares) -> float:
        """Return the largest share in units of its limit."""
        return max(
            (shares.retries or 0.0) / self.config.retries,
            (shares.refused or 0.0) / self.config.refused,
            (shares.queue or 0.0) / self.config.queue,
        )

    def _judged(
        self, memory: RetryStormMemory, reading: Reading, shares: _Shares, worst: float
    ) -> Verdict:
        words = _words(shares, self.config.least_calls)
        bad = worst > 1.0
        rhythm = memory.pulses.rhythm() if bad else None
        if rhythm is not None:
            words.append(f"in waves every {rhythm.seconds:.0f} s (r {rhythm.strength:.2f})")
        reason = f"client {reading.target}: {', '.join(words)}"
        if bad:
            reason += f"; {self._advice(shares, waves=rhythm is not None)}"
        details = {"breached": float(bad)}
        if rhythm is not None:
            details["synchrony"] = rhythm.strength
        return reading.verdict(
            self.name,
            _SENT,
            memory.hysteresis.level,
            reason=f"{reason}; {memory.hysteresis.words()}",
            statistic=worst,
            threshold=1.0,
            effect=shares.amplification,
            evidence=float(memory.hysteresis.breaches),
            samples=int(shares.calls),
            cause=CAUSE,
            details=details,
        )

    def _advice(self, shares: _Shares, *, waves: bool) -> str:
        advice = []
        if (shares.retries or 0.0) > self.config.retries or waves:
            advice.append(
                "wait a random time before a retry, doubled each time, as Retry-After asks"
            )
        if (shares.refused or 0.0) > self.config.refused:
            advice.append("bound the requests in flight by the quota instead of by refusals")
        if (shares.queue or 0.0) > self.config.queue:
            advice.append("stop taking work in while the queue is over its bound")
        return "at the client: " + ", ".join(advice)

    def save(self, memory: RetryStormMemory) -> bytes:
        return pack(memory, mark=self._mark)

    def load(self, data: bytes) -> RetryStormMemory:
        return unpack(data, RetryStormMemory, mark=self._mark)


def _words(shares: _Shares, least: int) -> list[str]:
    words = []
    if shares.retries is not None:
        words.append(f"{shares.retries:.2g} of {shares.calls:.0f} calls are retries")
    if shares.refused is not None:
        subject = "" if words else f" of {shares.calls:.0f} calls"
        words.append(f"{shares.refused:.2g}{subject} answered 429")
    if shares.amplification is not None:
        words.append(f"{shares.amplification:.3g} requests each")
    if shares.queue is not None:
        words.append(f"queue of {shares.waiting:,.0f} is {shares.queue:.2g} of its bound")
    return words or [f"{shares.calls:.0f} calls in the window, {least} are judged"]
