"""The data path: what fails is skipped and counted, everything else goes on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from collector.health import Health
from collector.pipeline import Pipeline
from collector.state import State
from detectors.records import Absence, Level, Panel, Reading, Verdict
from tests.builders import START, a_batch, a_reading


@dataclass(frozen=True)
class Counting:
    """A reading detector that counts its steps, or breaks."""

    name: str
    broken: bool = False
    signals: frozenset[str] = frozenset({"requests_running"})

    def start(self) -> int:
        return 0

    def step(self, memory: int, reading: Reading) -> tuple[int, tuple[Verdict, ...]]:
        if self.broken:
            msg = "broken on purpose"
            raise ValueError(msg)
        verdict = reading.verdict(self.name, "requests_running", Level.OK, samples=memory + 1)
        return memory + 1, (verdict,)

    def save(self, memory: int) -> bytes:
        return str(memory).encode()

    def load(self, data: bytes) -> int:
        return int(data)


@dataclass(frozen=True)
class Rows:
    """A tick detector that says one verdict a stream."""

    name: str = "rows"
    signals: frozenset[str] = frozenset()

    def start(self) -> int:
        return 0

    def step(self, memory: int, panel: Panel) -> tuple[int, tuple[Verdict, ...]]:
        made = (Verdict(self.name, stream, Level.OK, panel.start) for stream in panel.streams)
        return memory + 1, tuple(made)

    def save(self, memory: int) -> bytes:
        return b""

    def load(self, data: bytes) -> int:
        return 0


@dataclass
class Recording:
    """An action that keeps what it was given, or breaks."""

    name: str
    broken: bool = False
    taken: list[Verdict] = field(default_factory=list)

    async def take(self, verdicts: Sequence[Verdict], reading: Reading | None) -> None:
        if self.broken:
            msg = "disk full"
            raise OSError(msg)
        self.taken.extend(verdicts)


def a_pipeline(health: Health, *actions: Recording) -> Pipeline:
    pipeline = Pipeline(
        state=State(tick_seconds=5.0, now=lambda: START, monotonic=lambda: 1000.0),
        actions=actions,
        health=health,
    )
    readings = {"chat": [Counting("broken", broken=True), Counting("well")]}
    pipeline.use(readings, {"chat": [Rows()]})
    return pipeline


@pytest.mark.anyio
async def test_a_broken_detector_and_a_broken_action_hold_up_nothing_else() -> None:
    health = Health()
    bad, good = Recording("bad", broken=True), Recording("good")
    pipeline = a_pipeline(health, bad, good)

    for target in ("a", "a", "b"):
        await pipeline.take_reading(a_reading({"requests_running": 1.0}, target=target))

    assert [(v.stream.scope.name, v.samples) for v in good.taken] == [("a", 1), ("a", 2), ("b", 1)]
    assert health.conditions["detector:broken"].failures == 3
    assert health.conditions["action:bad"].failures == 3
    assert health.conditions["action:good"].failures == 0


@pytest.mark.anyio
async def test_generations_are_judged_when_their_tick_closes() -> None:
    good = Recording("good")
    pipeline = a_pipeline(Health(), good)

    pipeline.take_batch(a_batch({"prompt_tokens": [5.0]}, segment=""))
    assert good.taken == []
    ticks = pipeline.state.close_tick()
    verdicts = await pipeline.judge(ticks)

    assert [tick.requests for tick in ticks] == [1]
    assert good.taken == verdicts
    assert [verdict.stream.signal for verdict in verdicts] == ["prompt_tokens"]


@pytest.mark.anyio
async def test_a_detector_is_not_asked_about_a_reading_that_does_not_speak_of_its_signals() -> None:
    pipeline = a_pipeline(Health(), Recording("kept"))
    pipeline.use({"chat": [Counting("running")]}, {})

    of_a_client = await pipeline.take_reading(a_reading({"client_queue_size": 3.0}))
    without_value = await pipeline.take_reading(
        a_reading(absent={"requests_running": Absence.NO_FAMILY})
    )

    assert of_a_client == []
    assert [verdict.detector for verdict in without_value] == ["running"]
