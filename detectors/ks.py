"""Two-sample Kolmogorov-Smirnov test of live traffic against a frozen baseline, on the grid."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator
from scipy.special import kolmogorov

from detectors import drift, effects, windows
from detectors.drift import CLEAR_SHARE, Gate, Rows, Standing
from detectors.records import FloatArray, IntArray, Level, Panel, Stream, Verdict
from detectors.saved import mark_of
from detectors.signals import REQUEST_SIGNALS, grid_of
from detectors.windows import DriftMemory

_VERSION = 2  # of the memory's layout
# Latency follows load, shadow divergence has a gate of its own, and whether logprobs were asked for
# is the clients' doing (answers without are another variant): none of them is drift of answers.
NOT_BY_DEFAULT = frozenset({"request_seconds", "paired_divergence_nats", "output_scored"})


class KsConfig(BaseModel):
    """Settings of a KS detector for the signals of one side."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["ks"] = "ks"
    name: str = Field(default="", max_length=64, description="Unique in a tier; else SIDE_drift.")
    side: Literal["input", "output"] = Field(
        default="input", description="Prompts or answers; also the cause, SIDE_drift."
    )
    signals: tuple[str, ...] = Field(
        default=(), description="Request signals of that side; empty for all that describe text."
    )
    distance: float = Field(
        default=0.10, gt=0, lt=1, description="Smallest KS distance worth raising, 0 to 1."
    )
    evidence: float = Field(
        default=8.0, ge=2, le=100, description="Least -log10 p, after the design effect."
    )
    window_requests: int = Field(
        default=1000, ge=20, le=1_000_000, description="Newest requests that are compared."
    )
    window_seconds: float = Field(default=3600, gt=0, description="Older counts are dropped.")
    minimum_requests: int = Field(
        default=200, ge=10, description="Under so many in the window the verdict is unknown."
    )
    persistence: int = Field(default=2, ge=1, le=60, description="Ticks in a row to raise, clear.")
    stale_seconds: float = Field(
        default=300, gt=0, description="Without a request for longer the verdict is unknown."
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        drift.check(self, signals=self.signals, side=self.side)
        return self

    def build(self) -> Ks:
        """Return the detector with these settings."""
        return Ks(self)


@dataclass(frozen=True, slots=True)
class KsScores:
    """Distances of R windows from their baselines.

    `distance` (R,) is the KS distance, `edge` (R,) the grid edge where it is reached, `below` and
    `reference_below` (R,) the shares at or below that edge, live and baseline; `evidence` (R,)
    is -log10 p; `psi` (R,) over the cells between the baseline's thresholds; `wasserstein` (R,)
    in the signal's unit.
    """

    distance: FloatArray
    edge: IntArray
    below: FloatArray
    reference_below: FloatArray
    evidence: FloatArray
    psi: FloatArray
    wasserstein: FloatArray


class Ks:
    """Raises when the distribution of a request signal has moved away from its baseline.

    Inputs: closed ticks of counts for the signals of one side, each with its frozen baseline.
    Statistic: the two-sample KS distance of the newest `window_requests` requests from the
    baseline, at the edges of the grid (equal to scipy's on values rounded up to edges). Evidence:
    -log10 of Kolmogorov's asymptotic p with the effective size n m / (n + m) over the baseline's
    design effect. A breach needs both `distance` and `evidence`; `persistence` ticks in a row
    raise; `persistence` ticks under 0.8 times `distance` clear. Effect: PSI.
    Verdict: ok until a breach has lasted, the reason says for how many ticks; then critical with
    an active baseline, warning with a candidate, which informs. Without a baseline, with stale
    counts, or with so few requests on either side that even a distance of 1 would not reach
    `evidence`, it is unknown.
    Smallest change seen: at the defaults (window 1,000, distance 0.10, evidence 8) 0.10, which is
    a quarter of a standard deviation of a normal signal, or 10 % of requests of a new kind; with
    a window of 200 requests 0.22. Gate and evidence meet at about 1,000 requests on purpose.

    >>> KsConfig(side="output").build().name
    'output_drift'
    >>> "temperature" in KsConfig().build().signals
    True
    >>> round(float(ks_evidence(np.asarray([0.1]), np.asarray([952.0]))[0]), 2)
    7.97

    *Trade-offs*: a distance bounds the body and not the tail: 1 % of prompts 30 times longer is a
    distance of 0.01 and is not seen here. The window is looked at every tick, so the p is not the
    false-alarm rate of a day; evidence 8 leaves room for 10^5 looks. Signals are judged one by
    one: a change of their dependence alone is invisible. A daily cycle larger than `distance`
    raises every day unless the baseline covers it. A shift that people accept stays raised until
    the baseline is replaced.
    """

    def __init__(self, config: KsConfig) -> None:
        self.config = config
        self.name = config.name or f"{config.side}_drift"
        self.signals = frozenset(config.signals) or frozenset(
            row.name
            for row in REQUEST_SIGNALS
            if row.side == config.side and row.name not in NOT_BY_DEFAULT
        )
        self._mark = mark_of(config, version=_VERSION)
        self._gate = Gate(config, self.signals, f"{config.side}_drift", _strongest)

    def start(self) -> DriftMemory:
        return windows.empty()

    def step(self, memory: DriftMemory, panel: Panel) -> tuple[DriftMemory, tuple[Verdict, ...]]:
        memory, rows = drift.advance(memory, panel, self._gate)
        scores = ks_scores(rows)
        strong = scores.evidence >= self.config.evidence
        breach = strong & (scores.distance >= self.config.distance)
        calm = scores.distance < CLEAR_SHARE * self.config.distance
        memory, standing = drift.decide(memory, rows, breach=breach, calm=calm, gate=self._gate)
        verdicts = tuple(
            self._verdict(drift.Told(self.name, stream, panel, rows, row), scores, standing)
            for row, stream in enumerate(rows.streams)
        )
        return memory, verdicts

    def _verdict(self, told: drift.Told, scores: KsScores, standing: Standing) -> Verdict:
        rows, row = told.rows, told.row
        reason, cause = drift.obstacle(told.panel, rows, row, self._gate)
        if reason:
            return told.verdict(Level.UNKNOWN, reason=reason, cause=cause)
        baseline, distance = rows.baselines[row], float(scores.distance[row])
        return told.verdict(
            drift.level(baseline, raised=bool(standing.raised[row])),
            reason=self._words(told, scores)
            + drift.standing_words(baseline, standing, row, self._gate),
            statistic=distance,
            effect=float(scores.psi[row]),
            threshold=self.config.distance,
            evidence=float(scores.evidence[row]),
            cause=self._gate.cause,
            details=_details(told.stream, scores, row, breached=bool(standing.breach[row])),
        )

    def _words(self, told: drift.Told, scores: KsScores) -> str:
        """Say where the distributions differ most, the way the share has risen, and how much."""
        row, signal = told.row, told.stream.signal
        edge = grid_of(signal).edges[scores.edge[row]]
        was, now = float(scores.reference_below[row]), float(scores.below[row])
        sign = "≤"
        if now < was:
            sign, was, now = ">", 1 - was, 1 - now
        distance, evidence = float(scores.distance[row]), float(scores.evidence[row])
        words = f"P({signal} {sign} {edge:g}): baseline {_share(was)}, live {_share(now)}"
        words += f", {int(told.rows.requests[row]):,} requests"
        words += f"; KS distance {distance:.2f}, raised from {self.config.distance:.2g}"
        if distance >= self.config.distance and evidence < self.config.evidence:
            words += f" with evidence {self.config.evidence:g}, has {evidence:.1f}"
        return words

    def save(self, memory: DriftMemory) -> bytes:
        return windows.save(memory, mark=self._mark)

    def load(self, data: bytes) -> DriftMemory:
        return windows.load(data, mark=self._mark)


def _share(ratio: float) -> str:
    """Write a share for people, who read percent."""
    digits = 2 if round(100 * ratio) < 100 else 4  # noqa: PLR2004  # 99.97 % must not read 100 %
    return f"{100 * ratio:.{digits}g} %"


def _details(stream: Stream, scores: KsScores, row: int, *, breached: bool) -> dict[str, float]:
    return {
        "breached": float(breached),
        "psi": float(scores.psi[row]),
        "wasserstein": float(scores.wasserstein[row]),
        "edge": grid_of(stream.signal).edges[scores.edge[row]],
        "baseline_above_ratio": 1 - float(scores.reference_below[row]),
        "live_above_ratio": 1 - float(scores.below[row]),
    }


def ks_evidence(distance: FloatArray, size: FloatArray) -> FloatArray:
    """Return -log10 of Kolmogorov's asymptotic p, without underflow.

    Args:
        distance: KS distances, shape ``(n,)``, 0 to 1.
        size: Effective sizes n m / (n + m), shape ``(n,)``, >= 0.

    Returns:
        Evidence, shape ``(n,)``, >= 0. For x = sqrt(size) distance >= 1 the first two terms of
        the series 2 sum (-1)^(j-1) exp(-2 j^2 x^2) give it to eight digits.
    """
    x = np.sqrt(size) * distance
    far = np.maximum(x, 1.0)
    tail = (2 * far**2 - np.log(2) - np.log1p(-np.exp(-6 * far**2))) / np.log(10)
    near = -np.log10(kolmogorov(np.minimum(x, 1.0)))
    return np.where(x >= 1.0, tail, np.maximum(near, 0.0))


def _strongest(n: FloatArray, m: FloatArray, effects_: FloatArray) -> FloatArray:
    """Return the evidence of distance 1 with n live and m baseline requests, shape ``(R,)``."""
    return ks_evidence(np.ones(len(n)), n * m / np.maximum(n + m, 1.0) / effects_)


def ks_scores(rows: Rows) -> KsScores:
    """Compare all windows with their baselines in array arithmetic; rows without one score 0."""
    n, m = _sizes(rows.live), _sizes(rows.reference)
    below = np.cumsum(rows.live, axis=1) / n[:, None]
    reference = np.cumsum(rows.reference, axis=1) / m[:, None]
    known = (rows.live.sum(axis=1) > 0) & (rows.reference.sum(axis=1) > 0)
    gap = np.where(known[:, None], below - reference, 0.0)
    edge = np.abs(gap).argmax(axis=1)
    at = (np.arange(len(edge)), edge)
    distance = np.abs(gap[at])
    return KsScores(
        distance=distance,
        edge=edge,
        below=below[at],
        reference_below=reference[at],
        evidence=ks_evidence(distance, n * m / (n + m) / rows.design_effects),
        psi=effects.psi(rows),
        wasserstein=effects.wasserstein(rows, gap),
    )


def _sizes(counts: IntArray) -> FloatArray:
    sizes: FloatArray = np.maximum(counts.sum(axis=1), 1).astype(np.float64)
    return sizes
