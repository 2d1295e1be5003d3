"""A controller on a clock that tests move, over a journal in memory."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, cast

from alerts.breaker.book import TierSetup
from alerts.breaker.controller import Controller
from alerts.breaker.parameters import BreakerParameters
from alerts.breaker.payload import Route
from alerts.breaker.records import Breaker, Entry, Forced, Key, Mode, State
from detectors.records import Level, Scope, Stream, Verdict
from tests.alerts.memory_journal import Disk, MemoryJournal

START = datetime(2026, 11, 29, 15, 0, tzinfo=UTC)
QUICK = BreakerParameters(warmup_seconds=0, jitter=0.05)


@dataclass
class Clock:
    """Two clocks that stand still until told: called, it is the wall's."""

    at: datetime = START
    seconds: float = 1000.0

    def __call__(self) -> datetime:
        return self.at

    def monotonic(self) -> float:
        return self.seconds

    def forward(self, seconds: float) -> None:
        """Let time pass."""
        self.at += timedelta(seconds=seconds)
        self.seconds += seconds

    def set(self, seconds: float) -> None:
        """Set the wall clock by so much; no time passes (or the machine was suspended)."""
        self.at += timedelta(seconds=seconds)


def a_verdict(
    cause: str, level: Level = Level.CRITICAL, *, target: str = "a", tier: str = "chat"
) -> Verdict:
    """Return a verdict about a target, or with an empty target about the tier."""
    scope = Scope("target", target) if target else Scope()
    stream = Stream(tier, scope, "kv_cache_usage_ratio")
    return Verdict(
        "limit",
        stream,
        level,
        START,
        reason="0.98, trip at 0.95",
        statistic=0.98,
        threshold=0.95,
        evidence=3,
        cause=cause,
    )


def targets(count: int) -> Mapping[str, str]:
    return {name: f"10.0.0.{index}:8000" for index, name in enumerate("abcdefghij"[:count], 1)}


@dataclass
class Scene:
    """One tier `chat` under a controller; `restart` is a kill and a new process."""

    size: int = 3
    mode: Mode = "enforce"
    parameters: BreakerParameters = QUICK
    drift_may_shed: bool = False
    disk: Disk = field(default_factory=Disk)
    clock: Clock = field(default_factory=Clock)
    changes: list[Entry] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = Random(7)
        self.controller = self.a_controller()

    def setup(self) -> TierSetup:
        return TierSetup(targets(self.size), self.mode, self.parameters, self.drift_may_shed)

    def a_controller(self) -> Controller:
        return Controller(
            MemoryJournal(self.disk),
            {"chat": self.setup()},
            now=self.clock,
            monotonic=self.clock.monotonic,
            rng=self.rng,
            controller="fw-test",
            endpoints=[Route("gw")],
            on_change=self.changes.append,
        )

    async def start(self) -> Scene:
        await self.controller.start()
        return self

    async def restart(self) -> None:
        self.controller = self.a_controller()
        await self.controller.start()

    async def scrape(
        self, target: str = "a", *causes: str, level: Level = Level.OK, ok: bool = True
    ) -> None:
        """Evaluate a target: critical for `causes`, or else its kv cache at `level`."""
        verdicts = [a_verdict(cause, target=target) for cause in causes]
        verdicts = verdicts or [a_verdict("kv_cache_saturated", level, target=target)]
        await self.controller.evaluate("chat", target, verdicts, reading_ok=ok)

    async def all_well(self, *, but: str = "") -> None:
        for target in targets(self.size):
            if target != but:
                await self.scrape(target)

    async def trip(self, target: str = "a", cause: str = "kv_cache_saturated") -> Breaker:
        """Make the other targets well and one breach until it opens."""
        for _ in range(3):
            await self.all_well(but=target)
            await self.scrape(target, cause)
            self.clock.forward(5)
        return self.breaker(target)

    async def wait(self, seconds: float, *, well: bool = True) -> None:
        """Let time pass in seconds, each with its tick, with scrapes every five."""
        for second in range(int(seconds)):
            self.clock.forward(1)
            await self.controller.tick()
            if well and second % 5 == 4:
                await self.all_well()

    def breaker(self, target: str = "") -> Breaker:
        return self.controller.breakers[Key("chat", target)]

    async def reload(self) -> None:
        """Swap in what the scene's fields say now."""
        await self.controller.update_tiers({"chat": self.setup()})

    async def force(self, forced: Forced, *, target: str = "a", seconds: float = 600) -> Breaker:
        return await self.controller.override(
            Key("chat", target), forced, actor="ana", reason="test", seconds=seconds
        )

    async def half_open(self, target: str = "a") -> Breaker:
        """Trip a target and wait until it is half open, its evaluations well."""
        await self.trip(target)
        while self.breaker(target).state is not State.HALF_OPEN:
            await self.wait(5)
        return self.breaker(target)

    def newest(self) -> dict[str, Any]:
        """Return the data of the newest message."""
        row = max(self.disk.deliveries.values(), key=lambda row: (row.epoch, row.seq))
        return cast("dict[str, Any]", json.loads(row.body)["data"])

    def kinds(self) -> list[str]:
        """Return the audited kinds, oldest first."""
        return [transition.kind for transition in self.disk.transitions]
