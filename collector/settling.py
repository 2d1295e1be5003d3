"""Spares the garbage collector what stays: it would look at a whole fleet again and again.

A thousand targets are half a million objects that live as long as they are configured. Python's
collector visits all of them whenever a quarter as many are new, and holds the event loop for as
long: 0.8 s every 8 s in a profiled run. What is there some time after a start or a
reload is looked at once and then left alone. Reference counting frees it when it goes; rings among
it are found at the next settling.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Final

AFTER_SECONDS: Final = 15.0  # a few scrapes: every source has made what it keeps
AGAIN_SECONDS: Final = 600.0  # at most so often, however often targets come and go


class Settling:
    """Decides when what is there counts as staying."""

    def __init__(self, *, monotonic: Callable[[], float]) -> None:
        self.times = 0
        self._monotonic = monotonic
        self._changed_at: float | None = None
        self._settled_at = -AGAIN_SECONDS

    def changed(self) -> None:
        """Much has come or gone: the service started, or its targets are others."""
        if self._changed_at is None:  # else it would never settle where something always changes
            self._changed_at = self._monotonic()

    def look(self) -> None:
        """Settle, if it is time."""
        now = self._monotonic()
        if self._changed_at is None or now - self._changed_at < AFTER_SECONDS:
            return
        if now - self._settled_at < AGAIN_SECONDS:
            return
        self._changed_at, self._settled_at = None, now
        self.times += 1
        gc.unfreeze()
        gc.collect()
        gc.freeze()
