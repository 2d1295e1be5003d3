"""The null of a drift detector: every distribution that is near enough to the baseline.

A baseline is reduced to its shares at some edges of the grid. The share of each edge has an exact
confidence band, since a baseline is finite; the gate widens it by what nobody wants to hear of;
the strata of a season (hours of a day) widen it by what is normal at some hour. Drift is only what
lies outside.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from detectors import proportions
from detectors.proportions import BAND_ALPHA, clopper_pearson
from detectors.records import FloatArray, IntArray

LEVELS: tuple[float, ...] = (*proportions.LEVELS, 1.0)
ATOM_SHARE = 0.05  # a bin that holds so much is told apart from what lies under it
LEAST_EFFECTIVE = 20_000  # requests / tau that a stratum needs to be a baseline of its own


@dataclass(frozen=True, slots=True)
class Gate:
    """The change that is not worth telling.

    A share p may move by `distance` and its odds p / (1 - p) by the factor `odds`, whichever is
    the smaller move: the first bounds the body (it is the KS distance), the second the tails.
    """

    distance: float
    odds: float

    def __post_init__(self) -> None:
        if not (0 <= self.distance < 1 and 1 <= self.odds < math.inf):
            msg = (
                f"gate: distance {self.distance} and odds {self.odds}, expected "
                "0 <= distance < 1 and odds >= 1"
            )
            raise ValueError(msg)


@dataclass(frozen=True)
class Band:
    """Between which shares a stream is taken as unchanged.

    `thresholds` (B,) are indices of grid edges, ascending; `counts` (B + 1,) the baseline's
    requests between them; `tau` >= 1 its design effect. `lower` and `upper` (B,) bound the true
    P(X <= edge) of the baseline, simultaneously with confidence 1 - BAND_ALPHA; `low` and `high`
    (B,) are these after gate and season: the null.
    """

    thresholds: IntArray
    counts: IntArray
    tau: float
    gate: Gate
    lower: FloatArray
    upper: FloatArray
    low: FloatArray
    high: FloatArray

    @property
    def requests(self) -> int:
        return int(self.counts.sum())

    @property
    def shares(self) -> FloatArray:
        """P(X <= edge) in the baseline, shape (B,)."""
        below: FloatArray = np.cumsum(self.counts)[:-1] / self.requests
        return below


def thresholds_of(counts: IntArray) -> IntArray:
    """Choose the edges at which a baseline is compared, as indices, ascending.

    Args:
        counts: The baseline's counts on its grid, shape ``(bins,)``, bins >= 2, some > 0.

    Returns:
        The first edges with a share of at least each of `LEVELS`, and the left edge of each bin
        that holds `ATOM_SHARE` or more, so that a constant that moves to either side is seen.

    Raises:
        ValueError: If nothing was counted, a count is negative, or there is but one bin.
    """
    if len(counts) < 2 or counts.min() < 0 or counts.sum() == 0:  # noqa: PLR2004  # one edge
        msg = (
            f"baseline counts of shape {counts.shape} with sum {counts.sum()} and minimum "
            f"{counts.min(initial=0)}: expected at least two bins, none negative, some filled"
        )
        raise ValueError(msg)
    requests = int(counts.sum())
    below = np.cumsum(counts)[:-1]
    places = np.searchsorted(below, np.asarray(LEVELS) * requests, side="left")
    atoms = np.flatnonzero(counts >= ATOM_SHARE * requests) - 1
    chosen = np.concatenate([np.minimum(places, len(below) - 1), atoms[atoms >= 0]])
    return np.unique(chosen).astype(np.int64)


def coarse(counts: IntArray, thresholds: IntArray) -> IntArray:
    """Add counts on the grid up between thresholds: (..., bins) to (..., B + 1), exactly."""
    starts = np.concatenate([[0], thresholds + 1])
    return np.add.reduceat(counts, starts, axis=-1)


def coarse_rows(counts: IntArray, bands: Sequence[Band], which: IntArray) -> IntArray:
    """Add the counts of many streams up between the thresholds of each.

    Args:
        counts: On the grids of the streams, shape ``(S, W)``, zeros at the right where a grid is
            narrower (as of `Panel`).
        bands: The nulls.
        which: Place of each stream's null in `bands`, shape ``(S,)``.

    Returns:
        Counts of shape ``(S, B + 1)`` of the widest null, zeros at the right.
    """
    bins = max(len(band.counts) for band in bands)
    found = np.zeros((len(which), bins), dtype=np.int64)
    for place in np.unique(which):
        rows, thresholds = np.flatnonzero(which == place), bands[place].thresholds
        found[rows, : len(thresholds) + 1] = coarse(counts[rows], thresholds)
    return found


def make_band(
    counts: IntArray,
    *,
    gate: Gate,
    tau: float,
    thresholds: IntArray | None = None,
    strata: Sequence[IntArray] = (),
) -> Band:
    """Return the null around a baseline.

    Args:
        counts: The baseline's counts on its grid, shape ``(bins,)``.
        gate: What is not worth telling.
        tau: Design effect of the baseline's traffic, >= 1; m requests count as m / tau.
        thresholds: Edges to use, as of `thresholds_of` (the default); the strata of one baseline
            must share those of the whole.
        strata: Counts of the same grid, one array a season (hour of the day, ...): what any of
            them is, is normal. Empty ones are passed over.

    Raises:
        ValueError: If nothing was counted, or tau is not a number from 1.
    """
    if not 1 <= tau < math.inf:
        msg = f"band: design effect {tau}, expected a number from 1"
        raise ValueError(msg)
    chosen = thresholds_of(counts) if thresholds is None else thresholds
    known = coarse(counts, chosen)
    lower, upper = _confidence(known, tau, BAND_ALPHA)
    low, high = _widened(lower, upper, gate)
    filled = [stratum for stratum in strata if stratum.sum() > 0]
    for stratum in filled:
        some = _confidence(coarse(stratum, chosen), tau, BAND_ALPHA / len(filled))
        stratum_low, stratum_high = _widened(*some, gate)
        low, high = np.minimum(low, stratum_low), np.maximum(high, stratum_high)
    return Band(chosen, known, tau, gate, lower, upper, low, high)


def _confidence(counts: IntArray, tau: float, alpha: float) -> tuple[FloatArray, FloatArray]:
    """Return the simultaneous bounds of the shares under each threshold, m counted as m / tau."""
    below = np.cumsum(counts)[:-1]
    if counts.sum() == 0:
        return np.zeros(len(below)), np.ones(len(below))
    return clopper_pearson(below / tau, float(counts.sum()) / tau, alpha / len(below))


def _widened(lower: FloatArray, upper: FloatArray, gate: Gate) -> tuple[FloatArray, FloatArray]:
    """Widen bounds of shares by the gate; p -> f p / (1 - p + f p) multiplies odds by f."""
    up = gate.odds * upper / (1 - upper + gate.odds * upper)
    down = lower / (lower + gate.odds * (1 - lower))
    high = np.minimum(up, np.minimum(upper + gate.distance, 1.0))
    low = np.maximum(down, np.maximum(lower - gate.distance, 0.0))
    return low, high


def seasons(
    hours: IntArray, *, tau: float, least: float = LEAST_EFFECTIVE
) -> tuple[tuple[int, ...], ...]:
    """Group neighbouring hours until each group is a baseline of its own.

    Args:
        hours: Counts of each hour (of the day or week) on the grid, shape ``(H, bins)``.
        tau: Design effect, >= 1.
        least: Requests / tau that each group must have.

    Returns:
        Groups of hour numbers in order; the last takes what is left over. One group of all hours
        means that there is too little for strata.
    """
    sizes = hours.sum(axis=1) / tau
    groups: list[tuple[int, ...]] = []
    open_hours: list[int] = []
    held = 0.0
    for hour, size in enumerate(sizes):
        open_hours.append(hour)
        held += float(size)
        if held >= least:
            groups.append(tuple(open_hours))
            open_hours, held = [], 0.0
    if open_hours:
        rest = (groups.pop() if groups else ()) + tuple(open_hours)
        groups.append(rest)
    return tuple(groups)
