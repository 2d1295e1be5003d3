"""Compares what an engine's log says of its KV cache with what its metrics page says.

Some releases serve a gauge that stays at 0, or none at all, while the log has the number.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from collector.sources.logs.scan import Hits
from detectors.records import Reading
from detectors.remarks import Finding

SIGNAL: Final = "kv_cache_usage_ratio"
_FAR: Final = 0.25
_FRESH_SECONDS: Final = 30.0
_IN_A_ROW: Final = 3  # the line is up to 10 s older than the page: one difference is no proof


class CrossCheck:
    """The newest word of both, and how often in a row they were far apart."""

    def __init__(self) -> None:
        self._page: tuple[float, float | None] | None = None
        self._apart = 0
        self._compared = -1.0
        self._log = 0.0

    def notice(self, reading: Reading) -> None:
        """Hear what the metrics page says."""
        if reading.up:
            self._page = (reading.monotonic_seconds, reading.values.get(SIGNAL))

    def take(self, hits: Hits, now: float) -> None:
        """Compare the newest lines of the log with the page, if both are fresh."""
        stale = self._page is None or now - self._page[0] > _FRESH_SECONDS
        if not hits.statistics or self._page is None or stale or now == self._compared:
            return
        self._compared = now
        self._log = max(it.kv_cache_usage_ratio for it in hits.statistics.values())
        page = self._page[1]
        apart = self._log >= _FAR if page is None else abs(self._log - page) >= _FAR
        self._apart = min(self._apart + 1, _IN_A_ROW) if apart else 0

    def findings(self, now: float) -> Iterator[Finding]:
        """Say so if they are apart for long enough to be no matter of timing."""
        if self._apart < _IN_A_ROW or self._page is None or now - self._page[0] > _FRESH_SECONDS:
            return
        page = "nothing" if self._page[1] is None else f"{self._page[1]:.2f}"
        text = (
            f"the log says {self._log:.2f} of the KV cache is in use, the metrics page says {page};"
            " trust the log, and look for a release of the engine that mends its gauge"
        )
        yield Finding("log_disagrees_with_page", SIGNAL, text)
