"""What is usual for a target: the median of its means over short spans, lately."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True, slots=True)
class Usual:
    """Means of the last closed spans, oldest first, and the span that is open.

    Who judges leaves out what breaches, so that trouble does not become what is usual.
    """

    means: tuple[float, ...] = ()
    begun_seconds: float | None = None
    total: float = 0.0
    count: int = 0

    def seen(self, value: float, now: float, *, span_seconds: float, spans: int) -> Usual:
        """Return the memory with one more value.

        Args:
            value: Any finite number.
            now: Its monotonic time in seconds.
            span_seconds: Length of a span; a span without a value is not made up.
            spans: How many closed ones are kept.
        """
        if self.begun_seconds is None or self.count == 0:
            return Usual(self.means, now, value, 1)
        if now - self.begun_seconds < span_seconds:
            return Usual(self.means, self.begun_seconds, self.total + value, self.count + 1)
        means = (*self.means, self.total / self.count)[-spans:]
        return Usual(means, now, value, 1)

    def level(self, *, fewest: int) -> float | None:
        """Return the median of the closed spans; None with under `fewest` of them."""
        return median(self.means) if len(self.means) >= max(fewest, 1) else None
