"""Quantiles of latencies over the last minute, from cumulative histograms with any buckets.

Each scrape's histogram is a snapshot; what lies between the newest and the one a minute before is
the window. Nothing is assumed about bounds: they are the user's, may differ from deployment to
deployment and change at a restart, and snapshots with other bounds are never compared.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import Final

from collector.sources.engine.translation import Translation
from detectors.records import Absence, Histogram
from detectors.remarks import Finding, Quantile

WINDOW_SECONDS: Final = 60.0
MAX_SNAPSHOTS: Final = 64  # of one signal; at 1 s between scrapes the window still has its minute
FULL_BUCKET: Final = 0.9  # with more in one bucket, a place inside it is guesswork
_SIGNALS: Final = ("ttft_seconds", "inter_token_seconds", "queue_seconds", "e2e_seconds")
_QUANTILES: Final = (("p50", 0.5, 5.0), ("p99", 0.99, 20.0))  # name, share, fewest observations


def _gauge(signal: str, name: str) -> str:
    return f"{signal.removesuffix('_seconds')}_{name}_seconds"


GAUGES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {signal: tuple(_gauge(signal, name) for name, _, _ in _QUANTILES) for signal in _SIGNALS}
)


@dataclass(frozen=True, slots=True)
class Growth:
    """What a histogram grew by in a window.

    `counts` are of the buckets themselves, not cumulative, one a bound and one beyond the last.
    """

    bounds: tuple[float, ...]
    counts: tuple[float, ...]
    total: float
    sum: float
    seconds: float

    @property
    def fullest(self) -> int:
        """The place of the bucket with most observations."""
        return max(range(len(self.counts)), key=self.counts.__getitem__)

    @property
    def overfull(self) -> bool:
        """Whether one bucket has so much that a place inside it means nothing."""
        return self.counts[self.fullest] > FULL_BUCKET * self.total

    def bucket(self, place: int) -> tuple[float, float]:
        """Return lower and upper bound of a bucket; latencies are not negative."""
        lower = self.bounds[place - 1] if place else min((0.0, *self.bounds[:1]))
        return lower, self.bounds[place] if place < len(self.bounds) else math.inf


class Windows:
    """The snapshots of one target's latencies."""

    def __init__(self, *, window_seconds: float = WINDOW_SECONDS) -> None:
        self._window = window_seconds
        self._rings: dict[str, deque[tuple[float, Histogram]]] = {}
        self._changed: dict[str, float] = {}  # when its bounds changed, monotonic

    def take(self, found: Translation, monotonic_seconds: float) -> None:
        """Take a scrape's histograms in and add its quantiles, or the reason for none, to it.

        Args:
            found: The scrape; its histograms are reset-corrected. Values, quantiles, aliases,
                absences and findings are added.
            monotonic_seconds: When it was read.
        """
        for signal, gauges in GAUGES.items():
            histogram = found.histograms.get(signal)
            if histogram is None:
                self._rings.pop(signal, None)  # it may begin anew when it is back
                why = found.absent.get(signal)
                found.absent.update(dict.fromkeys(gauges, why) if why else {})
                continue
            growth = self._grown(signal, histogram, monotonic_seconds)
            self._say_bounds(signal, found, monotonic_seconds)
            if growth is None:
                found.absent.update(dict.fromkeys(gauges, Absence.NO_SAMPLE))  # needs two scrapes
                continue
            self._say(signal, growth, found)

    def _grown(self, signal: str, histogram: Histogram, now: float) -> Growth | None:
        """Keep a snapshot and return the growth since the one a window before."""
        ring = self._rings.setdefault(signal, deque(maxlen=MAX_SNAPSHOTS))
        if ring and (ring[-1][1].bounds != histogram.bounds or ring[-1][1].total > histogram.total):
            ring.clear()
            self._changed[signal] = now
        ring.append((now, histogram))
        while len(ring) > 2 and now - ring[1][0] >= self._window:  # noqa: PLR2004  # keep the pair
            ring.popleft()
        return growth_of(*ring[0], *ring[-1]) if len(ring) > 1 else None

    def _say_bounds(self, signal: str, found: Translation, now: float) -> None:
        changed = self._changed.get(signal)
        if changed is None:
            return
        if now - changed >= self._window:
            del self._changed[signal]
            return
        text = (
            "the buckets changed with a restart: quantiles begin anew, and old and new histograms "
            "are not to be added; if nobody meant that, compare the start flags"
        )
        found.findings.append(Finding("bucket_bounds_changed", signal, text))

    def _say(self, signal: str, growth: Growth, found: Translation) -> None:
        for (_, share, fewest), gauge in zip(_QUANTILES, GAUGES[signal], strict=True):
            quantile = quantile_of(growth, share) if growth.total >= fewest else None
            if quantile is None:
                few = growth.total < fewest
                found.absent[gauge] = Absence.TOO_FEW if few else Absence.UNUSABLE
                continue
            found.absent.pop(gauge, None)
            found.values[gauge] = quantile.value
            found.quantiles[gauge] = quantile
            found.aliases[gauge] = f"{share:g} quantile of {signal}"
        if growth.overfull and growth.total >= _QUANTILES[0][2]:
            found.findings.append(_one_bucket(signal, growth))


def growth_of(then: float, before: Histogram, now: float, after: Histogram) -> Growth:
    """Return what a histogram grew by between two snapshots with the same bounds.

    Args:
        then: When `before` was read, s.
        before: The earlier snapshot.
        now: When `after` was read, s.
        after: The later one.

    >>> growth_of(0, Histogram((1,), (2,), 2, 1.0), 5, Histogram((1,), (3,), 7, 9.0)).counts
    (1, 4)
    """
    new = [later - earlier for later, earlier in zip(after.counts, before.counts, strict=True)]
    total = after.total - before.total
    cumulative = (0, *new, total)
    counts = tuple(right - left for left, right in pairwise(cumulative))
    return Growth(after.bounds, counts, total, after.sum - before.sum, now - then)


def quantile_of(growth: Growth, share: float) -> Quantile | None:
    """Return a quantile with its bucket.

    Inside a bucket observations are taken as evenly spread. In the last, open bucket the value is
    its lower bound. In a bucket that holds nearly everything the mean of the window takes the place
    of that guess, as far as it lies within. Without buckets the mean stands for the median, and for
    nothing else.

    Args:
        growth: What the window holds.
        share: Of the observations below the quantile, within (0, 1).

    Returns:
        The quantile, None if nothing of the kind is known.
    """
    if growth.total <= 0.0 or (not growth.bounds and share > 0.5):  # noqa: PLR2004  # the median
        return None
    rank, below, place = share * growth.total, 0.0, 0
    while place < len(growth.bounds) and below + growth.counts[place] < rank:
        below += growth.counts[place]
        place += 1
    lower, upper = growth.bucket(place)
    if growth.overfull and place == growth.fullest:
        value = min(max(growth.sum / growth.total, lower), upper)
    elif upper == math.inf:
        value = lower
    else:
        inside = lower + (upper - lower) * (rank - below) / growth.counts[place]
        value = min(inside, upper)  # rounding may step over
    if not math.isfinite(value):
        return None
    return Quantile(value, lower, upper, growth.total, growth.seconds)


def offered_quantiles(signals: Sequence[str] | frozenset[str]) -> frozenset[str]:
    """Return the quantile gauges of those of `signals` that are latencies."""
    return frozenset(gauge for signal in signals for gauge in GAUGES.get(signal, ()))


def _one_bucket(signal: str, growth: Growth) -> Finding:
    if not growth.bounds:
        text = "the page gives a sum and a count, no buckets: the median is a mean, no p99 is known"
        return Finding("no_buckets", signal, text)
    lower, upper = growth.bucket(growth.fullest)
    where = f"above {lower:g} s" if upper == math.inf else f"between {lower:g} and {upper:g} s"
    text = (
        f"over {FULL_BUCKET:.0%} of the last minute lies in one bucket, {where}: its quantiles are "
        "means, not places in it; give the engine finer buckets there if it takes them (vLLM 0.32 "
        "and later: --custom-histogram-buckets)"
    )
    return Finding("one_bucket", signal, text)
