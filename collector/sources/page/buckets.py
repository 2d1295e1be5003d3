"""Puts the samples of a histogram family together, in whatever order they stand on the page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, pairwise
from operator import sub

from collector.sources.page.page import Sample
from collector.sources.page.series import RawHistogram, is_count


@dataclass(slots=True)
class _Pieces:
    bounds: list[float] = field(default_factory=list)
    counts: list[float] = field(default_factory=list)
    total: float | None = None
    sum: float | None = None


def histograms(
    samples: Sequence[Sample], *, scale: float, cut: bool = False, bare: bool = False
) -> tuple[list[RawHistogram], int]:
    """Return the complete histograms among `samples`, and the number of those that are not.

    Without a +Inf bucket `_count` takes its place and the other way round. A series without a sum,
    without any bucket or total, or with values that are not counts is incomplete. Cumulative counts
    that were read while they changed, and so fall slightly, are raised to the one before.

    Args:
        samples: Buckets, sums and counts of one family.
        scale: What bounds and sums are multiplied by to come to the signal's unit.
        cut: Whether the page lacks its end; then only a +Inf bucket proves a series complete.
        bare: Whether they are of a summary, which has a sum and a count and no buckets.
    """
    pieces: dict[str, _Pieces] = {}
    for series, value in samples:
        mine = pieces.get(series.key)
        if mine is None:
            mine = pieces[series.key] = _Pieces()
        if series.role == "bucket":
            mine.bounds.append(series.bound)
            mine.counts.append(value)
        elif series.role == "sum":
            mine.sum = value if mine.sum is None else max(mine.sum, value)
        elif series.role == "count":
            mine.total = value if mine.total is None else max(mine.total, value)
    whole = _bare if bare else partial(_whole, cut=cut)
    found = [whole(key, mine, scale) for key, mine in pieces.items()]
    complete = [it for it in found if it is not None]
    return complete, len(found) - len(complete)


def _whole(key: str, pieces: _Pieces, scale: float, *, cut: bool) -> RawHistogram | None:
    bounds, counts = _in_order(pieces)
    total = pieces.total
    if not bounds or bounds[0] == -math.inf or (cut and bounds[-1] != math.inf):
        return None
    if bounds[-1] == math.inf:
        total = counts[-1]
        bounds, counts = bounds[:-1], counts[:-1]
    if total is None or pieces.sum is None or not is_count(abs(pieces.sum * scale)):
        return None
    if not all(map(is_count, (*counts, total))):
        return None
    raised = list(accumulate(counts, max))
    dip = max(map(sub, raised, counts)) if raised != counts else 0.0
    counts = raised
    if counts and counts[-1] > total:
        total = counts[-1]
    if scale != 1.0:
        bounds = [bound * scale for bound in bounds]
    return RawHistogram(key, tuple(bounds), tuple(counts), total, pieces.sum * scale, dip)


def _bare(key: str, pieces: _Pieces, scale: float) -> RawHistogram | None:
    if pieces.total is None or pieces.sum is None or not is_count(pieces.total):
        return None
    total = pieces.sum * scale
    return RawHistogram(key, (), (), pieces.total, total) if is_count(abs(total)) else None


def _in_order(pieces: _Pieces) -> tuple[list[float], list[float]]:
    """Return bounds ascending with their counts; of a bound met twice the larger count."""
    bounds, counts = pieces.bounds, pieces.counts
    if all(left < right for left, right in pairwise(bounds)):
        return bounds, counts
    merged: dict[float, float] = {}
    for bound, count in zip(bounds, counts, strict=True):
        merged[bound] = max(count, merged.get(bound, 0.0))
    bounds = sorted(merged)
    return bounds, [merged[bound] for bound in bounds]
