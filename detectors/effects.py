"""Effect sizes that stand beside a drift verdict: how far the counts are apart, not how surely."""

from __future__ import annotations

import numpy as np

from detectors.divergence import SMOOTHING
from detectors.drift import Rows
from detectors.records import FloatArray
from detectors.signals import grid_of


def psi(rows: Rows) -> FloatArray:
    """Return the population stability index of each window against its baseline.

    Returns:
        Shape ``(R,)``, >= 0, no unit: the sum of (p - q) ln(p / q) over the cells between the
        baseline's thresholds, each cell half a request richer (`SMOOTHING`); 0 without a fit
        baseline or without live requests.
    """
    counted = [len(b.thresholds) + 1 if b is not None else 1 for b in rows.baselines]
    cells = np.asarray(counted, dtype=np.int64)
    last = rows.live.shape[1] - 1
    ends = np.full((len(cells), cells.max(initial=1)), last, dtype=np.int64)
    for row, baseline in enumerate(rows.baselines):
        if baseline is not None:
            ends[row, : len(baseline.thresholds)] = np.minimum(baseline.thresholds, last)
    shares = []
    for counts in (rows.live, rows.reference):
        below = np.take_along_axis(np.cumsum(counts, axis=1), ends, axis=1)
        filled = np.diff(below, axis=1, prepend=0) + SMOOTHING
        shares.append(filled / (counts.sum(axis=1) + SMOOTHING * cells)[:, None])
    p, q = shares
    used = np.arange(ends.shape[1]) < cells[:, None]
    known = (rows.live.sum(axis=1) > 0) & (rows.reference.sum(axis=1) > 0)
    index = np.where(used & known[:, None], (p - q) * np.log(p / q), 0.0)
    total: FloatArray = index.sum(axis=1)
    return total


def wasserstein(rows: Rows, gap: FloatArray) -> FloatArray:
    """Return the Wasserstein distances, shape ``(R,)``, in each signal's unit.

    Args:
        rows: The streams that are compared.
        gap: Live minus baseline P(X <= edge) in each bin, shape ``(R, W)``. What lies beyond the
            last edge counts as at that edge.
    """
    widths = np.zeros((len(rows.streams), rows.live.shape[1] - 1))
    for row, stream in enumerate(rows.streams):
        steps = np.diff(grid_of(stream.signal).array)
        widths[row, : len(steps)] = steps
    distance: FloatArray = (np.abs(gap[:, :-1]) * widths).sum(axis=1)
    return distance
