"""Two samples of one number, compared exactly: one shared sort gives every figure of a report.

Each sample is sorted once and the two are merged in linear time; the Kolmogorov-Smirnov distance,
Wasserstein's, the quantiles and the population stability index are all read from that merge.

>>> pair = pair_of(np.asarray([1.0, 2.0, 3.0]), np.asarray([2.0, 3.0, 4.0, 5.0]))
>>> found = ks_of(pair)
>>> round(found.distance, 3), found.at
(0.5, 3.0)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from detectors.divergence import SMOOTHING
from detectors.ks_tail import two_sample_p
from detectors.proportions import clopper_pearson
from detectors.records import FloatArray, IntArray

NumberArray: TypeAlias = NDArray[np.number[Any]]
QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
QUANTILE_ALPHA = 0.05  # chance that one true quantile lies outside its interval
_PSI_CELLS = 10
_BLOCK = 1 << 15  # values of a piece of the merge


@dataclass(frozen=True, slots=True)
class Pair:
    """Two sorted samples of one type, without NaN, and what their merge tells.

    `reference` has shape (m,), `current` (n,), both ascending. `gap` is the largest
    ``|n i - m j|`` with i values of the reference and j of the other at or below a point, a whole
    number without rounding; `at` is that point. `area` lies between the two distributions.
    """

    reference: NumberArray
    current: NumberArray
    gap: int
    at: float
    area: float


@dataclass(frozen=True, slots=True)
class KsResult:
    """The two-sample test of no difference at all.

    `distance` is the largest gap of the two distributions, 0 to 1; `at` the value where it is
    reached; `p` its p-value, exact up to 10,000 rows a side, else asymptotic, as scipy has it.
    """

    distance: float
    at: float
    p: float


@dataclass(frozen=True, slots=True)
class QuantileShift:
    """A quantile on both sides, each with a distribution-free 95 % interval (lower, upper)."""

    level: float
    reference: float
    reference_interval: tuple[float, float]
    current: float
    current_interval: tuple[float, float]


def pair_of(reference: NumberArray, current: NumberArray) -> Pair:
    """Sort two samples and merge them, in linear time after the sort.

    Args:
        reference: Numbers of any type and shape (m,), m >= 1; infinities are values like others.
        current: Numbers of shape (n,), n >= 1.

    Returns:
        The pair. Whole numbers stay exact; signed against unsigned beyond 2^63, or whole numbers
        against floats, are compared as float64.

    Raises:
        ValueError: If a sample is empty or holds NaN.
    """
    if len(reference) == 0 or len(current) == 0:
        msg = f"samples of {len(reference)} and {len(current)} values: expected some on both sides"
        raise ValueError(msg)
    return merged(np.sort(reference), np.sort(current))


def merged(reference: NumberArray, current: NumberArray) -> Pair:
    """Merge two samples that are sorted already, as of `pair_of`.

    Raises:
        ValueError: If one holds NaN, which sorts last.
    """
    kind = common_type(reference, current)
    first, second = (some.astype(kind, copy=False) for some in (reference, current))
    if np.issubdtype(kind, np.floating) and (np.isnan(first[-1]) or np.isnan(second[-1])):
        msg = "a sample holds NaN: leave missing values out, and compare their share by itself"
        raise ValueError(msg)
    m, n = len(first), len(second)
    gap, at, area = 0, float(first[0]), 0.0
    ended, left = float(min(first[0], second[0])), 0  # the last point before a piece, and its gap
    for points, before, now in _steps(first, second):
        gaps = np.abs(before * n - now * m)
        place = int(gaps.argmax())
        if gaps[place] > gap:
            gap, at = int(gaps[place]), float(points[place])
        with np.errstate(over="ignore", invalid="ignore"):  # infinite values have no area
            widths = np.diff(points.astype(np.float64), prepend=ended)
            area += float(widths[0] * left + (widths[1:] * gaps[:-1]).sum())
        ended, left = float(points[-1]), int(gaps[-1])
    return Pair(first, second, gap, at, area / (m * n))


def _steps(
    first: NumberArray, second: NumberArray
) -> Iterator[tuple[NumberArray, IntArray, IntArray]]:
    """Merge two sorted samples piece by piece, each small enough for the processor's cache.

    Yields:
        Points (s,), ascending, and how many values of each sample lie at or below them.
    """
    cuts = np.unique(np.concatenate([first[_BLOCK::_BLOCK], second[_BLOCK::_BLOCK]]))
    ends = [np.searchsorted(some, cuts, side="right").tolist() for some in (first, second)]
    i = j = 0
    for i_end, j_end in zip([*ends[0], len(first)], [*ends[1], len(second)], strict=True):
        both = np.concatenate([first[i:i_end], second[j:j_end]])
        if len(both) == 0:
            continue
        order = np.argsort(both, kind="stable")  # two runs: merged in linear time, not sorted
        both = both[order]
        last = np.ones(len(both), dtype=np.bool_)
        np.not_equal(both[1:], both[:-1], out=last[:-1])
        before = np.cumsum(order < i_end - i)[last]
        yield both[last], before + i, np.flatnonzero(last) + 1 - before + j
        i, j = i_end, j_end


def common_type(reference: NumberArray, current: NumberArray) -> np.dtype[np.number[Any]]:
    """Return the type that both samples are compared in; int64 for whole numbers if they fit."""
    kinds = {reference.dtype.kind, current.dtype.kind}
    if kinds == {"i", "u"}:
        unsigned, signed = (
            (reference, current) if reference.dtype.kind == "u" else (current, reference)
        )
        if int(unsigned.max(initial=0)) <= np.iinfo(np.int64).max:
            return np.dtype(np.int64)
        if int(signed.min(initial=0)) >= 0:
            return np.dtype(np.uint64)
        return np.dtype(np.float64)
    return np.result_type(reference.dtype, current.dtype)


def ks_of(pair: Pair) -> KsResult:
    """Return the two-sample Kolmogorov-Smirnov test, equal to ``scipy.stats.ks_2samp``."""
    m, n = len(pair.reference), len(pair.current)
    return KsResult(pair.gap / (m * n), pair.at, two_sample_p(pair.gap, m, n))


def wasserstein_of(pair: Pair) -> float | None:
    """Return the first Wasserstein distance in the feature's unit; None with infinite values."""
    return pair.area if np.isfinite(pair.area) and _all_finite(pair) else None


def _all_finite(pair: Pair) -> bool:
    ends = [some[place] for some in (pair.reference, pair.current) for place in (0, -1)]
    return all(np.isfinite(float(end)) for end in ends)


def psi_of(pair: Pair) -> float:
    """Return the population stability index over the reference's deciles, >= 0, no unit.

    A cell ends at a decile of the reference (equal ones are one); each is half a row richer.
    """
    m = len(pair.reference)
    ends = np.arange(1, _PSI_CELLS) * m // _PSI_CELLS
    edges = np.unique(pair.reference[ends])
    shares = []
    for sample in (pair.reference, pair.current):
        below = np.searchsorted(sample, edges, side="right")
        cells = np.diff(np.concatenate([[0], below, [len(sample)]]))
        shares.append((cells + SMOOTHING) / (len(sample) + SMOOTHING * len(cells)))
    p, q = shares
    return float(((p - q) * np.log(p / q)).sum())


def psi_of_counts(reference: IntArray, current: IntArray) -> float:
    """Return the population stability index of counts (K,) of the same K categories."""
    p, q = (
        (counts + SMOOTHING) / (counts.sum() + SMOOTHING * len(counts))
        for counts in (reference, current)
    )
    return float(((p - q) * np.log(p / q)).sum())


def quantile_shifts(pair: Pair, levels: tuple[float, ...] = QUANTILES) -> tuple[QuantileShift, ...]:
    """Return quantiles of both sides with intervals between order statistics.

    Args:
        pair: The two samples.
        levels: Shares, each over 0 and under 1.

    Returns:
        One shift a level. A value is the smallest of the sample with a share of at least the level
        at or below it; an interval end is infinite where the sample is too small to know.
    """
    found = []
    for level in levels:
        first, second = (_quantile(some, level) for some in (pair.reference, pair.current))
        found.append(QuantileShift(level, first[0], first[1:], second[0], second[1:]))
    return tuple(found)


def _quantile(ordered: NumberArray, level: float) -> tuple[float, float, float]:
    """Return a quantile and the order statistics around it that cover the true one."""
    rows = len(ordered)
    lower, upper = clopper_pearson(np.asarray([level * rows]), float(rows), QUANTILE_ALPHA)
    place = min(max(int(np.ceil(level * rows)) - 1, 0), rows - 1)
    low, high = int(np.floor(lower[0] * rows)) - 1, int(np.ceil(upper[0] * rows))
    return (
        float(ordered[place]),
        float(ordered[low]) if low >= 0 else -np.inf,
        float(ordered[high]) if high < rows else np.inf,
    )


def shares_below(ordered: NumberArray, points: FloatArray) -> FloatArray:
    """Return the shares of a sorted sample (m,) at or below each of the points (s,)."""
    below: FloatArray = np.searchsorted(ordered, points, side="right") / len(ordered)
    return below
