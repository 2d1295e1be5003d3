"""Time to exhaustion: false episodes, lead, and what it says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from pydantic import ValidationError

from detectors.exhaustion import ExhaustionConfig
from detectors.forecast import Floors, forecast
from detectors.records import Absence, Level, Reading, Verdict
from tests.builders import a_reading
from tests.detectors.leaks import DAY, a_gauge, episodes, raised
from tests.detectors.recordings import judged, seconds_when

SIGNAL = "kv_cache_usage_ratio"
KV = ExhaustionConfig(signal=SIGNAL, cause="kv_cache_exhaustion")
GPU = ExhaustionConfig(signal="gpu_memory_used_bytes", divisor="gpu_memory_total_bytes")
HOST = ExhaustionConfig(
    signal="memory_working_set_bytes", divisor="memory_limit_bytes", instead="memory_rss_bytes"
)


def leak(rate_per_minute: float, *, start: float = 0.5, scrapes: int = 600) -> list[Reading]:
    shares = np.minimum(start + rate_per_minute / 12 * np.arange(scrapes), 1.0)
    return [a_reading({SIGNAL: float(it)}, seconds=5.0 * n) for n, it in enumerate(shares)]


def leads(rate_per_minute: float, *, cases: int) -> list[float]:
    """Return the minutes between the alarm and the moment at which a leak alone fills the rest."""
    found = []
    for seed in range(cases):
        phase = float(np.random.default_rng(seed).uniform())
        busy, calm = a_gauge(360 + int(1.1 * 12 / rate_per_minute), seed=100 + seed, phase=phase)
        ramp = rate_per_minute / 12 * np.maximum(np.arange(len(busy)) - 360, 0)
        full = int(np.argmax(calm + ramp >= 1))
        alarms = raised(KV.build(), list(np.clip(busy + ramp, 0, 1)[: full + 1]), SIGNAL)
        found.append((full - int(np.argmax(alarms))) / 12 if alarms.any() else 0.0)
    return found


@pytest.mark.slow
def test_a_month_of_load_and_bursts_gives_at_most_three_false_episodes() -> None:
    busy, _ = a_gauge(30 * DAY, seed=1)

    found = raised(KV.build(), list(np.clip(busy, 0, 1)), SIGNAL)

    assert episodes(np.asarray(busy > 0.9, dtype=float)) > 60, "a plain limit would cry wolf"
    assert episodes(found) <= 3


@pytest.mark.slow
def test_a_leak_of_two_percent_a_minute_is_told_minutes_ahead() -> None:
    found = leads(0.02, cases=100)

    assert np.percentile(found, 5) >= 3.0
    assert np.median(found) >= 5.0


def last(readings: list[Reading], config: ExhaustionConfig = KV) -> Verdict:
    return judged(config.build(), readings)[-1]


def test_a_steady_leak_is_told_before_it_ends_with_an_interval_that_holds() -> None:
    verdicts = judged(KV.build(), leak(0.02))

    first = next(it for it in verdicts if it.level is Level.CRITICAL)
    told = seconds_when([first], lambda it: True)[0]
    full = (1.0 - 0.5) / 0.02 * 60
    assert full - told >= 300
    assert first.details["seconds_to_exhaustion"] == pytest.approx(full - told, abs=90)
    assert "90 % interval" in first.reason
    assert first.effect == pytest.approx(0.02, rel=0.05)


def test_a_high_floor_that_stands_still_is_quiet() -> None:
    found = [it.level for it in judged(KV.build(), leak(0.0, start=0.93))]

    assert set(found[100:]) == {Level.OK}


def test_a_high_floor_is_unknown_until_there_is_enough_for_a_line_and_no_alert_follows() -> None:
    verdict = last(leak(0.0, start=0.93, scrapes=20))

    assert verdict.level is Level.UNKNOWN
    assert verdict.cause == ""
    assert "a forecast needs 480 s" in verdict.reason


def test_a_step_of_the_load_is_no_leak() -> None:
    shares = [0.4] * 240 + [0.9] * 400
    readings = [a_reading({SIGNAL: share}, seconds=5.0 * n) for n, share in enumerate(shares)]

    assert {it.level for it in judged(KV.build(), readings)} == {Level.OK}


def test_an_engine_that_loads_its_weights_is_no_leak() -> None:
    def scrape(number: int) -> Reading:
        used = 80e9 * min(0.92, number / 60)
        values = {GPU.signal: used, "gpu_memory_total_bytes": 80e9}
        return a_reading(values, seconds=5.0 * number, problem="refused" * (number < 70))

    found = [it.level for it in judged(GPU.build(), [scrape(number) for number in range(500)])]

    assert Level.WARNING not in found
    assert Level.CRITICAL not in found
    assert found[-1] is Level.OK


def test_bursts_do_not_lift_the_floor() -> None:
    shares = [0.95 if n % 10 > 2 else 0.4 for n in range(400)]
    readings = [a_reading({SIGNAL: share}, seconds=5.0 * n) for n, share in enumerate(shares)]

    assert {it.level for it in judged(KV.build(), readings)} == {Level.OK}


def test_it_clears_when_the_floor_has_come_down() -> None:
    readings = leak(0.02, scrapes=270)
    readings += [a_reading({SIGNAL: 0.3}, seconds=1350 + 5.0 * n) for n in range(30)]

    found = [it.level for it in judged(KV.build(), readings)]

    assert found[269] is Level.CRITICAL
    assert found[-1] is Level.OK


def test_of_several_devices_the_fullest_is_judged() -> None:
    def scrape(number: int) -> Reading:
        used = {"0": 40e9, "1": 80e9 * min(0.5 + 0.02 / 12 * number, 1.0)}
        total = {"0": 80e9, "1": 80e9}
        values = {GPU.signal: sum(used.values()), "gpu_memory_total_bytes": 160e9}
        parts = {GPU.signal: used, "gpu_memory_total_bytes": total}
        return replace(a_reading(values, seconds=5.0 * number), parts=parts)

    verdict = last([scrape(number) for number in range(270)], GPU)

    assert verdict.level is Level.CRITICAL
    assert "on device 1" in verdict.reason


def test_resident_memory_stands_in_where_no_working_set_is_told() -> None:
    readings = [
        a_reading({"memory_rss_bytes": 1e9 + 5e6 * n, "memory_limit_bytes": 2e9}, seconds=5.0 * n)
        for n in range(190)
    ]

    verdict = last(readings, HOST)

    assert verdict.level is Level.CRITICAL
    assert verdict.reason.startswith("memory_rss_bytes")


@pytest.mark.parametrize("reason", [Absence.UNUSABLE, Absence.NO_FAMILY])
def test_without_a_limit_nothing_is_said(reason: Absence) -> None:
    reading = a_reading({"memory_working_set_bytes": 1e9}, absent={"memory_limit_bytes": reason})

    assert HOST.build().step(HOST.build().start(), reading)[1] == ()


def test_a_figure_that_was_lost_is_unknown_with_the_cause() -> None:
    reading = a_reading(
        {"gpu_memory_total_bytes": 80e9}, absent={"gpu_memory_used_bytes": Absence.STALE}
    )

    (verdict,) = GPU.build().step(GPU.build().start(), reading)[1]

    assert verdict.level is Level.UNKNOWN
    assert verdict.cause == "memory_exhaustion"


def test_a_gap_is_no_data_and_not_zero() -> None:
    floors = Floors()
    for second in (0, 15, 30, 45, 60, 75, 300, 315, 330, 345):
        floors = floors.seen(0.9, float(second), spans=64)

    assert floors.floor == 0.9
    assert floors.watched_seconds == 150
    assert len(floors.lows) == 24


def test_the_interval_contains_the_truth_nine_times_in_ten() -> None:
    rng, inside = np.random.default_rng(3), 0
    for _ in range(300):
        floors = Floors()
        noise = rng.normal(0, 0.01, 260)
        for number, error in enumerate(noise):
            floors = floors.seen(0.4 + 0.0004 * 5 * number + error, 5.0 * number, spans=64)
        found = forecast(floors)
        assert found is not None
        left = found.seconds * found.slope  # by the fitted line, whose slope is what is tried
        truth = left / 0.0004
        inside += found.earliest_seconds <= truth <= found.latest_seconds

    assert inside >= 0.8 * 300


def test_a_clear_above_the_floor_is_refused() -> None:
    with pytest.raises(ValidationError, match=r"clear 0.9 must be under floor 0.8"):
        ExhaustionConfig(signal=SIGNAL, clear=0.9)
