"""The newest verdict of every stream and detector, for the page and the API."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TypeAlias

from detectors.records import Level, Reading, Stream, Verdict

MAX_VERDICTS = 20_000

Identity: TypeAlias = tuple[str, Stream]


class NewestVerdicts:
    """An action that remembers the newest verdict of each (detector, stream), bounded.

    When it is full the one that was given longest ago makes room; `dropped` counts those.
    """

    name = "newest"

    def __init__(self, *, now: Callable[[], datetime], most: int = MAX_VERDICTS) -> None:
        self.dropped = 0
        self._now = now
        self._most = most
        self._newest: dict[Identity, Verdict] = {}  # in the order of when they were given

    async def take(
        self,
        verdicts: Sequence[Verdict],
        reading: Reading | None,  # noqa: ARG002  # every action is given it
    ) -> None:
        for verdict in verdicts:
            identity = (verdict.detector, verdict.stream)
            self._newest.pop(identity, None)
            if len(self._newest) >= self._most:
                del self._newest[next(iter(self._newest))]
                self.dropped += 1
            self._newest[identity] = verdict

    def listed(
        self, *, tier: str = "", at_least: Level = Level.UNKNOWN, limit: int = 1000
    ) -> list[Verdict]:
        """Return the newest verdicts, worst first, then newest first; ages are as of now."""
        now = self._now()
        wanted = [
            verdict
            for verdict in self._newest.values()
            if (not tier or verdict.stream.tier == tier)
            and (at_least is Level.UNKNOWN or verdict.level.number >= at_least.number)
        ]
        wanted.sort(key=lambda verdict: (-verdict.level.number, -verdict.at.timestamp()))
        return [
            replace(verdict, age_seconds=verdict.age_seconds + _since(verdict.at, now))
            for verdict in wanted[:limit]
        ]

    def forget(self, gone: Callable[[Stream], bool]) -> None:
        """Drop the verdicts about every stream that `gone` says is no more."""
        for identity in [known for known in self._newest if gone(known[1])]:
            del self._newest[identity]

    def forget_detector(self, tier: str, detector: str) -> None:
        """Drop what a detector said that is no longer configured, or means another thing."""
        for identity in [
            known for known in self._newest if known[0] == detector and known[1].tier == tier
        ]:
            del self._newest[identity]


def _since(at: datetime, now: datetime) -> float:
    return max((now - at).total_seconds(), 0.0)
