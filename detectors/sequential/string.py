"""The taut string: the distribution of a band that is nearest to a target.

Drawn as cumulative P over cumulative Q, the P of a band with the smallest KL(Q || P) is the
shortest path from (0, 0) to (1, 1) inside the band: KL is a convex functional of the slope dP/dQ,
and the shortest path minimises all of those at once. It is found like the shortest path through a
corridor, by keeping the funnel of what can be seen from the last bend.

References:
    Davies and Kovac (2001) for the string; Lee and Preparata (1984) for the funnel.
"""

from __future__ import annotations

from collections import deque
from typing import TypeAlias

import numpy as np

from detectors.records import FloatArray

Point: TypeAlias = tuple[float, float]


def taut_string(target: FloatArray, low: FloatArray, high: FloatArray) -> FloatArray:
    """Return the cumulative P of the band that is nearest to a target, in O(B).

    Args:
        target: Cumulative Q at the thresholds, shape ``(B,)``, rising strictly, in (0, 1).
        low: Least P(X <= threshold), shape ``(B,)``, 0 <= low <= high.
        high: Greatest P(X <= threshold), shape ``(B,)``, low <= high <= 1.

    Returns:
        Cumulative P, shape ``(B,)``, low <= P <= high.

    Raises:
        ValueError: If the target does not rise strictly from 0 to 1, or low is over high.
    """
    full = np.concatenate([[0.0], target, [1.0]])
    if not (np.diff(full) > 0).all():
        msg = f"taut string: target {target} must rise strictly inside (0, 1)"
        raise ValueError(msg)
    if not (low <= high).all():
        msg = f"taut string: low {low} is over high {high} somewhere"
        raise ValueError(msg)
    xs = full.tolist()
    lows, highs = [*low.tolist(), 1.0], [*high.tolist(), 1.0]
    bends = _bends(xs, lows, highs)
    path = np.interp(target, [x for x, _ in bends], [y for _, y in bends])
    return np.clip(path, low, high)  # rounding of the interpolation


def _bends(xs: list[float], lows: list[float], highs: list[float]) -> list[Point]:
    """Return the points at which the path bends, both ends among them."""
    start = (0.0, 0.0)
    bends = [start]
    above: deque[Point] = deque([start])  # from the last bend to the newest upper point: convex
    below: deque[Point] = deque([start])  # ... to the newest lower point: concave
    for x, low, high in zip(xs[1:], lows, highs, strict=True):
        _extend(above, below, (x, high), bends, sign=1.0)
        _extend(below, above, (x, low), bends, sign=-1.0)
    bends.extend(list(above)[1:])
    return bends


def _extend(
    mine: deque[Point], other: deque[Point], point: Point, bends: list[Point], *, sign: float
) -> None:
    """Add a point to its side of the funnel; where it crosses the other side, the path bends.

    `sign` is 1 for the upper side, whose slopes rise, and -1 for the lower.
    """
    while len(mine) > 1 and sign * _turn(mine[-2], mine[-1], point) <= 0:
        mine.pop()
    if len(mine) == 1:
        while len(other) > 1 and sign * _turn(other[0], other[1], point) <= 0:
            other.popleft()
            bends.append(other[0])
        mine[0] = other[0]
    mine.append(point)


def _turn(a: Point, b: Point, c: Point) -> float:
    """Return over 0 if the way a, b, c turns left (its slope rises), under 0 if right."""
    return (b[0] - a[0]) * (c[1] - b[1]) - (b[1] - a[1]) * (c[0] - b[0])
