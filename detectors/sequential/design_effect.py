"""How much less traffic tells than as many independent requests would.

Users come in sessions, prompts in campaigns, days in cycles. The share of requests under a
threshold then varies more from time to time than a binomial share; the ratio of the variances is
the design effect tau, and n requests tell as much as n / tau independent ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from detectors.records import FloatArray, IntArray

LENGTHS = (1, 2, 4, 8, 16, 32, 64)  # ticks of a block
SMALLEST_BLOCKS = 20
ENOUGH_EACH_SIDE = 50  # requests below and above a threshold
QUANTILE = 0.9  # over thresholds: one odd threshold does not decide
LEAST_TAU = 1.2  # real traffic is never quite independent, and an estimate never quite right


@dataclass(frozen=True, slots=True)
class DesignEffect:
    """The variance inflation of time-ordered traffic.

    `tau` >= LEAST_TAU was found with blocks of `ticks` ticks, of which there were `blocks` (0: too
    few to know, tau is the least); a tick had `tick_requests` on average.
    """

    tau: float
    ticks: int
    blocks: int
    tick_requests: float

    @property
    def known(self) -> bool:
        return self.blocks > 0

    @property
    def correlation(self) -> float:
        """The correlation of two requests of one block: tau = 1 + (n - 1) correlation."""
        held = self.ticks * self.tick_requests
        return min((self.tau - 1) / (held - 1), 1.0) if held > self.tau else 1.0

    def at(self, requests: FloatArray) -> FloatArray:
        """Return tau for ticks of so many requests, any shape, never less than `tau`.

        For rates far over the baseline's: it caps what a block can tell at 1 / correlation
        independent requests. `tau` itself holds where dependence follows the order of requests,
        this form where it follows time; the larger is right in both cases.
        """
        grown = 1 + (self.ticks * requests - 1) * self.correlation
        return np.maximum(grown, self.tau)


def design_effect(series: IntArray, seasons: IntArray | None = None) -> DesignEffect:
    """Estimate the design effect of traffic from its ticks.

    Args:
        series: Counts between thresholds in order of time, shape ``(ticks, B + 1)``.
        seasons: Number from 0 of the season of each tick, shape ``(ticks,)``: then shares vary
            around those of their season; what differs between seasons is no dependence.

    Returns:
        The largest over `LENGTHS` of the 90 % quantile, over thresholds with enough requests on
        both sides, of the variance of block shares in binomial variances. Lengths that have fewer
        than `SMALLEST_BLOCKS` filled blocks are not looked at.
    """
    totals = series.sum(axis=1).astype(np.float64)
    below = np.cumsum(series, axis=1)[:, :-1].astype(np.float64)
    overall = float(totals.sum())
    a_tick = overall / max(len(totals), 1)
    share = below.sum(axis=0) / max(overall, 1.0)
    busy = np.minimum(share, 1 - share) * overall >= ENOUGH_EACH_SIDE
    best = DesignEffect(LEAST_TAU, 1, 0, a_tick)
    if not busy.any():
        return best
    expected = _expected(totals, below[:, busy], seasons)
    for length in LENGTHS:
        found = _inflation(totals, below[:, busy], expected, length)
        if found is None:
            continue
        blocks, tau = found
        if tau > best.tau or not best.known:
            best = DesignEffect(max(tau, LEAST_TAU), length, blocks, a_tick)
    return best


def _expected(totals: FloatArray, below: FloatArray, seasons: IntArray | None) -> FloatArray:
    """Return the share under each threshold that a tick should have, shape ``(ticks, B)``."""
    places = np.zeros(len(totals), dtype=np.int64) if seasons is None else seasons
    many = int(places.max(initial=0)) + 1
    sizes, sums = np.zeros(many), np.zeros((many, below.shape[1]))
    np.add.at(sizes, places, totals)
    np.add.at(sums, places, below)
    shares: FloatArray = sums / np.maximum(sizes, 1.0)[:, None]
    return shares[places]


def _inflation(
    totals: FloatArray, below: FloatArray, expected: FloatArray, length: int
) -> tuple[int, float] | None:
    """Return filled blocks of `length` ticks and their variance inflation; None if too few."""
    many = len(totals) // length
    if many < SMALLEST_BLOCKS:
        return None
    sizes = totals[: many * length].reshape(many, length).sum(axis=1)
    deviations = (below - totals[:, None] * expected)[: many * length]
    sums = deviations.reshape(many, length, -1).sum(axis=1)
    filled = sizes > 0
    blocks = int(filled.sum())
    if blocks < SMALLEST_BLOCKS:
        return None
    squares = (sums[filled] ** 2 / sizes[filled, None]).sum(axis=0) / (blocks - 1)
    binomial = (totals[:, None] * expected * (1 - expected)).sum(axis=0) / totals.sum()
    return blocks, float(np.quantile(squares / binomial, QUANTILE))
