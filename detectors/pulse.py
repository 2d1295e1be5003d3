"""Waves: a counter whose growth comes at regular intervals."""

from __future__ import annotations

from dataclasses import dataclass

MOST = 30  # growths that are kept
FEWEST = 20  # and needed, for a period to mean something
STRONG = 0.5  # autocorrelation: noise of 30 values reaches that about once in a hundred times


@dataclass(frozen=True, slots=True)
class Rhythm:
    """Waves every `seconds`, with the autocorrelation at that period."""

    seconds: float
    strength: float


@dataclass(frozen=True, slots=True)
class Pulses:
    """Growths a second between reads, oldest first, and the mean time between reads."""

    rates: tuple[float, ...] = ()
    count: float = 0.0
    seen_seconds: float | None = None
    interval_seconds: float = 0.0

    def seen(self, count: float, now: float) -> Pulses:
        """Return the memory after a read at which the counter stood at `count`."""
        passed = 0.0 if self.seen_seconds is None else now - self.seen_seconds
        if passed <= 0:
            return Pulses(self.rates, count, now, self.interval_seconds)
        rates = (*self.rates, max(count - self.count, 0.0) / passed)[-MOST:]
        old = self.interval_seconds
        return Pulses(rates, count, now, old + (passed - old) * 0.2 if old else passed)

    def rhythm(self) -> Rhythm | None:
        """Return the strongest period; None where there is none.

        A period lies between two reads and a third of what is kept, and its autocorrelation is
        larger than that of the periods beside it.
        """
        if len(self.rates) < FEWEST:
            return None
        longest = len(self.rates) // 3
        found = [self._correlation(lag) for lag in range(longest + 2)]
        peaks = [
            (found[lag], lag)
            for lag in range(2, longest + 1)
            if found[lag] >= STRONG and found[lag] > max(found[lag - 1], found[lag + 1])
        ]
        if not peaks:
            return None
        strength, lag = max(peaks, key=lambda it: (round(it[0], 2), -it[1]))
        return Rhythm(lag * self.interval_seconds, strength)

    def _correlation(self, lag: int) -> float:
        mean = sum(self.rates) / len(self.rates)
        off = [rate - mean for rate in self.rates]
        spread = sum(it * it for it in off)
        pairs = zip(off, off[lag:], strict=False)
        both = sum(a * b for a, b in pairs) / (len(off) - lag) * len(off)
        return both / spread if spread > 0 else 0.0
