"""KL of production against its own baseline, over the grid of the sampled surprisal."""

from __future__ import annotations

from typing import Literal, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator
from scipy.special import chdtrc, rel_entr

from detectors import drift, effects, windows
from detectors.divergence import SMOOTHING, GridDivergence, grid_divergence
from detectors.drift import CLEAR_SHARE, Gate, Rows, Standing
from detectors.records import FloatArray, Level, Panel, Verdict
from detectors.saved import mark_of
from detectors.windows import DriftMemory

CAUSE = "output_drift"
MOST_EVIDENCE = 300.0  # p underflows beyond it
_VERSION = 2  # of the memory's layout


class KlConfig(BaseModel):
    """Settings of the KL detector."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["kl"] = "kl"
    name: str = Field(default="kl", max_length=64, description="Unique in a tier.")
    signal: str = Field(
        default="output_surprisal_mean_nats", description="An output signal, on its grid."
    )
    divergence_nats: float = Field(
        default=0.05, gt=0, description="Smallest KL worth raising, beyond what chance gives."
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
        drift.check(self, signals=(self.signal,), side="output")
        return self

    def build(self) -> Kl:
        """Return the detector with these settings."""
        return Kl(self)


class Kl:
    """Raises when answers have become more, or less, surprising than the baseline's.

    Inputs: closed ticks of counts of one output signal, by default the mean -ln p of an answer's
    sampled tokens, each stream with its frozen baseline.
    Statistic: KL(live || baseline) in nats over joined grid cells, less what chance alone gives
    at these sizes. Evidence: -log10 p of the likelihood-ratio (G) test, whose statistic is
    2 KL / (1/n + 1/m), over the baseline's design effect, against chi-squared with cells - 1
    degrees. A breach needs both `divergence_nats` and `evidence`. Effect: PSI over the cells
    between the baseline's thresholds, as for `ks`.
    Verdict: persistence, baseline stages and what is unknown as for `ks`.
    Smallest change seen: at the defaults 0.05 nats, which is a shift by a third of a standard
    deviation, or a spread 1.25 times as wide; a sampling temperature of 1.2 instead of 1 gives
    about 0.5.

    >>> sorted(KlConfig().build().signals)
    ['output_surprisal_mean_nats']

    *Trade-offs*: it compares populations, not models: quantisation or noisy weights move this
    signal by less than its floor and need the paired shadow comparison. It says that something
    moved and not which way; the KS verdict of the same signal says where. With few requests the
    cells are wide, and a change inside one is not seen. A new engine version or logprobs mode
    changes what a logprob means: it is another variant with a baseline of its own.
    """

    def __init__(self, config: KlConfig) -> None:
        self.config = config
        self.name = config.name
        self.signals = frozenset({config.signal})
        self._mark = mark_of(config, version=_VERSION)
        self._gate = Gate(config, self.signals, CAUSE, _strongest)

    def start(self) -> DriftMemory:
        return windows.empty()

    def step(self, memory: DriftMemory, panel: Panel) -> tuple[DriftMemory, tuple[Verdict, ...]]:
        memory, rows = drift.advance(memory, panel, self._gate)
        scores = [_score(rows, row) for row in range(len(rows.streams))]
        excess = np.asarray([found.excess_nats if found else 0.0 for found, _ in scores])
        evidence = np.asarray([strength for _, strength in scores])
        far = excess >= self.config.divergence_nats
        breach = far & (evidence >= self.config.evidence)
        calm = excess < CLEAR_SHARE * self.config.divergence_nats
        memory, standing = drift.decide(memory, rows, breach=breach, calm=calm, gate=self._gate)
        psi = effects.psi(rows)
        verdicts = []
        for row, (found, strength) in enumerate(scores):
            told = drift.Told(self.name, rows.streams[row], panel, rows, row)
            reason, cause = drift.obstacle(panel, rows, row, self._gate)
            if reason or found is None:
                verdicts.append(told.verdict(Level.UNKNOWN, reason=reason, cause=cause))
                continue
            judged = self._judged(told, found, standing, evidence=strength, psi=float(psi[row]))
            verdicts.append(judged)
        return memory, tuple(verdicts)

    def _judged(
        self,
        told: drift.Told,
        found: GridDivergence,
        standing: Standing,
        *,
        evidence: float,
        psi: float,
    ) -> Verdict:
        row, baseline = told.row, told.rows.baselines[told.row]
        return told.verdict(
            drift.level(baseline, raised=bool(standing.raised[row])),
            reason=self._words(told, found, evidence)
            + drift.standing_words(baseline, standing, row, self._gate),
            statistic=found.excess_nats,
            effect=psi,
            threshold=self.config.divergence_nats,
            evidence=evidence,
            cause=CAUSE,
            details={
                "breached": float(standing.breach[row]),
                "kl_nats": found.kl_nats,
                "null_mean_nats": found.null_mean_nats,
                "js_nats": found.js_nats,
                "psi": psi,
            },
        )

    def _words(self, told: drift.Told, found: GridDivergence, evidence: float) -> str:
        floor = self.config.divergence_nats
        words = (
            f"KL of {self.config.signal} against the baseline {found.excess_nats:.3f} nats beyond "
            f"chance, raised from {floor:.2g}"
        )
        if found.excess_nats >= floor and evidence < self.config.evidence:
            words += f" with evidence {self.config.evidence:g}, has {evidence:.1f}"
        return f"{words}, {int(told.rows.requests[told.row]):,} requests"

    def save(self, memory: DriftMemory) -> bytes:
        return windows.save(memory, mark=self._mark)

    def load(self, data: bytes) -> DriftMemory:
        return windows.load(data, mark=self._mark)


def _score(rows: Rows, row: int) -> tuple[GridDivergence | None, float]:
    """Return the divergence of a row and its evidence; None and 0 where there is nothing."""
    live, reference = rows.live[row], rows.reference[row]
    n, m = int(live.sum()), int(reference.sum())
    if n == 0 or m == 0:
        return None, 0.0
    found = grid_divergence(reference, live)
    if found.cells < 2:  # noqa: PLR2004  # one cell: everything is where it was
        return found, 0.0
    strength = g_evidence(
        np.asarray([found.kl_nats]),
        np.asarray([(1 / n + 1 / m) * float(rows.design_effects[row])]),
        cells=found.cells,
    )
    return found, float(strength[0])


def g_evidence(kl_nats: FloatArray, noise: FloatArray, *, cells: int) -> FloatArray:
    """Return -log10 p of the likelihood-ratio (G) test.

    Args:
        kl_nats: KL of the smoothed shares, shape ``(n,)``, nats.
        noise: (1/n + 1/m) times the design effect, shape ``(n,)``, > 0.
        cells: Cells that were compared, at least 2.

    Returns:
        Evidence, shape ``(n,)``, 0 to `MOST_EVIDENCE`.
    """
    p = chdtrc(cells - 1, 2 * kl_nats / noise)
    least = 10.0**-MOST_EVIDENCE
    evidence: FloatArray = -np.log10(np.clip(p, least, 1.0))
    return evidence


def _strongest(n: FloatArray, m: FloatArray, design_effects: FloatArray) -> FloatArray:
    """Return the evidence of answers that share no cell with the baseline, shape ``(R,)``."""
    n, m = np.maximum(n, 1.0), np.maximum(m, 1.0)
    p, q = (n + SMOOTHING) / (n + 2 * SMOOTHING), SMOOTHING / (m + 2 * SMOOTHING)
    apart = rel_entr(p, q) + rel_entr(1 - p, 1 - q)
    return g_evidence(apart, (1 / n + 1 / m) * design_effects, cells=2)
