"""What drift may look like: the alternatives that are bet on, each with a name in words.

Shifts and spreads are exponential tilts of the baseline in normal scores, so they mean the same
for every signal. Tails move the share beyond a threshold to a multiple of its gate edge. Between
the values of a signal that has few, a target waits for a new one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from scipy.special import ndtri

from detectors.records import BoolArray, FloatArray, IntArray
from detectors.sequential.band import ATOM_SHARE, Band
from detectors.sequential.words import number_words, share_words

Kind: TypeAlias = Literal["shift", "spread", "above", "below", "between"]
SHIFTS = (0.12, 0.18, 0.25, 0.35, 0.5, 0.75, 1.0, 1.5, 2.5)  # standard deviations
SPREADS = (1.25, 1.6, 2.5, 5.0)  # ratios of variances
TAIL_MULTIPLES = (1.5, 3.0, 8.0)  # of the gate edge
LARGEST_TAIL = 0.22  # shares over it belong to the body, which shifts cover
LARGEST_TARGET = 0.5
LARGEST_GAP = 0.001  # share of a bin that counts as empty
SMALLEST_LOWER_TAIL = 0.004  # under it only the lowest threshold is looked at from below
LEAST_MASS = 1e-9  # of a bin of a target: bets stay finite
FARTHEST_SCORE = 3.0  # a wider target grows no more beyond it


@dataclass(frozen=True, slots=True)
class Target:
    """One kind of drift.

    `size` is in standard deviations for a shift, the ratio of variances for a spread (under 1:
    narrower), and the multiple of the gate edge for the rest. These have `threshold`, the place of
    their edge, or upper edge, in the band's thresholds (else -1).
    """

    kind: Kind
    size: float
    threshold: int = -1

    def words(self, signal: str, band: Band, edges: FloatArray) -> str:
        """Name the target; `edges` are those of the signal's grid."""
        if self.kind == "shift":
            way = "up" if self.size > 0 else "down"
            return f"{signal} moved {way} by {abs(self.size):.2g} standard deviations"
        if self.kind == "spread":
            ratio = self.size**0.5 if self.size > 1 else self.size**-0.5
            return f"{signal} {ratio:.2g} times {'wider' if self.size > 1 else 'narrower'}"
        edge = number_words(float(edges[band.thresholds[self.threshold]]))
        share = share_words(tail_share(self, band))
        if self.kind == "between":
            under = number_words(float(edges[band.thresholds[self.threshold - 1]]))
            return f"P({under} < {signal} ≤ {edge}) = {share}"
        return f"P({signal} {'>' if self.kind == 'above' else '≤'} {edge}) = {share}"


def family(band: Band) -> tuple[Target, ...]:
    """Return the targets for a baseline: those that its thresholds can tell."""
    shifts = [Target("shift", sign * size) for size in SHIFTS for sign in (1, -1)]
    spreads = [Target("spread", size**sign) for size in SPREADS for sign in (1, -1)]
    tails = [
        Target(kind, multiple, place)
        for place, share in enumerate(band.shares.tolist())
        for kind in _sides(place, share)
        for multiple in TAIL_MULTIPLES
    ]
    tails += [
        Target("between", multiple, place) for place in _gaps(band) for multiple in TAIL_MULTIPLES
    ]
    small = [target for target in tails if tail_share(target, band) <= LARGEST_TARGET]
    return (*shifts, *spreads, *small)


def _sides(place: int, share: float) -> tuple[Kind, ...]:
    above: tuple[Kind, ...] = ("above",) if 1 - share <= LARGEST_TAIL else ()
    lowest = place == 0 or share >= SMALLEST_LOWER_TAIL
    below: tuple[Kind, ...] = ("below",) if share <= LARGEST_TAIL and lowest else ()
    return above + below


def _gaps(band: Band) -> list[int]:
    """Return the bins inside that hold next to nothing and lie right under a heavy one."""
    heavy = band.counts >= ATOM_SHARE * band.requests
    empty = band.counts <= LARGEST_GAP * band.requests
    return [place for place in range(1, len(band.counts) - 1) if empty[place] and heavy[place + 1]]


def tail_share(target: Target, band: Band) -> float:
    """Return the share that a target of a tail or gap means, >= 0."""
    if target.kind == "between":
        return target.size * float(band.high[target.threshold] - band.low[target.threshold - 1])
    edges = 1 - band.low if target.kind == "above" else band.high
    return target.size * float(edges[target.threshold])


def masses(target: Target, band: Band) -> FloatArray:
    """Return the target as a distribution over the bins of the band.

    Args:
        target: One of `family`, of this band or of another one with the same thresholds.
        band: The null with its baseline.

    Returns:
        Masses of shape ``(B + 1,)``, each > 0, of sum 1. A tail target beyond 0.9 is taken as 0.9.
    """
    reference = smoothed(band)
    if target.kind == "shift":
        raw = reference * np.exp(target.size * _scores(reference))
    elif target.kind == "spread":
        raw = reference * np.exp(_spread(target.size, _scores(reference)))
    else:
        raw = _tail(target, band, reference)
    kept = np.maximum(raw, LEAST_MASS)
    distribution: FloatArray = kept / kept.sum()
    return distribution


def smoothed(band: Band) -> FloatArray:
    """Return the baseline's masses (B + 1,) with half a request more in each bin: none is 0."""
    raised = band.counts + 0.5
    distribution: FloatArray = raised / raised.sum()
    return distribution


def _scores(reference: FloatArray) -> FloatArray:
    """Return the normal score of the middle of each bin."""
    upper = np.cumsum(reference)
    return ndtri(np.clip(upper - reference / 2, 1e-5, 1 - 1e-5))


def _spread(ratio: float, scores: FloatArray) -> FloatArray:
    """Return the log ratio of N(0, ratio) to N(0, 1) but for a constant, bounded above."""
    squares = scores**2 if ratio < 1 else np.minimum(scores**2, FARTHEST_SCORE**2)
    return 0.5 * (1 - 1 / ratio) * squares


def _tail(target: Target, band: Band, reference: FloatArray) -> FloatArray:
    """Move the share of a tail or gap; half of it lies as in the baseline, half evenly over bins.

    The even half lets the open end bin count, where the baseline has next to nothing.
    """
    inside = _inside(target, np.arange(len(reference)))
    share = min(tail_share(target, band), 0.9)
    tail = np.where(inside, reference, 0.0)
    body = np.where(inside, 0.0, reference)
    spread = 0.5 * tail / tail.sum() + 0.5 * inside / inside.sum()
    moved: FloatArray = share * spread + (1 - share) * body / body.sum()
    return moved


def _inside(target: Target, bins: IntArray) -> BoolArray:
    """Return which bins a target of a tail or gap moves requests to."""
    if target.kind == "above":
        return bins > target.threshold
    return bins <= target.threshold if target.kind == "below" else bins == target.threshold
