"""How far live traffic is from its baseline, with a band that may be looked at any time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from detectors.records import FloatArray, IntArray
from detectors.sequential.band import Band

BAND_LEVEL = 0.05  # chance that a distance ever lies outside its band
CLEAR_RATIO = 0.8  # of the gate: a distance surely under it is over
QUANTILES = (0.5, 0.95, 0.99)


@dataclass(frozen=True, slots=True)
class Distance:
    """KS distance over the thresholds, and between what it lies at every look: 0 to 1."""

    value: float
    lower: float
    upper: float


@dataclass(frozen=True, slots=True)
class QuantileShift:
    """A quantile before and now: the upper edge of its bin, infinite beyond the last edge."""

    level: float
    baseline: float
    live: float


def time_uniform_radius(requests: FloatArray, alpha: float) -> FloatArray:
    """Return how far an empirical distribution ever strays from the true one.

    Args:
        requests: Independent requests n, any shape; under 1 taken as 1.
        alpha: Chance that it is farther at any n >= 1, 0 < alpha < 1.

    Returns:
        Radii of the same shape, at most 1.

    References:
        Howard and Ramdas (2022), sequential estimation of quantiles.
    """
    n = np.maximum(requests, 1.0)
    radius = 0.85 * np.sqrt((np.log(np.log(np.e * n)) + 0.8 * np.log(1612 / alpha)) / n)
    bounded: FloatArray = np.minimum(radius, 1.0)
    return bounded


def distance(band: Band, live: IntArray, tau: float) -> Distance:
    """Return the KS distance of live counts (B + 1,) from the baseline.

    The band adds what the baseline does not know of itself; it covers the thresholds only, and
    every look since a moment that was not chosen by looking at the counts.
    """
    requests = int(live.sum())
    if requests == 0:
        return Distance(0.0, 0.0, 1.0)
    value = float(np.abs(np.cumsum(live)[:-1] / requests - band.shares).max())
    radius = float(time_uniform_radius(np.asarray(requests / tau), BAND_LEVEL))
    unsure = radius + _unsure(band)
    return Distance(value, max(value - unsure, 0.0), min(value + unsure, 1.0))


def _unsure(band: Band) -> float:
    """Return how far the baseline's own shares may be off."""
    return float(np.maximum(band.upper - band.shares, band.shares - band.lower).max())


def calm(band: Band, live: IntArray, tau: float) -> bool:
    """Whether live counts (B + 1,) are surely well inside the gate: then a change is over."""
    requests = int(live.sum())
    if requests == 0:
        return False
    shares = np.cumsum(live)[:-1] / requests
    radius = float(time_uniform_radius(np.asarray(requests / tau), BAND_LEVEL))
    farthest = float(np.abs(shares - band.shares).max()) + radius
    inside = bool(((shares >= band.low) & (shares <= band.high)).all())
    return inside and farthest < CLEAR_RATIO * (band.gate.distance + _unsure(band))


def quantile_shifts(
    edges: FloatArray, baseline: IntArray, live: IntArray
) -> tuple[QuantileShift, ...]:
    """Return the quantiles of `QUANTILES` before and now.

    Args:
        edges: Rising, shape ``(E,)``, in the signal's unit: of the grid, or of the thresholds.
        baseline: Counts between them, shape ``(E + 1,)``, some > 0.
        live: The same for live requests; without any there are no shifts.
    """
    if live.sum() == 0:
        return ()
    bounds = np.append(edges, np.inf)
    return tuple(
        QuantileShift(level, _quantile(bounds, baseline, level), _quantile(bounds, live, level))
        for level in QUANTILES
    )


def _quantile(bounds: FloatArray, counts: IntArray, level: float) -> float:
    below = np.cumsum(counts)
    return float(bounds[np.searchsorted(below, level * below[-1], side="left")])
