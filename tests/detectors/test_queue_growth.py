"""The queue that grows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from pydantic import ValidationError

from detectors.queue_growth import QueueGrowthConfig
from detectors.records import Histogram, Level, Reading
from tests.builders import a_reading
from tests.detectors.recordings import judged


def queue(
    waiting: float, *, seconds: float, running: float = 8, waits: tuple[float, float] | None = None
) -> Reading:
    reading = a_reading({"requests_waiting": waiting, "requests_running": running}, seconds=seconds)
    if waits is None:
        return reading
    return replace(reading, histograms={"queue_seconds": Histogram((), (), waits[1], waits[0])})


def levels(waiting: list[float], running: float = 8) -> list[Level]:
    readings = [queue(w, seconds=5.0 * i, running=running) for i, w in enumerate(waiting)]
    return [verdict.level for verdict in judged(QueueGrowthConfig().build(), readings)]


def test_a_queue_that_grows_faster_than_it_drains_is_raised_within_five_scrapes() -> None:
    found = levels([0, 5, 10, 15, 20])

    assert found[-1] is Level.CRITICAL


def test_a_short_queue_may_grow() -> None:
    assert set(levels([0, 1, 2, 3, 4, 5, 6, 7])) == {Level.OK}


def test_a_burst_that_drains_is_let_pass() -> None:
    assert Level.CRITICAL not in levels([0, 45, 40, 35, 28, 20, 12, 4, 0])


def test_a_long_queue_that_stands_still_is_not_growing() -> None:
    assert levels([12.0] * 20) == [Level.OK] * 20


def test_an_empty_engine_with_a_growing_queue_counts() -> None:
    assert levels([0, 2, 4, 6, 8], running=0)[-1] is Level.CRITICAL


def test_a_long_mean_time_in_the_queue_is_a_breach_by_itself() -> None:
    readings = [
        queue(12, seconds=5.0 * i, waits=(100.0 + 60.0 * i, 10.0 + 10.0 * i)) for i in range(5)
    ]

    verdict = judged(QueueGrowthConfig().build(), readings)[-1]

    assert verdict.level is Level.CRITICAL
    assert verdict.details["wait_seconds"] == pytest.approx(6.0)
    assert "mean time in the queue 6 s" in verdict.reason


def test_it_clears_when_nobody_waits_however_long_the_last_ones_waited() -> None:
    grown = [queue(5.0 * i, seconds=5.0 * i, waits=(60.0 * i, 10.0 * i)) for i in range(6)]
    empty = [queue(0, seconds=30 + 5.0 * i, waits=(300.0 + i, 50.0 + i)) for i in range(3)]

    found = [verdict.level for verdict in judged(QueueGrowthConfig().build(), grown + empty)]

    assert found[5] is Level.CRITICAL
    assert found[-1] is Level.OK


def test_scrapes_at_one_moment_have_no_slope() -> None:
    readings = [queue(w, seconds=0.0) for w in (0, 20, 40, 60)]

    assert judged(QueueGrowthConfig().build(), readings)[-1].level is Level.OK


def test_a_restart_empties_the_ring() -> None:
    readings = [queue(5.0 * i, seconds=5.0 * i) for i in range(6)]
    after = replace(queue(60, seconds=30), restarted=True)

    assert judged(QueueGrowthConfig().build(), [*readings, after])[-1].level is Level.OK


def test_thresholds_must_leave_a_band() -> None:
    with pytest.raises(ValidationError, match="clear_seconds 5 must be under trip_seconds 5"):
        QueueGrowthConfig(clear_seconds=5)


@pytest.mark.parametrize("waiting", [45.0, 1e6 + 1.0 / 3.0])
def test_a_long_queue_that_stands_still_is_not_growing_whatever_the_times_of_its_scrapes(
    waiting: float,
) -> None:
    queue = QueueGrowthConfig().build()
    memory = queue.start()
    rng = np.random.default_rng(3)
    values = {"requests_waiting": waiting, "requests_running": 2.0}
    levels = set()

    for number in range(200):
        seconds = 5.0 * number + float(rng.uniform(0, 0.3))
        memory, (verdict,) = queue.step(memory, a_reading(values, seconds=seconds))
        levels.add(verdict.level)

    assert levels == {Level.OK}
