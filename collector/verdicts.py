"""The newest verdict of every stream and detector, for the page, the API and the gauges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from detectors.records import Level, Reading, Scope, Stream, Verdict

MAX_VERDICTS = 20_000

Identity: TypeAlias = tuple[str, Stream]


class NewestVerdicts:
    """An action that remembers the newest verdict of each (detector, stream), bounded."""

    name = "newest"

    def __init__(self) -> None:
        self.refused = 0
        self._newest: dict[Identity, Verdict] = {}

    async def take(
        self,
        verdicts: Sequence[Verdict],
        reading: Reading | None,  # noqa: ARG002  # every action is given it
    ) -> None:
        for verdict in verdicts:
            identity = (verdict.detector, verdict.stream)
            if identity not in self._newest and len(self._newest) >= MAX_VERDICTS:
                self.refused += 1
                continue
            self._newest[identity] = verdict

    def listed(
        self, *, tier: str = "", at_least: Level = Level.UNKNOWN, limit: int = 1000
    ) -> list[Verdict]:
        """Return the newest verdicts, worst first, then newest first."""
        wanted = [
            verdict
            for verdict in self._newest.values()
            if (not tier or verdict.stream.tier == tier)
            and (at_least is Level.UNKNOWN or verdict.level.number >= at_least.number)
        ]
        wanted.sort(key=lambda verdict: (-verdict.level.number, -verdict.at.timestamp()))
        return wanted[:limit]

    def forget_lane(self, tier: str, scope: Scope, variant: str) -> None:
        """Drop the verdicts about request signals of a lane that is gone."""
        gone = [
            identity
            for identity in self._newest
            if (identity[1].tier, identity[1].scope, identity[1].variant) == (tier, scope, variant)
        ]
        for identity in gone:
            del self._newest[identity]

    def forget_target(self, tier: str, target: str) -> None:
        """Drop the verdicts of a target that is no longer configured."""
        gone = [
            identity
            for identity in self._newest
            if identity[1].tier == tier
            and identity[1].scope.kind == "target"
            and identity[1].scope.name == target
        ]
        for identity in gone:
            del self._newest[identity]
