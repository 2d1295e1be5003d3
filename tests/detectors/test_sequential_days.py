"""Days with a wave: quiet with what the baseline knows of hours, and not without it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest

from detectors.baseline import SignalBaseline, make_baseline, promoted
from detectors.records import FloatArray, Level
from detectors.sequential_drift import SequentialDriftConfig
from detectors.signals import grid_of
from tests.builders import START, a_tick
from tests.detectors.panels import SIGNAL, a_panel
from tests.detectors.sequential.drawn import told

DAY = 720  # ticks of two minutes
EACH = 600  # requests a tick
STREAMS = 10


def at(rng: np.random.Generator, tick: int, *, more: float = 0.0) -> FloatArray:
    """Return values whose mean moves by 0.19 standard deviations up and down over the day."""
    return rng.beta(2 + more + 0.3 * np.sin(2 * np.pi * tick / DAY), 5, EACH)


def learnt(rng: np.random.Generator) -> SignalBaseline:
    ticks = [
        replace(a_tick({SIGNAL: at(rng, n)}, number=n), start=START + timedelta(minutes=2 * n))
        for n in range(3 * DAY)
    ]
    made = make_baseline(ticks, made_at=START, provenance="ticks")
    return promoted(made, author="a person", reason="three usual days").signals[SIGNAL]


@pytest.fixture(scope="module")
def baselines() -> list[SignalBaseline]:
    rng = np.random.default_rng(41)
    return [learnt(rng) for _ in range(STREAMS)]


def raised(
    baselines: list[SignalBaseline], ticks: int, draw: Callable[[int], FloatArray]
) -> dict[Level, int]:
    """Return how many streams were raised at all, by level, over so many ticks."""
    detector = SequentialDriftConfig().build()
    memory, grid = detector.start(), grid_of(SIGNAL)
    found: dict[Level, set[str]] = {Level.WARNING: set(), Level.CRITICAL: set()}
    for number in range(ticks):
        panel = a_panel([grid.count(draw(number)) for _ in baselines], baselines, number=number)
        memory, verdicts = detector.step(memory, replace(panel, duration_seconds=120.0))
        for verdict in verdicts:
            if verdict.level in found:
                found[verdict.level].add(str(verdict.stream.scope))
    return {level: len(scopes) for level, scopes in found.items()}


@pytest.mark.slow
def test_a_usual_day_raises_nothing_and_an_unusual_one_is_still_found(
    baselines: list[SignalBaseline],
) -> None:
    rng = np.random.default_rng(42)

    usual = raised(baselines, DAY, lambda tick: at(rng, tick))
    unusual = raised(baselines, 20, lambda tick: at(rng, tick, more=1.0))

    told(f"a day of {STREAMS} streams: {usual}; half a standard deviation: {unusual}")
    assert usual == {Level.WARNING: 0, Level.CRITICAL: 0}
    assert unusual[Level.CRITICAL] == STREAMS


@pytest.mark.slow
def test_control_without_hours_and_design_effect_the_same_day_raises_most_streams(
    baselines: list[SignalBaseline],
) -> None:
    rng = np.random.default_rng(42)
    blind = []
    for baseline in baselines:
        assert baseline.traffic is not None
        assert baseline.traffic.hours is not None
        blind.append(replace(baseline, traffic=replace(baseline.traffic, hours=None)))

    usual = raised(blind, DAY, lambda tick: at(rng, tick))

    told(f"the same without hours: {usual}")
    assert usual[Level.WARNING] >= STREAMS // 2
