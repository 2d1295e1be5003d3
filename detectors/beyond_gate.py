"""Whether a change is surely larger than a gate: exact bounds of shares, corrected for number.

The hypothesis is not "nothing has changed", which no two days of traffic fulfil, but "every share
has moved by no more than the gate allows". A share's p-value is twice the smallest level at which
exact binomial bounds of both sides prove that it has moved farther.

>>> gate = Gate(distance=0.05, odds=2.0)
>>> counts = Shares(*(np.asarray([float(count)]) for count in (100, 1000, 300, 1000)))
>>> bool(beyond_gate_p(counts, gate)[0] < 1e-8)
True
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc

from detectors.records import BoolArray, FloatArray
from detectors.sequential.band import Gate
from detectors.two_sample import NumberArray

LEVELS = (
    *(0.001, 0.002, 0.005, 0.01, 0.02),
    *(place / 20 for place in range(1, 20)),
    *(0.98, 0.99, 0.995, 0.998, 0.999, 1.0),
)
ATOM_SHARE = 0.01  # a value that holds so much is told apart from what lies under it
_HALVINGS = 50


@dataclass(frozen=True, slots=True)
class Shares:
    """Counts of C events on both sides, each array of shape (C,): count, and of how many rows."""

    reference: FloatArray
    reference_rows: FloatArray
    current: FloatArray
    current_rows: FloatArray

    def __len__(self) -> int:
        return len(self.reference)

    def and_not(self) -> Shares:
        """Return the same events followed by their opposites, shape (2 C,)."""
        m, n = self.reference_rows, self.current_rows
        return Shares(
            np.concatenate([self.reference, m - self.reference]),
            np.concatenate([m, m]),
            np.concatenate([self.current, n - self.current]),
            np.concatenate([n, n]),
        )


def joined(parts: list[Shares]) -> Shares:
    """Return the events of all parts, in order."""
    return Shares(
        np.concatenate([part.reference for part in parts]),
        np.concatenate([part.reference_rows for part in parts]),
        np.concatenate([part.current for part in parts]),
        np.concatenate([part.current_rows for part in parts]),
    )


def thresholds_of(reference: NumberArray) -> tuple[NumberArray, BoolArray]:
    """Choose the thresholds of a sorted reference (m,), m >= 1, by looking at nothing else.

    Returns:
        Values (C,), and whether the event is "at or below" (true) or "below" it: the first at each
        of `LEVELS`, the second under the smallest value and under values with `ATOM_SHARE`.
    """
    m = len(reference)
    places = np.ceil(np.asarray(LEVELS) * m).astype(np.int64) - 1
    values = np.unique(reference[np.append(np.clip(places, 0, m - 1), 0)])
    begins = np.searchsorted(reference, values, side="left")
    ends = np.searchsorted(reference, values, side="right")
    atoms = (ends - begins >= max(ATOM_SHARE * m, 2)) | (begins == 0)
    events = np.concatenate([values, values[atoms]])
    return events, np.arange(len(events)) < len(values)


def count_events(ordered: NumberArray, values: NumberArray, closed: BoolArray) -> FloatArray:
    """Count a sorted sample at or below (`closed`) or below each of the values, shape (C,)."""
    at_most = np.searchsorted(ordered, values, side="right")
    below = np.searchsorted(ordered, values, side="left")
    return np.where(closed, at_most, below).astype(np.float64)


def allowed(shares: FloatArray, gate: Gate) -> FloatArray:
    """Return up to what the gate lets shares of any shape rise: the smaller of its two moves."""
    by_odds = gate.odds * shares / (1 - shares + gate.odds * shares)
    risen: FloatArray = np.minimum(by_odds, np.minimum(shares + gate.distance, 1.0))
    return risen


def allowed_down(shares: FloatArray, gate: Gate) -> FloatArray:
    """Return down to what the gate lets shares of any shape fall."""
    fallen: FloatArray = 1 - allowed(1 - shares, gate)
    return fallen


def outside(counts: Shares, gate: Gate) -> BoolArray:
    """Whether each share, as counted, has risen beyond the gate; nothing is said of how surely."""
    before, now = counts.reference / counts.reference_rows, counts.current / counts.current_rows
    beyond: BoolArray = now > allowed(before, gate) + 1e-12  # rounding
    return beyond


def beyond_gate_p(counts: Shares, gate: Gate) -> FloatArray:
    """Return p-values of "this share has risen by no more than the gate allows".

    Args:
        counts: Counts of C events, rows > 0.
        gate: The change that is not worth telling; distance 0 and odds 1 test for any rise.

    Returns:
        Shape ``(C,)``, 0 to 1. With u the reference's true share, f(u) = P(Bin(m, u) <= counted)
        falls and g(u) = P(Bin(n, allowed(u)) >= counted) rises; where they meet, both one-sided
        Clopper-Pearson bounds of that level exclude the gate, and the p-value is twice it.
    """
    found = np.ones(len(counts))
    rows = np.flatnonzero(outside(counts, gate))
    if len(rows) == 0:
        return found
    k, m = counts.reference[rows], counts.reference_rows[rows]
    j, n = counts.current[rows], counts.current_rows[rows]
    low, high = k / m, np.ones(len(rows))
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        met = _at_most(k, m, middle) <= _at_least(j, n, allowed(middle, gate))
        low, high = np.where(met, low, middle), np.where(met, middle, high)
    level = np.maximum(_at_most(k, m, high), _at_least(j, n, allowed(high, gate)))
    found[rows] = np.minimum(2 * level, 1.0)
    return found


def _at_most(k: FloatArray, m: FloatArray, share: FloatArray) -> FloatArray:
    """Return P(Bin(m, share) <= k)."""
    tail: FloatArray = np.asarray(
        betainc(np.maximum(m - k, 1e-12), k + 1, 1 - share), dtype=np.float64
    )
    tail[k >= m] = 1.0
    return tail


def _at_least(k: FloatArray, n: FloatArray, share: FloatArray) -> FloatArray:
    """Return P(Bin(n, share) >= k)."""
    tail: FloatArray = np.asarray(betainc(np.maximum(k, 1e-12), n - k + 1, share), dtype=np.float64)
    tail[k <= 0] = 1.0
    return tail


@lru_cache(maxsize=256)  # features of one file mostly have the same number of rows
def smallest_visible(m: float, n: float, *, gate: Gate, level: float) -> float:
    """Return the smallest move of a share, across one half, that the test would see.

    Args:
        m: Rows of the reference, >= 0; need not be whole.
        n: Rows of the other side, >= 0.
        gate: The gate.
        level: p-value that is needed, after all corrections, over 0.

    Returns:
        A KS distance, over the gate's; infinite if not even a distance of 1 would be seen.
    """
    if min(m, n) < 1:
        return np.inf
    found = 1.0
    for step in (0.1, 0.01, 0.001):
        moves = found - step * np.arange(10, -1, -1)
        ones = np.ones(len(moves))
        now = np.clip(0.5 + moves / 2, 0, 1)
        counts = Shares((1 - now) * m, m * ones, now * n, n * ones)
        seen = np.flatnonzero(beyond_gate_p(counts, gate) <= level)
        if len(seen) == 0:
            return np.inf
        found = float(moves[seen[0]])
    return found


def holm(p: FloatArray) -> FloatArray:
    """Return p-values (F,) adjusted so that one false finding among all has the stated chance."""
    order = np.argsort(p, kind="stable")
    steps = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    return _placed(np.minimum(steps, 1.0), order)


def benjamini_hochberg(p: FloatArray) -> FloatArray:
    """Return p-values (F,) adjusted so that the stated share of findings is false on average."""
    order = np.argsort(p, kind="stable")
    steps = p[order] * len(p) / np.arange(1, len(p) + 1)
    return _placed(np.minimum(np.minimum.accumulate(steps[::-1])[::-1], 1.0), order)


def _placed(values: FloatArray, order: NDArray[np.intp]) -> FloatArray:
    found = np.empty(len(values))
    found[order] = values
    return found
