"""The growth of counters over a window, from a handful of snapshots."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

MOST = 12  # snapshots of a window: its ends are right to a twelfth


@dataclass(frozen=True, slots=True)
class Recent:
    """Snapshots, oldest first: the monotonic time in seconds, then the counters' values."""

    rows: tuple[tuple[float, ...], ...] = ()

    def seen(self, row: tuple[float, ...], *, window_seconds: float) -> Recent:
        """Return the memory with one more snapshot, those before the window dropped.

        Snapshots closer together than a twelfth of the window replace each other, so the memory
        is bounded at any interval of scrapes. After a gap of two windows, or with other counters
        than before, it begins anew.
        """
        rows, now = self.rows, row[0]
        if rows and (len(rows[-1]) != len(row) or now - rows[-1][0] > 2 * window_seconds):
            rows = ()
        if len(rows) > 1 and rows[-1][0] - rows[-2][0] < window_seconds / MOST:
            rows = rows[:-1]
        rows = (*rows, row)
        while len(rows) > 2 and now - rows[1][0] >= window_seconds:  # noqa: PLR2004  # keep a pair
            rows = rows[1:]
        return Recent(rows)

    def grown(self) -> tuple[float, ...] | None:
        """Return the growth of each column, time first; None without two moments."""
        if len(self.rows) < 2 or self.rows[-1][0] <= self.rows[0][0]:  # noqa: PLR2004  # a pair
            return None
        return tuple(new - old for old, new in zip(self.rows[0], self.rows[-1], strict=True))

    def mean(self, column: int) -> float:
        """Return the time-weighted mean of a gauge's column; the newest value of a single row."""
        span = self.rows[-1][0] - self.rows[0][0]
        if span <= 0:
            return self.rows[-1][column]
        area = sum((b[0] - a[0]) * (a[column] + b[column]) / 2 for a, b in pairwise(self.rows))
        return area / span

    def least(self, column: int) -> float:
        """Return the smallest value of a column."""
        return min(row[column] for row in self.rows)
