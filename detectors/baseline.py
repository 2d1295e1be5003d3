"""Frozen, versioned references that drift is measured against.

A baseline is made from ticks (live or from a file), belongs to one (tier, scope, variant), and
holds per request signal the exact counts on the signal's grid, the thresholds (grid edges at
fixed levels) with their Clopper-Pearson bands, and the design effect. It is never changed: its id
is the hash of its content, and accepting a shift means promoting another one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

import numpy as np
from scipy.special import betaincinv

from detectors.records import FloatArray, IntArray, Scope, Tick
from detectors.signals import REQUEST_SIGNALS, grid_of

LEVELS: tuple[float, ...] = (
    *(0.001, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9),
    *(0.95, 0.98, 0.99, 0.995, 0.998, 0.999, 0.9995),
)
ENOUGH_EACH_SIDE = 50  # requests below and above an edge, for its variance to mean something
BAND_ALPHA = 0.01  # chance that some true P(X <= t) of a baseline lies outside its band


class Stage(StrEnum):
    """What a baseline is used for."""

    CANDIDATE = "candidate"  # serves the inform tier at once
    ACTIVE = "active"  # may page and trip
    RETIRED = "retired"


@dataclass(frozen=True)
class SignalBaseline:
    """The reference of one request signal.

    `counts` has shape (bins,) on `grid`; `thresholds` are indices of grid edges, ascending;
    `lower` and `upper` bound P(X <= edge) at each threshold, simultaneously with confidence
    1 - BAND_ALPHA; `design_effect` >= 1 is the variance inflation of time-ordered traffic.
    """

    baseline: str
    signal: str
    grid: str
    counts: IntArray
    thresholds: IntArray
    lower: FloatArray
    upper: FloatArray
    design_effect: float
    stage: Stage = Stage.CANDIDATE

    @property
    def requests(self) -> int:
        return int(self.counts.sum())


@dataclass(frozen=True)
class Baseline:
    """All signals of one (tier, scope, variant), with where they came from."""

    id: str
    tier: str
    scope: Scope
    variant: str
    made_at: datetime
    stage: Stage
    requests: int
    provenance: str  # "ticks 2026-11-01T00:00Z to …" or "file NAME"
    signals: Mapping[str, SignalBaseline]
    author: str = ""
    reason: str = ""


def clopper_pearson(
    successes: FloatArray, trials: float, alpha: float
) -> tuple[FloatArray, FloatArray]:
    """Return the exact two-sided binomial band of a proportion.

    Args:
        successes: Successes, shape ``(n,)``, 0 <= successes <= trials; need not be whole.
        trials: Trials, > 0; need not be whole (effective sample size).
        alpha: Chance that the truth lies outside, 0 < alpha < 1.

    Returns:
        Lower and upper bounds, shape ``(n,)``, 0 <= lower <= upper <= 1.

    References:
        Clopper and Pearson (1934), by the inverse of the regularised incomplete beta function.
    """
    k = np.asarray(successes, dtype=np.float64)
    lower = np.where(k > 0, betaincinv(np.maximum(k, 1e-12), trials - k + 1, alpha / 2), 0.0)
    upper = np.where(
        k < trials, betaincinv(k + 1, np.maximum(trials - k, 1e-12), 1 - alpha / 2), 1.0
    )
    return lower, upper


def make_baseline(
    ticks: Sequence[Tick], *, made_at: datetime, provenance: str, stage: Stage = Stage.CANDIDATE
) -> Baseline:
    """Return the baseline of `ticks`, which must be of one (tier, scope, variant).

    Signals without a single count are left out.

    Raises:
        ValueError: If there are no ticks, they mix streams, or nothing was counted.
    """
    identities = {(tick.tier, tick.scope, tick.variant) for tick in ticks}
    if len(identities) != 1:
        found = sorted(str(identity) for identity in identities)
        msg = f"a baseline needs ticks of exactly one (tier, scope, variant), got {found}"
        raise ValueError(msg)
    ((tier, scope, variant),) = identities
    ordered = sorted(ticks, key=lambda tick: tick.number)
    series = {
        row.name: np.stack([tick.counts[row.name] for tick in ordered if row.name in tick.counts])
        for row in REQUEST_SIGNALS
        if any(row.name in tick.counts for tick in ordered)
    }
    series = {name: counts for name, counts in series.items() if counts.sum() > 0}
    if not series:
        msg = f"a baseline of tier {tier!r}, {scope} needs counted requests; the ticks hold none"
        raise ValueError(msg)
    identity = _content_id(tier, scope, variant, series)
    signals = {
        name: _signal_baseline(identity, name, counts, stage) for name, counts in series.items()
    }
    return Baseline(
        id=identity,
        tier=tier,
        scope=scope,
        variant=variant,
        made_at=made_at,
        stage=stage,
        requests=sum(tick.requests for tick in ordered),
        provenance=provenance,
        signals=signals,
    )


def _content_id(tier: str, scope: Scope, variant: str, series: Mapping[str, IntArray]) -> str:
    digest = hashlib.sha256(f"{tier}\0{scope}\0{variant}".encode())
    for name in sorted(series):
        head = json.dumps([name, grid_of(name).name, series[name].shape])
        digest.update(head.encode() + np.ascontiguousarray(series[name].sum(axis=0)).tobytes())
    return "bl_" + digest.hexdigest()[:16]


def _signal_baseline(identity: str, signal: str, series: IntArray, stage: Stage) -> SignalBaseline:
    """Freeze one signal; `series` has shape (ticks, bins), in order of time."""
    counts = series.sum(axis=0)
    requests = int(counts.sum())
    cumulative = np.cumsum(counts)[:-1]
    places = np.searchsorted(cumulative, np.asarray(LEVELS) * requests, side="left")
    thresholds = np.unique(np.minimum(places, len(cumulative) - 1)).astype(np.int64)
    effect = design_effect(series)
    lower, upper = clopper_pearson(
        cumulative[thresholds] / effect, requests / effect, BAND_ALPHA / len(thresholds)
    )
    return SignalBaseline(
        baseline=identity,
        signal=signal,
        grid=grid_of(signal).name,
        counts=counts,
        thresholds=thresholds,
        lower=lower,
        upper=upper,
        design_effect=effect,
        stage=stage,
    )


def design_effect(series: IntArray, *, smallest_blocks: int = 20) -> float:
    """Return how much more the share below an edge varies than independent requests would.

    Args:
        series: Counts of shape ``(ticks, bins)``, in order of time.
        smallest_blocks: Fewest blocks that a block length needs to be looked at, >= 2.

    Returns:
        The variance inflation, >= 1: for blocks of 1, 2, 4 … 64 ticks the ratio of the observed
        variance of the block's share to the binomial one, its 90 % quantile over edges with
        enough on both sides, and of that the maximum over block lengths.

    References:
        Batch means and the Rao-Scott correction; docs/statistics.md.
    """
    totals = series.sum(axis=1).astype(np.float64)
    below = np.cumsum(series, axis=1)[:, :-1].astype(np.float64)
    overall = totals.sum()
    share = below.sum(axis=0) / overall
    busy = np.minimum(share, 1 - share) * overall >= ENOUGH_EACH_SIDE
    if not busy.any():
        return 1.0
    best = 1.0
    for length in (1, 2, 4, 8, 16, 32, 64):
        blocks = len(totals) // length
        if blocks < smallest_blocks:
            break
        sizes = totals[: blocks * length].reshape(blocks, length).sum(axis=1)
        sums = below[: blocks * length, busy].reshape(blocks, length, -1).sum(axis=1)
        used = sizes > 0
        if used.sum() < smallest_blocks:
            continue
        center = share[busy]
        deviation = sums[used] - sizes[used, None] * center
        ratio = (deviation**2 / sizes[used, None]).mean(axis=0) / (center * (1 - center))
        best = max(best, float(np.quantile(ratio, 0.9)))
    return best
