"""The records that travel the data path: read this first, `collector/pipeline.py` second.

A source yields a `Reading` (one scrape of one target) or a `Batch` (n generations as arrays).
State turns batches into `Tick`s of integer counts and lays them out as a `Panel`. A detector
answers with `Verdict`s. Everything here is frozen and knows nothing of I/O or of the clock. What a
reading says beside its numbers is in `detectors/remarks.py`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, TypeAlias, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray

from detectors.remarks import Finding, GpuProcess, Noticed, Quantile

if TYPE_CHECKING:
    from detectors.baseline import SignalBaseline

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]
BoolArray: TypeAlias = NDArray[np.bool_]
ScopeKind: TypeAlias = Literal["tier", "target", "segment"]

OTHER_SEGMENT = "other"


class Level(StrEnum):
    """How bad a verdict is. Not knowing is a level of its own and never counts as ok."""

    UNKNOWN = "unknown"
    OK = "ok"
    WARNING = "warning"
    CRITICAL = "critical"

    @property
    def number(self) -> int:
        """The value of `fusewire_verdict_level`: -1 unknown, 0 ok, 1 warning, 2 critical."""
        return _LEVEL_NUMBERS[self]


_LEVEL_NUMBERS: Mapping[Level, int] = MappingProxyType(
    {Level.UNKNOWN: -1, Level.OK: 0, Level.WARNING: 1, Level.CRITICAL: 2}
)


class Absence(StrEnum):
    """Why a wanted signal has no value: facts that must not be mistaken for one another."""

    SCRAPE_FAILED = "scrape failed"
    NO_DATA = "up with no data"
    NO_FAMILY = "family absent"
    NO_SAMPLE = "family known but no sample"
    NOT_IN_VERSION = "not in this version of the engine"
    NO_DRIVER = "no driver on this machine"
    STALE = "its source has not been read lately"
    SWITCHED_OFF = "switched off where it would be measured"
    SKIPPED = "not asked, to spare a busy engine"
    TOO_FEW = "too few samples lately"
    UNUSABLE = "value not usable"  # NaN, infinite, a sentinel of the exporter, or its denominator


@dataclass(frozen=True, slots=True, order=True)
class Scope:
    """What a stream speaks of: the whole tier, one target or one segment of it."""

    kind: ScopeKind = "tier"
    name: str = ""

    def __str__(self) -> str:
        return self.kind if self.kind == "tier" else f"{self.kind}:{self.name}"

    @classmethod
    def parse(cls, text: str) -> Scope:
        """Read back what `str` wrote.

        Raises:
            ValueError: If the text is not `tier`, `target:NAME` or `segment:NAME`.
        """
        kind, _, name = text.partition(":")
        if kind == "tier" and not name:
            return TIER_SCOPE
        if kind == "target" and name:
            return cls("target", name)
        if kind == "segment" and name:
            return cls("segment", name)
        msg = f"scope {text!r}: expected 'tier', 'target:NAME' or 'segment:NAME'"
        raise ValueError(msg)


TIER_SCOPE = Scope("tier")


@dataclass(frozen=True, slots=True, order=True)
class Stream:
    """The identity of everything that is counted and judged.

    `variant` is the hash of engine minor version, model, tokenizer, logprobs mode and k (empty
    for readings, whose meaning the alias table has already made one).
    """

    tier: str
    scope: Scope
    signal: str
    variant: str = ""


@dataclass(frozen=True, slots=True)
class Histogram:
    """A cumulative histogram as Prometheus knows it, corrected for counter resets.

    `bounds` are the finite upper bounds, ascending; `counts` are cumulative, one a bound; `total`
    is the count of all observations (the +Inf bucket) and `sum` their sum in the signal's unit.
    """

    bounds: tuple[float, ...]
    counts: tuple[float, ...]
    total: float
    sum: float


@dataclass(frozen=True, slots=True)
class Identity:
    """What a target said it is; empty strings where it did not say."""

    engine: str = ""
    version: str = ""
    model: str = ""


class VerdictFacts(TypedDict, total=False):
    """The fields of a `Verdict` that a detector adds to who, when and how bad."""

    reason: str
    statistic: float | None
    effect: float | None
    threshold: float | None
    evidence: float | None
    samples: int
    age_seconds: float
    baseline: str
    cause: str
    details: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Reading:
    """One scrape of one target, in canonical signals (`detectors/signals.py`).

    `values` holds gauges and counters (counters monotone: resets are corrected by the source);
    `parts` splits a signal by its one label (`requests_finished_total` by reason, GPU signals by
    device), `values` has the whole beside it; `absent` says for each wanted signal without a value
    why there is none. A failed scrape is a reading too, with `up` 0 and every wanted signal absent.

    `ages` is the age in seconds of signals that are older than the reading itself: those of the
    target's other sources. `neighbour` marks what is beside the tier (a client, a vector store):
    it is judged and shown, and has no breaker.
    """

    tier: str
    target: str
    source: str
    at: datetime
    monotonic_seconds: float
    scrape_seconds: float
    values: Mapping[str, float] = field(default_factory=dict)
    parts: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    histograms: Mapping[str, Histogram] = field(default_factory=dict)
    absent: Mapping[str, Absence] = field(default_factory=dict)
    identity: Identity = Identity()
    restarted: bool = False
    age_seconds: float = 0.0
    problem: str = ""  # why the scrape failed, in words
    ages: Mapping[str, float] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    noticed: tuple[Noticed, ...] = ()
    processes: tuple[GpuProcess, ...] = ()
    quantiles: Mapping[str, Quantile] = field(default_factory=dict)  # by the gauge's signal
    neighbour: bool = False
    overloaded: bool = False  # it failed with 5xx or not in time: ask less often for a while

    @property
    def known(self) -> frozenset[str]:
        """The signals that this reading speaks of, with a value or with the reason for none."""
        return frozenset((*self.values, *self.histograms, *self.absent))

    def age_of(self, signal: str) -> float:
        """Return the age of a signal's value in seconds."""
        return self.ages.get(signal, self.age_seconds)

    @property
    def up(self) -> bool:
        return not self.problem

    def absence(self, signal: str) -> str:
        """Say in words why `signal` has no value in this reading."""
        if self.problem:
            return f"{signal}: {Absence.SCRAPE_FAILED}: {self.problem}"
        return f"{signal}: {self.absent.get(signal, Absence.NO_FAMILY)}"

    def obstacle(self, signals: Collection[str], *, stale_seconds: float) -> str:
        """Say in words why `signals` cannot be judged from this reading; empty if they can."""
        oldest = max((self.age_seconds, *map(self.age_of, signals)))
        if oldest > stale_seconds:
            return f"reading is {oldest:.0f} s old, at most {stale_seconds:g} s is judged"
        for signal in signals:
            value = self.values.get(signal)
            if value is None:
                return self.absence(signal)
            if not math.isfinite(value):
                return f"{signal}: {Absence.UNUSABLE}"
        return ""

    def verdict(
        self, detector: str, signal: str, level: Level, **facts: Unpack[VerdictFacts]
    ) -> Verdict:
        """Return a verdict about this target at this scrape; `facts` are fields of `Verdict`.

        What this version of the engine never tells stays unknown and is no trouble: a verdict that
        rests on it has no cause, so that it alerts nobody.
        """
        stream = Stream(self.tier, Scope("target", self.target), signal)
        verdict = Verdict(detector, stream, level, self.at, age_seconds=self.age_seconds)
        if level is Level.UNKNOWN and self.absent.get(signal) is Absence.NOT_IN_VERSION:
            facts["cause"] = ""
        return replace(verdict, **facts)


@dataclass(frozen=True, slots=True)
class Batch:
    """n generations of one (tier, target, segment, variant) as arrays, text already dropped.

    `columns` maps a request signal to its values, shape (n,), NaN where a request has none.
    `newest_at` is the time of the newest request (`at`, else the response's own), UTC. `counts` are
    those of the columns on their signals' grids, made where the arrays were made; empty means not
    counted yet.
    """

    tier: str
    target: str
    segment: str
    variant: str
    newest_at: datetime
    size: int
    columns: Mapping[str, FloatArray]
    counts: Mapping[str, IntArray] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Tick:
    """Counts of all request signals of one (tier, scope, variant) over one tick.

    `counts` maps a signal to integers of shape (bins,) on the signal's grid. Ticks of the same
    number add (`plus`), so halves counted by two workers make the whole. `age_seconds` is the
    age of the newest observation at the close of the tick.
    """

    tier: str
    scope: Scope
    variant: str
    number: int
    start: datetime
    duration_seconds: float
    age_seconds: float
    requests: int
    counts: Mapping[str, IntArray]

    def plus(self, other: Tick) -> Tick:
        """Return the tick that counted what this one and `other` counted.

        Raises:
            ValueError: If the two are not of the same stream and tick number.
        """
        mine = (self.tier, self.scope, self.variant, self.number)
        theirs = (other.tier, other.scope, other.variant, other.number)
        if mine != theirs:
            msg = f"ticks of {mine} and {theirs} do not add; only counts of one tick do"
            raise ValueError(msg)
        counts = dict(self.counts)
        for signal, more in other.counts.items():
            counts[signal] = counts[signal] + more if signal in counts else more
        return Tick(
            tier=self.tier,
            scope=self.scope,
            variant=self.variant,
            number=self.number,
            start=min(self.start, other.start),
            duration_seconds=max(self.duration_seconds, other.duration_seconds),
            age_seconds=min(self.age_seconds, other.age_seconds),
            requests=self.requests + other.requests,
            counts=counts,
        )


@dataclass(frozen=True, slots=True)
class Panel:
    """One tick of all streams of a tier's layout, ready for array arithmetic.

    S streams, W bins of the widest grid. `counts` has shape (S, W), padded with zeros on the
    right; `references[i]` is the frozen baseline of `streams[i]`, or None while it is collecting
    (then `progress[i]` is the number of requests collected and `needed` the number wanted).
    `ages_seconds` has shape (S,). Panels are of closed ticks only: numbers rise, gaps happen.
    """

    tier: str
    number: int
    start: datetime
    monotonic_seconds: float  # at the close of the tick: intervals come from this
    duration_seconds: float
    streams: tuple[Stream, ...]
    references: tuple[SignalBaseline | None, ...]
    counts: IntArray
    ages_seconds: FloatArray
    progress: IntArray
    needed: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a detector says of one stream at one moment, with everything needed to explain it.

    `statistic`, `effect` and `threshold` are in the unit that the detector documents; `evidence`
    is its own measure of certainty (for a limit the breaches, for a test minus log10 of p).
    `cause` is the code under which alerts and breakers group it (`kv_cache_saturated`).
    """

    detector: str
    stream: Stream
    level: Level
    at: datetime
    reason: str = ""
    statistic: float | None = None
    effect: float | None = None
    threshold: float | None = None
    evidence: float | None = None
    samples: int = 0
    age_seconds: float = 0.0
    baseline: str = ""
    cause: str = ""
    details: Mapping[str, float] = field(default_factory=dict)
