"""A straight line through what was seen lately: bytes for each stream, bytes for each token."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Line:
    """Weighted means and central moments of x and y; older points weigh less.

    `weight` is the sum of the weights; `points` counts all points so far.
    """

    weight: float = 0.0
    points: int = 0
    x: float = 0.0
    y: float = 0.0
    xx: float = 0.0
    xy: float = 0.0
    yy: float = 0.0
    seen_seconds: float = 0.0

    def seen(self, x: float, y: float, now: float, *, memory_seconds: float) -> Line:
        """Return the memory with one more point.

        Args:
            x: Any finite number.
            y: Any finite number.
            now: Its monotonic time in seconds.
            memory_seconds: A point of that age weighs 1/e.
        """
        passed = max(now - self.seen_seconds, 0.0) if self.points else 0.0
        keep = math.exp(-passed / memory_seconds)
        weight = self.weight * keep + 1.0
        dx, dy = x - self.x, y - self.y
        mean_x, mean_y = self.x + dx / weight, self.y + dy / weight
        return Line(
            weight=weight,
            points=self.points + 1,
            x=mean_x,
            y=mean_y,
            xx=self.xx * keep + dx * (x - mean_x),
            xy=self.xy * keep + dx * (y - mean_y),
            yy=self.yy * keep + dy * (y - mean_y),
            seen_seconds=now,
        )

    @property
    def spread(self) -> float:
        """Standard deviation of x."""
        return math.sqrt(max(self.xx, 0.0) / self.weight) if self.weight > 0 else 0.0

    @property
    def correlation(self) -> float:
        """Pearson's, 0 where x or y stands still."""
        product = self.xx * self.yy
        return self.xy / math.sqrt(product) if product > 0 else 0.0

    @property
    def slope(self) -> float:
        """Least squares, 0 where x stands still."""
        return self.xy / self.xx if self.xx > 0 else 0.0

    def where(self, y: float) -> float | None:
        """Return the x at which the line reaches `y`; None where it does not rise."""
        return self.x + (y - self.y) / self.slope if self.slope > 0 else None
