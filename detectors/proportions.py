"""How sure a share of requests is: exact bands, and the variance of traffic that comes in order."""

from __future__ import annotations

import numpy as np
from scipy.special import betaincinv

from detectors.records import FloatArray, IntArray

LEVELS: tuple[float, ...] = (  # shares at which a baseline is compared
    *(0.001, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9),
    *(0.95, 0.98, 0.99, 0.995, 0.998, 0.999, 0.9995),
)
BAND_ALPHA = 0.01  # chance that some true P(X <= t) of a baseline lies outside its band
ENOUGH_EACH_SIDE = 50  # requests below and above an edge, for its variance to mean something


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
