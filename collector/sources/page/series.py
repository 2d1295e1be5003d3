"""What a source remembers between scrapes: counters that never fall, histograms that add.

A counter's value is the page's value at first sight and grows from there by what each of its
series grew. A series that falls was reset: its new value counts from 0. Series that leave the page
are forgotten after a while without the value falling.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from detectors.records import Histogram

MAX_SERIES: Final = 10_000
FORGET_AFTER_SCRAPES: Final = 720  # an hour at 5 s
MAX_PARTS: Final = 32
OTHER_PART: Final = "other"
COUNT_CEILING: Final = 2.0**53  # from here on a double does not count by one, and nobody counted so
_START_TOLERANCE_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Point:
    """One series of a counter on a page; `part` is the value of the signal's label."""

    key: str
    value: float
    part: str = ""


@dataclass(frozen=True, slots=True)
class RawHistogram:
    """One series of a histogram on a page: finite `bounds` ascending, cumulative `counts`.

    `dip` is the most by which the page's counts fell from one bound to the next.
    """

    key: str
    bounds: tuple[float, ...]
    counts: tuple[float, ...]
    total: float
    sum: float
    dip: float = field(default=0.0, compare=False)


@dataclass(slots=True)
class _Counter:
    alias: str
    parts: dict[str, float] = field(default_factory=dict)
    last: dict[str, tuple[float, int]] = field(default_factory=dict)


@dataclass(slots=True)
class _Merged:
    alias: str
    bounds: tuple[float, ...] | None = None
    counts: list[float] = field(default_factory=list)
    total: float = 0.0
    sum: float = 0.0
    observed: float = 0.0  # as total, but it outlives a change of bounds
    last: dict[str, tuple[RawHistogram, int]] = field(default_factory=dict)


def is_count(value: float) -> bool:
    """Whether a page's number can be a count: one that cannot would stay in every sum after it."""
    return 0.0 <= value < COUNT_CEILING  # false for NaN


class Ledger:
    """The memory of one target's counters and histograms."""

    def __init__(
        self, *, limit: int = MAX_SERIES, forget_after: int = FORGET_AFTER_SCRAPES
    ) -> None:
        self.restarted = False  # in the present scrape
        self.resets = 0  # scrapes that showed a restart
        self.refused = 0  # series sightings beyond the limit
        self._limit = limit
        self._forget_after = forget_after
        self._scrape = 0
        self._tracked = 0
        self._started: float | None = None
        self._moved = False
        self._counters: dict[str, _Counter] = {}
        self._histograms: dict[str, _Merged] = {}
        self._highest: dict[str, float] = {}
        self._points: dict[str, tuple[float, float]] = {}

    @property
    def tracked(self) -> int:
        """Number of series remembered."""
        return self._tracked

    def begin(self, process_start: float | None) -> None:
        """Open a scrape.

        Args:
            process_start: The page's `process_start_time_seconds`, unix time, if it has one. When
                it moves, every counter begins anew, also those that are higher by now.
        """
        before = self._started
        self._moved = (
            process_start is not None
            and before is not None
            and abs(process_start - before) > _START_TOLERANCE_SECONDS
        )
        self._started = before if process_start is None else process_start
        self.restarted = False
        self._scrape += 1
        if self._moved:
            self._note_restart()
        if self._scrape % max(1, self._forget_after // 8) == 0:
            self._forget()

    def counter(self, signal: str, alias: str, points: Iterable[Point]) -> dict[str, float]:
        """Take a counter's series in and return its monotone value by part.

        Args:
            signal: The canonical signal.
            alias: The family that feeds it. Another one than before, without a restart, only
                sets where to count from: what it counted so far is counted already.
            points: Its series with usable values, at most one of a key.
        """
        state = self._counters.setdefault(signal, _Counter(alias))
        seed = state.alias != alias and not self._moved
        state.alias = alias
        for point in points:
            grown = self._grown(state, point)
            if grown is None:
                continue
            part = point.part
            if part not in state.parts and len(state.parts) >= MAX_PARTS:
                part = OTHER_PART
            state.parts[part] = state.parts.get(part, 0.0) + (0.0 if seed else grown)
        return dict(state.parts)

    def histogram(
        self, signal: str, alias: str, series: Sequence[RawHistogram], *, whole: bool
    ) -> Histogram | None:
        """Take a histogram's series in and return their sum since first sight.

        Series with different bounds are added over the bounds that they share. When these change
        the histogram begins anew, as at a restart.

        Args:
            signal: The canonical signal.
            alias: The family that feeds it, as for `counter`.
            series: Complete series, one or more.
            whole: Whether the family lost no line; if it did, other bounds are no evidence.

        Returns:
            The merged histogram, or None if a damaged page does not allow one.
        """
        state = self._histograms.setdefault(signal, _Merged(alias))
        bounds = _common_bounds(series)
        if bounds != state.bounds and not whole:
            return None
        if state.bounds is not None and bounds != state.bounds:
            self._note_restart()
            self._tracked -= len(state.last)
            state.last.clear()
            state.counts, state.total, state.sum = [], 0.0, 0.0
        if not state.counts:
            state.bounds, state.counts = bounds, [0.0] * len(bounds)
        seed = state.alias != alias and not self._moved
        state.alias = alias
        for raw in series:
            self._add(state, _on(raw, bounds), seed=seed)
        return Histogram(bounds, tuple(state.counts), state.total, state.sum)

    def anew(self, signal: str) -> Histogram | None:
        """Let a histogram begin anew with what the present page says of it, and return that.

        For one whose sum an engine spoilt that has restarted since; `observed` keeps its count.
        """
        state = self._histograms.get(signal)
        present = (
            [raw for raw, seen in state.last.values() if seen == self._scrape] if state else []
        )
        if state is None or not present:
            return None
        state.counts = [math.fsum(it) for it in zip(*(raw.counts for raw in present), strict=True)]
        state.total = math.fsum(raw.total for raw in present)
        state.sum = math.fsum(raw.sum for raw in present)
        return Histogram(present[0].bounds, tuple(state.counts), state.total, state.sum)

    def observed(self, signal: str) -> float:
        """Return a histogram's observations since first sight, also over changes of bounds."""
        state = self._histograms.get(signal)
        return state.observed if state else 0.0

    def highest(self, signal: str, value: float) -> float:
        """Return the largest value of an estimate so far, at least 0."""
        best = max(0.0, value, self._highest.get(signal, 0.0))
        self._highest[signal] = best
        return best

    def rate(self, signal: str, total: float, monotonic_seconds: float) -> float | None:
        """Return the growth per second since the scrape before; None at the first."""
        before = self._points.get(signal)
        self._points[signal] = (monotonic_seconds, total)
        if before is None or monotonic_seconds <= before[0]:
            return None
        return (total - before[1]) / (monotonic_seconds - before[0])

    def _grown(self, state: _Counter, point: Point) -> float | None:
        """Return by how much a series grew; None if it is one too many."""
        last = state.last.get(point.key)
        if last is None and not self._admit():
            return None
        state.last[point.key] = (point.value, self._scrape)
        if last is None or self._moved:
            return point.value
        if point.value < last[0]:
            self._note_restart()
            return point.value
        return point.value - last[0]

    def _add(self, state: _Merged, raw: RawHistogram, *, seed: bool) -> None:
        known = state.last.get(raw.key)
        if known is None and not self._admit():
            return
        state.last[raw.key] = (raw, self._scrape)
        if seed:
            return
        last = known[0] if known is not None and not self._moved else None
        if last is not None and _fell(raw, last):
            self._note_restart()
            last = None
        if last is None:
            last = RawHistogram(raw.key, raw.bounds, (0.0,) * len(raw.bounds), 0.0, 0.0)
        if raw.total != last.total:
            pairs = zip(state.counts, raw.counts, last.counts, strict=True)
            state.counts = [count + new - old for count, new, old in pairs]
        state.total += raw.total - last.total
        state.observed += raw.total - last.total
        state.sum += raw.sum - last.sum

    def _admit(self) -> bool:
        if self._tracked >= self._limit:
            self.refused += 1
            return False
        self._tracked += 1
        return True

    def _note_restart(self) -> None:
        if not self.restarted:
            self.restarted = True
            self.resets += 1

    def _forget(self) -> None:
        """Drop series that have been away for long; what they counted stays counted."""
        oldest = self._scrape - self._forget_after
        for counter in self._counters.values():
            gone = [key for key, (_, seen) in counter.last.items() if seen < oldest]
            for key in gone:
                del counter.last[key]
            self._tracked -= len(gone)
        for merged in self._histograms.values():
            gone = [key for key, (_, seen) in merged.last.items() if seen < oldest]
            for key in gone:
                del merged.last[key]
            self._tracked -= len(gone)


def _common_bounds(series: Sequence[RawHistogram]) -> tuple[float, ...]:
    first = series[0].bounds
    if all(raw.bounds == first for raw in series):
        return first
    common = set(first).intersection(*(raw.bounds for raw in series))
    return tuple(sorted(common))


def _on(raw: RawHistogram, bounds: tuple[float, ...]) -> RawHistogram:
    """Return a series on some of its bounds: cumulative counts stay exact."""
    if raw.bounds == bounds:
        return raw
    counts = tuple(raw.counts[bisect_left(raw.bounds, bound)] for bound in bounds)
    return RawHistogram(raw.key, bounds, counts, raw.total, raw.sum)


def _fell(raw: RawHistogram, last: RawHistogram) -> bool:
    if raw.total < last.total:
        return True
    return any(new < old for new, old in zip(raw.counts, last.counts, strict=True))
