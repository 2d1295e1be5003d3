"""KL of production against its own baseline, over the grid of the sampled surprisal."""

from __future__ import annotations

from typing import Literal, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator
from scipy.special import chdtrc

from detectors import drift, windows
from detectors.divergence import GridDivergence, grid_divergence
from detectors.drift import Gate, Rows, side_of
from detectors.records import Level, Panel, Verdict
from detectors.saved import mark_of
from detectors.windows import DriftMemory, Span

CAUSE = "output_drift"
CLEAR_SHARE = 0.8  # of `divergence`: under it for `persistence` ticks, a drift is over
MOST_EVIDENCE = 300.0  # p underflows beyond it
_VERSION = 1  # of the memory's layout


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
        side = side_of(self.signal)
        if side != "output":
            msg = f"signal {self.signal!r} is of the {side} side, expected an output signal"
            raise ValueError(msg)
        if self.minimum_requests > self.window_requests * 3 // 4:
            msg = (
                f"minimum_requests {self.minimum_requests} must be at most three quarters of "
                f"window_requests {self.window_requests}, which a full window always holds"
            )
            raise ValueError(msg)
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
    degrees. A breach needs both `divergence_nats` and `evidence`; persistence and baseline stages
    as for `ks`. Effect: PSI over the same cells.
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
        self._gate = Gate(
            signals=self.signals,
            cause=CAUSE,
            span=Span(config.window_requests, config.window_seconds),
            minimum_requests=config.minimum_requests,
            persistence=config.persistence,
            stale_seconds=config.stale_seconds,
        )

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
        memory = drift.decide(memory, rows, breach=breach, calm=calm, gate=self._gate)
        raised = memory.raised[rows.memory_rows]
        verdicts = []
        for row, (found, strength) in enumerate(scores):
            told = drift.Told(self.name, rows.streams[row], panel, rows, row)
            reason, cause = drift.obstacle(panel, rows, row, self._gate)
            if reason or found is None:
                verdicts.append(told.verdict(Level.UNKNOWN, reason=reason, cause=cause))
                continue
            level = drift.level(
                rows.baselines[row], breach=bool(breach[row]), raised=bool(raised[row])
            )
            verdicts.append(self._judged(told, level, found, strength, breached=bool(breach[row])))
        return memory, tuple(verdicts)

    def _judged(
        self,
        told: drift.Told,
        level: Level,
        found: GridDivergence,
        strength: float,
        *,
        breached: bool,
    ) -> Verdict:
        requests = int(told.rows.requests[told.row])
        reason = (
            f"KL of {self.config.signal} against the baseline {found.excess_nats:.3f} nats beyond "
            f"chance, raised from {self.config.divergence_nats:.2g}, {requests:,} requests"
        )
        return told.verdict(
            level,
            reason=reason + drift.stage_words(told.rows.baselines[told.row]),
            statistic=found.excess_nats,
            effect=found.psi,
            threshold=self.config.divergence_nats,
            evidence=strength,
            cause=CAUSE,
            details={
                "breached": float(breached),
                "kl_nats": found.kl_nats,
                "null_mean_nats": found.null_mean_nats,
                "js_nats": found.js_nats,
                "psi": found.psi,
            },
        )

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
    ratio = 2 * found.kl_nats / (1 / n + 1 / m) / float(rows.design_effects[row])
    p = float(chdtrc(found.cells - 1, ratio))
    return found, min(-float(np.log10(p)), MOST_EVIDENCE) if p > 0 else MOST_EVIDENCE
