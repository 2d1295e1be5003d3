"""A target that does not answer its scrapes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from detectors.records import Level, Reading, Verdict
from detectors.saved import mark_of, pack, unpack

CAUSE = "target_down"
_VERSION = 2  # of the memory's layout


class DownConfig(BaseModel):
    """Settings of the target-down detector."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["down"] = "down"
    name: str = Field(default="down", max_length=64, description="Unique in a tier.")
    failures: int = Field(default=3, ge=1, description="Failed scrapes in a row that raise.")
    startup_seconds: float = Field(
        default=600,
        ge=0,
        description="So long a target that has never been up may be starting, and only warns.",
    )
    stale_seconds: float = Field(default=60, gt=0, description="Older readings are not judged.")

    def build(self) -> Down:
        """Return the detector with these settings."""
        return Down(self)


@dataclass(frozen=True, slots=True)
class DownMemory:
    """Scrapes failed in a row; whether one ever succeeded, and how long that was waited for.

    `seen_seconds` is the monotonic time of the last reading, None where none was before it.
    """

    failed: int = 0
    ever_up: bool = False
    waited_seconds: float = 0.0
    seen_seconds: float | None = None


class Down:
    """Raises after scrapes in a row that failed; cleared by the first that succeeds.

    Input: whether the scrape succeeded, and `up` where a source passes on what another scraper
    saw. Parameters: `failures`; `startup_seconds`, for which a target that has never been up counts
    as starting: loading a model takes minutes of refused connections, and is no death.
    Verdict: warning from the first failed scrape, critical from the `failures`-th; statistic is
    the number failed in a row. The cause `target_down` alerts and never ejects: a gateway sees
    its own failed requests earlier and better than a scraper does.
    Smallest change seen: `failures` scrapes, that is 15 s at the defaults.

    >>> from datetime import UTC, datetime
    >>> down = DownConfig().build()
    >>> failed = Reading("chat", "a", "scrape", datetime(2026, 1, 1, tzinfo=UTC), 0.0, 0.01,
    ...                  problem="connection refused")
    >>> memory, levels = down.start(), []
    >>> memory, _ = down.step(memory, replace(failed, problem="", values={"up": 1.0}))
    >>> for _ in range(3):
    ...     memory, (verdict,) = down.step(memory, failed)
    ...     levels.append(str(verdict.level))
    >>> levels, verdict.reason
    (['warning', 'warning', 'critical'], '3 scrapes in a row failed: connection refused')

    *Trade-offs*: a page that answers while the engine is dead is up (see `stalled`); a target
    that answers every third scrape is never down; a broken network between Fusewire and a healthy
    target looks the same as a dead one. A wrong address, and a target that dies before Fusewire
    first sees it, look like one that starts, and are critical `startup_seconds` late.
    """

    def __init__(self, config: DownConfig) -> None:
        self.config = config
        self.name = config.name
        self.signals = frozenset({"up"})
        self._mark = mark_of(config, version=_VERSION)

    def start(self) -> DownMemory:
        return DownMemory()

    def step(self, memory: DownMemory, reading: Reading) -> tuple[DownMemory, tuple[Verdict, ...]]:
        failed = not reading.up or reading.values.get("up") == 0
        memory = _waited(memory, reading)
        obstacle = ""
        if not failed and reading.age_seconds > self.config.stale_seconds:
            obstacle = reading.obstacle((), stale_seconds=self.config.stale_seconds)
        elif not failed and not reading.values and not reading.histograms:
            obstacle = reading.absence("up")
        if obstacle:
            unknown = reading.verdict(self.name, "up", Level.UNKNOWN, reason=obstacle, cause=CAUSE)
            return memory, (unknown,)
        if failed:
            memory = replace(memory, failed=memory.failed + 1)
        else:
            memory = replace(memory, failed=0, ever_up=True)
        return memory, (self._judged(memory, reading),)

    def _judged(self, memory: DownMemory, reading: Reading) -> Verdict:
        level = Level.OK
        reason = "the last scrape succeeded"
        starting = not memory.ever_up and memory.waited_seconds < self.config.startup_seconds
        enough = memory.failed >= self.config.failures and not starting
        if memory.failed:
            level = Level.CRITICAL if enough else Level.WARNING
            scrapes = "1 scrape" if memory.failed == 1 else f"{memory.failed} scrapes in a row"
            reason = f"{scrapes} failed: {reading.problem or 'up is 0'}"
        if memory.failed and starting:
            waited, most = memory.waited_seconds, self.config.startup_seconds
            reason = f"not up yet: starting? {waited:.0f} s of at most {most:g} s; {reason}"
        return reading.verdict(
            self.name,
            "up",
            level,
            reason=reason,
            statistic=float(memory.failed),
            threshold=float(self.config.failures),
            cause=CAUSE,
            details={"breached": float(memory.failed > 0 and not starting)},
        )

    def save(self, memory: DownMemory) -> bytes:
        return pack(memory, mark=self._mark)

    def load(self, data: bytes) -> DownMemory:
        # The monotonic clock of another process means nothing to this one.
        return replace(unpack(data, DownMemory, mark=self._mark), seen_seconds=None)


def _waited(memory: DownMemory, reading: Reading) -> DownMemory:
    """Return the memory with the time since the reading before it added."""
    now, seen = reading.monotonic_seconds, memory.seen_seconds
    waited = memory.waited_seconds
    if seen is not None and not memory.ever_up:
        waited += max(0.0, now - seen)
    return replace(memory, waited_seconds=waited, seen_seconds=now)
