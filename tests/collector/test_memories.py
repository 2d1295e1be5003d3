"""Detector memories over a restart: restored when they speak of now, left aside when not."""

from __future__ import annotations

import logging
from datetime import timedelta
from pathlib import Path

import pytest

from alerts.policy import PolicyMemory, step
from collector.memories import Memories, saved_positions
from collector.state import State
from detectors import default_detectors, reading_detectors
from detectors.records import Level
from tests.builders import START, a_reading

pytestmark = pytest.mark.anyio
DETECTORS = {"chat": reading_detectors(default_detectors())}
FULL = {"kv_cache_usage_ratio": 0.99, "requests_waiting": 9.0, "requests_running": 8.0}


def a_state() -> State:
    return State(tick_seconds=5.0, now=lambda: START, monotonic=lambda: 0.0)


def memories(folder: Path, state: State, *, seconds: float, monotonic: float = 100.0) -> Memories:
    found = Memories(
        folder / "fusewire.snapshot",
        state,
        now=lambda: START + timedelta(seconds=seconds),
        monotonic=lambda: monotonic,
    )
    found.use(DETECTORS)
    return found


async def a_snapshot(folder: Path) -> PolicyMemory:
    """Write the memories of a target whose cache was full for two scrapes."""
    state = a_state()
    alerts = PolicyMemory()
    for number in range(2):
        reading = a_reading(FULL, seconds=5.0 * number)
        for detector in DETECTORS["chat"]:
            place = (detector.name, "chat", "a")
            memory, verdicts = detector.step(state.memory(place, detector.start), reading)
            state.remember(place, memory)
            alerts, _ = step(alerts, verdicts, reading.at, reading.monotonic_seconds)
    await memories(folder, state, seconds=10).write(alerts, {"log.jsonl": b"position"})
    return alerts


async def test_after_a_restart_detectors_go_on_where_they_were(tmp_path: Path) -> None:
    alerts = await a_snapshot(tmp_path)
    state = a_state()

    restored = memories(tmp_path, state, seconds=20).read()
    kv = next(detector for detector in DETECTORS["chat"] if detector.name == "kv_cache")
    memory = state.memory(("kv_cache", "chat", "a"), kv.start)
    _, (verdict, *_) = kv.step(memory, a_reading(FULL, seconds=20))

    assert verdict.level is Level.CRITICAL  # the third of three
    assert restored == alerts


@pytest.mark.parametrize(
    ("seconds", "monotonic"),
    [(3600, 100.0), (-3600, 100.0), (20, 5.0)],
    ids=["old", "from the future", "from before a reboot"],
)
async def test_a_snapshot_that_does_not_speak_of_now_is_left_aside(
    tmp_path: Path, seconds: float, monotonic: float
) -> None:
    await a_snapshot(tmp_path)
    state = a_state()

    restored = memories(tmp_path, state, seconds=seconds, monotonic=monotonic).read()

    assert restored == PolicyMemory()
    assert dict(state.memories) == {}


async def test_a_torn_snapshot_is_left_aside_and_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await a_snapshot(tmp_path)
    file = tmp_path / "fusewire.snapshot"
    file.write_bytes(file.read_bytes()[:-40])
    state = a_state()
    found = memories(tmp_path, state, seconds=20)

    with caplog.at_level(logging.WARNING):
        restored = found.read()

    assert restored == PolicyMemory()
    assert dict(state.memories) == {}
    assert saved_positions(tmp_path / "fusewire.snapshot") == {}
    assert [record.message for record in caplog.records] == ["snapshot left aside"]


async def test_memories_of_detectors_that_are_gone_are_dropped(tmp_path: Path) -> None:
    await a_snapshot(tmp_path)
    state = a_state()
    found = memories(tmp_path, state, seconds=20)
    found.use({"chat": [d for d in DETECTORS["chat"] if d.name == "kv_cache"]})

    found.read()

    assert [place[0] for place in state.memories] == ["kv_cache"]


async def test_positions_of_files_are_kept_however_old(tmp_path: Path) -> None:
    await a_snapshot(tmp_path)

    assert saved_positions(tmp_path / "fusewire.snapshot") == {"log.jsonl": b"position"}


async def test_without_a_snapshot_everything_starts_anew(tmp_path: Path) -> None:
    found = memories(tmp_path, a_state(), seconds=0)

    assert found.read() == PolicyMemory()
    assert saved_positions(tmp_path / "fusewire.snapshot") == {}
