"""When something that fills up will be full: a straight line through its floor, with an interval.

The floor is the smallest value of the last minute: bursts do not lift it, a leak does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from detectors.records import FloatArray

UNSEEN = -1.0  # a span in which nobody watched
SPAN_SECONDS = 15.0
SPANS_OF_A_FLOOR = 4  # with the open one, 45 to 60 s
FEWEST = 8  # floors: with fewer, an engine that is loading looks like a leak
NEWEST = 5  # floors that must rise by a quarter of the line at least
NINETY = 1.645  # standard deviations of a two-sided interval


@dataclass(frozen=True, slots=True)
class Floors:
    """The smallest value of each span of 15 s, oldest first; `first` numbers the oldest."""

    first: int = 0
    lows: tuple[float, ...] = ()

    def seen(self, value: float, now: float, *, spans: int) -> Floors:
        """Return the memory with one more value.

        Args:
            value: A share, at least 0.
            now: Its monotonic time in seconds.
            spans: How many spans are kept.
        """
        number = int(now // SPAN_SECONDS)
        newest = self.first + len(self.lows) - 1
        gap = number - newest
        if not self.lows or gap < 0 or gap >= spans:
            return Floors(number, (value,))
        if gap == 0:
            return Floors(self.first, (*self.lows[:-1], min(self.lows[-1], value)))
        lows = (*self.lows, *(UNSEEN,) * (gap - 1), value)[-spans:]
        return Floors(number - len(lows) + 1, lows)

    @property
    def floor(self) -> float:
        """The smallest value of the last minute, or so much of it as was watched."""
        return min(low for low in self.lows[-SPANS_OF_A_FLOOR:] if low != UNSEEN)

    @property
    def watched_seconds(self) -> float:
        """The time over which floors are known."""
        return SPAN_SECONDS * sum(low != UNSEEN for low in self.lows)


@dataclass(frozen=True, slots=True)
class Forecast:
    """Shares a second, and the seconds until the whole is used: likely, earliest and latest.

    Infinite where the line does not rise. The interval has 90 % under the model of a straight line
    with noise.
    """

    slope: float
    seconds: float
    earliest_seconds: float
    latest_seconds: float

    def words(self) -> str:
        """Say when, with the interval."""
        if math.isinf(self.seconds):
            return "its floor does not rise"
        last = "never" if math.isinf(self.latest_seconds) else f"{self.latest_seconds / 60:.1f}"
        return (
            f"full in {self.seconds / 60:.1f} min at {60 * self.slope:.2g} a minute "
            f"(90 % interval {self.earliest_seconds / 60:.1f} to {last})"
        )


def forecast(floors: Floors) -> Forecast | None:
    """Draw a line through one floor a minute; None with too few of them.

    The slope is the median of the slopes between any two floors (Theil and Sen): a load that went
    up in a step some minutes ago, and stands there, is no rise. Its interval is that of Kendall's
    rank statistic; floors of different minutes share no scrape.

    References:
        P. K. Sen, "Estimates of the regression coefficient based on Kendall's tau", 1968;
        `docs/statistics.md` has the measured rate of false alarms.
    """
    width = SPANS_OF_A_FLOOR
    lows = np.array(floors.lows[len(floors.lows) % width :])  # the newest minute is whole
    lows[lows == UNSEEN] = np.inf
    y = lows.reshape(-1, width).min(axis=1)
    x = width * SPAN_SECONDS * np.arange(1 - len(y), 1)  # the newest floor is at 0
    x, y = x[np.isfinite(y)], y[np.isfinite(y)]
    if len(y) < FEWEST:
        return None
    slopes, newest = _slopes(x, y), float(np.median(_slopes(x[-NEWEST:], y[-NEWEST:])))
    count, slope = len(y), float(np.median(slopes))
    if newest < slope / 4:  # it rose, and has stopped to: a step in the middle looks like a line
        return Forecast(newest, math.inf, _until(1.0 - float(y[-1]), float(slopes[-1])), math.inf)
    wide = NINETY * math.sqrt(count * (count - 1) * (2 * count + 5) / 18)
    low = max(round((len(slopes) - wide) / 2) - 1, 0)
    high = min(round((len(slopes) + wide) / 2), len(slopes) - 1)
    left = max(1.0 - float(np.median(y - slope * x)), 0.0)
    return Forecast(
        slope,
        _until(left, slope),
        _until(left, float(slopes[high])),
        _until(left, float(slopes[low])),
    )


def _slopes(x: FloatArray, y: FloatArray) -> FloatArray:
    """Return the slopes between any two points, ascending."""
    first, second = np.triu_indices(len(y), 1)
    found: FloatArray = np.sort((y[second] - y[first]) / (x[second] - x[first]))
    return found


def _until(left: float, slope: float) -> float:
    return left / slope if slope > 0 else math.inf
