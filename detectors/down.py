"""A target that does not answer its scrapes."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from detectors.records import Level, Reading, Verdict
from detectors.saved import mark_of, pack, unpack

CAUSE = "target_down"
_VERSION = 1  # of the memory's layout


class DownConfig(BaseModel):
    """Settings of the target-down detector."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["down"] = "down"
    name: str = Field(default="down", max_length=64, description="Unique in a tier.")
    failures: int = Field(default=3, ge=1, description="Failed scrapes in a row that raise.")
    stale_seconds: float = Field(default=60, gt=0, description="Older readings are not judged.")

    def build(self) -> Down:
        """Return the detector with these settings."""
        return Down(self)


class Down:
    """Raises after scrapes in a row that failed; cleared by the first that succeeds.

    Input: whether the scrape succeeded, and `up` where a source passes on what another scraper
    saw. Parameter: `failures`.
    Verdict: warning from the first failed scrape, critical from the `failures`-th; statistic is
    the number failed in a row. The cause `target_down` alerts and never ejects: a gateway sees
    its own failed requests earlier and better than a scraper does.
    Smallest change seen: `failures` scrapes, that is 15 s at the defaults.

    >>> from datetime import UTC, datetime
    >>> down = DownConfig().build()
    >>> failed = Reading("chat", "a", "scrape", datetime(2026, 1, 1, tzinfo=UTC), 0.0, 0.01,
    ...                  problem="connection refused")
    >>> memory, levels = down.start(), []
    >>> for _ in range(3):
    ...     memory, (verdict,) = down.step(memory, failed)
    ...     levels.append(str(verdict.level))
    >>> levels, verdict.reason
    (['warning', 'warning', 'critical'], '3 scrapes in a row failed: connection refused')

    *Trade-offs*: a page that answers while the engine is dead is up (see `stalled`); a target
    that answers every third scrape is never down; a broken network between Fusewire and a healthy
    target looks the same as a dead one.
    """

    def __init__(self, config: DownConfig) -> None:
        self.config = config
        self.name = config.name
        self.signals = frozenset({"up"})
        self._mark = mark_of(config, version=_VERSION)

    def start(self) -> int:
        """Return the memory: failed scrapes in a row."""
        return 0

    def step(self, memory: int, reading: Reading) -> tuple[int, tuple[Verdict, ...]]:
        failed = not reading.up or reading.values.get("up") == 0
        obstacle = ""
        if not failed and reading.age_seconds > self.config.stale_seconds:
            obstacle = reading.obstacle((), stale_seconds=self.config.stale_seconds)
        elif not failed and not reading.values and not reading.histograms:
            obstacle = reading.absence("up")
        if obstacle:
            unknown = reading.verdict(self.name, "up", Level.UNKNOWN, reason=obstacle, cause=CAUSE)
            return memory, (unknown,)
        memory = memory + 1 if failed else 0
        level = Level.OK
        reason = "the last scrape succeeded"
        if failed:
            level = Level.CRITICAL if memory >= self.config.failures else Level.WARNING
            scrapes = "1 scrape" if memory == 1 else f"{memory} scrapes in a row"
            reason = f"{scrapes} failed: {reading.problem or 'up is 0'}"
        verdict = reading.verdict(
            self.name,
            "up",
            level,
            reason=reason,
            statistic=float(memory),
            threshold=float(self.config.failures),
            cause=CAUSE,
            details={"breached": float(failed)},
        )
        return memory, (verdict,)

    def save(self, memory: int) -> bytes:
        return pack(memory, mark=self._mark)

    def load(self, data: bytes) -> int:
        return unpack(data, int, mark=self._mark)
