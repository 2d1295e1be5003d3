"""Remembers that the kernel killed something for memory lately."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from collector.sources.looking import Moment
from detectors.remarks import Finding

RECENT_SECONDS: Final = 3600.0
_JUST_NOW_SECONDS: Final = 60.0  # a container's restart is on the page a read or two later


class RecentKills:
    """Watches a count of kills: growth is news for an hour, what was there before is none."""

    def __init__(self, signal: str) -> None:
        self._signal = signal
        self._count: float | None = None
        self._killed_at: float | None = None

    def take(self, count: float | None, moment: Moment) -> None:
        """Take the count of one read; None leaves what is known."""
        if count is None:
            return
        if self._count is not None and count > self._count:
            self._killed_at = moment.monotonic_seconds
        self._count = count

    def just_now(self, moment: Moment) -> bool:
        """Whether a kill explains what is seen at this moment."""
        return self._ago(moment) <= _JUST_NOW_SECONDS

    def findings(self, moment: Moment) -> Iterator[Finding]:
        """Say that there was a kill in the last hour."""
        ago = self._ago(moment)
        if ago <= RECENT_SECONDS:
            text = (
                f"the kernel killed a process of it for memory {ago / 60:.0f} min ago (exit code "
                "137 if it was a container's first); raise the limit, or give it less at a time"
            )
            yield Finding("oom_killed", self._signal, text)

    def _ago(self, moment: Moment) -> float:
        if self._killed_at is None:
            return float("inf")
        return moment.monotonic_seconds - self._killed_at
