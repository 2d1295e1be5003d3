"""Which verdicts are worth a row: each change of level, and one a minute between the changes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from collector.store.verdicts import KeptVerdict
from detectors.records import Level, Stream, Verdict

Place: TypeAlias = tuple[str, Stream]
MOST_PLACES: Final = 100_000


@dataclass(frozen=True, slots=True)
class _Seen:
    level: Level
    at: datetime  # of the row kept last


class Thinning:
    """Remembers the level and the last row of each (detector, stream), bounded.

    When there are too many places the one seen first is forgotten (`forgotten` counts them): its
    next verdict is then kept as a change.
    """

    def __init__(self, *, every_seconds: float = 60.0) -> None:
        self.forgotten = 0
        self._every = timedelta(seconds=every_seconds)
        self._seen: dict[Place, _Seen] = {}

    def start_from(self, kept: Iterable[KeptVerdict]) -> None:
        """Take over what the history knows, so that a restart is not a change of everything."""
        for row in kept:
            self._remember(row.verdict)

    def choose(self, verdicts: Iterable[Verdict]) -> list[KeptVerdict]:
        """Return what deserves a row."""
        chosen = []
        for verdict in verdicts:
            before = self._seen.get((verdict.detector, verdict.stream))
            changed = before is None or before.level is not verdict.level
            if changed or (before is not None and verdict.at - before.at >= self._every):
                chosen.append(KeptVerdict(verdict, changed))
                self._remember(verdict)
        return chosen

    def take_back(self, kept: Iterable[KeptVerdict]) -> None:
        """Forget rows that could not be written: the next verdict of each is chosen again."""
        for row in kept:
            self._seen.pop((row.verdict.detector, row.verdict.stream), None)

    def _remember(self, verdict: Verdict) -> None:
        place = (verdict.detector, verdict.stream)
        if place not in self._seen and len(self._seen) >= MOST_PLACES:
            del self._seen[next(iter(self._seen))]
            self.forgotten += 1
        self._seen[place] = _Seen(verdict.level, verdict.at)
