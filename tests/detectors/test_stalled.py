"""The engine that hangs behind a healthy page."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pydantic import ValidationError

from detectors.records import Absence, Level, Reading, Verdict
from detectors.stalled import StalledConfig
from tests.builders import a_reading
from tests.detectors.recordings import judged


def scrape(
    seconds: float,
    *,
    made: float = 500,
    taken: float = 100,
    running: float = 4,
    waiting: float = 0,
) -> Reading:
    return a_reading(
        {
            "requests_running": running,
            "requests_waiting": waiting,
            "generation_tokens_total": made,
            "prompt_tokens_total": taken,
        },
        seconds=seconds,
    )


def verdicts(readings: list[Reading]) -> list[Verdict]:
    return judged(StalledConfig().build(), readings)


def last(readings: list[Reading]) -> Level:
    return verdicts(readings)[-1].level


def test_work_without_tokens_warns_after_half_a_minute_and_is_critical_after_one() -> None:
    found = [verdict.level for verdict in verdicts([scrape(5.0 * i) for i in range(14)])]

    assert found.index(Level.WARNING) == 7  # 35 s
    assert found.index(Level.CRITICAL) == 13  # 65 s


@pytest.mark.parametrize("moving", ["made", "taken"])
def test_either_counter_that_jumps_is_progress(moving: str) -> None:
    quiet = [scrape(5.0 * i) for i in range(12)]
    jumped = {"made": 500.0, "taken": 100.0}
    jumped[moving] += 1
    after = [scrape(60 + 5.0 * i, **jumped) for i in range(10)]

    assert last(quiet + after[:6]) is Level.OK
    assert last(quiet + after) is Level.WARNING


def test_an_engine_without_work_is_never_stalled() -> None:
    assert last([scrape(5.0 * i, running=0) for i in range(100)]) is Level.OK


def test_a_queue_in_front_of_an_empty_batch_is_work() -> None:
    assert last([scrape(5.0 * i, running=0, waiting=3) for i in range(20)]) is Level.CRITICAL


def test_idle_time_between_two_requests_does_not_add_up() -> None:
    readings = []
    for turn in range(10):
        readings += [scrape(100.0 * turn, running=0), scrape(100.0 * turn + 5)]
        readings.append(scrape(100.0 * turn + 30))

    assert {verdict.level for verdict in verdicts(readings)} == {Level.OK}


def test_a_cold_engine_is_given_longer() -> None:
    cold = [scrape(5.0 * i, made=0, taken=0) for i in range(70)]

    found = [verdict.level for verdict in verdicts(cold)]

    assert Level.CRITICAL not in found[:60]  # up to 295 s
    assert found[61] is Level.CRITICAL  # 305 s
    assert "cold" in verdicts(cold)[40].reason


def test_the_first_token_makes_a_cold_engine_warm() -> None:
    cold = [scrape(5.0 * i, made=0, taken=0) for i in range(20)]
    warm = [scrape(100 + 5.0 * i, made=1, taken=0) for i in range(14)]

    assert last(cold + warm) is Level.CRITICAL


def test_an_engine_that_reports_nothing_running_in_its_first_step_is_not_stalled() -> None:
    readings = [scrape(0.4 * i, made=0, taken=0, running=0) for i in range(500)]

    assert last(readings) is Level.OK


def test_a_restart_starts_a_cold_engine_anew() -> None:
    quiet = [scrape(5.0 * i) for i in range(12)]
    again = [replace(scrape(60), restarted=True), *(scrape(65 + 5.0 * i) for i in range(20))]

    assert last(quiet + again) is Level.OK


def test_time_without_usable_scrapes_does_not_count() -> None:
    before = [scrape(5.0 * i) for i in range(5)]
    failed = [a_reading(problem="timed out", seconds=25 + 5.0 * i) for i in range(100)]
    after = [scrape(600)]

    found = verdicts(before + failed + after)

    assert found[50].level is Level.UNKNOWN
    assert "timed out" in found[50].reason
    assert found[-1].statistic == 20.0


def test_time_while_fusewire_was_not_running_does_not_count() -> None:
    detector = StalledConfig().build()
    memory = detector.start()
    for reading in (scrape(0, made=400), scrape(5), scrape(10)):
        memory, _ = detector.step(memory, reading)

    memory = detector.load(detector.save(memory))
    levels = []
    for seconds in (200, 205, 250, 260):
        memory, (verdict,) = detector.step(memory, scrape(seconds))
        levels.append((verdict.level, verdict.statistic))

    assert levels == [
        (Level.OK, 5.0),
        (Level.OK, 10.0),
        (Level.WARNING, 55.0),
        (Level.CRITICAL, 65.0),
    ]


def test_failed_scrapes_in_between_do_not_hide_a_stall() -> None:
    readings = []
    for i in range(40):
        readings.append(scrape(15.0 * i))
        readings.append(scrape(15.0 * i + 5))
        readings.append(a_reading(problem="timed out", seconds=15.0 * i + 10))

    assert last(readings[:-1]) is Level.CRITICAL


def test_without_the_waiting_gauge_running_alone_decides() -> None:
    values = {
        "requests_running": 1.0,
        "generation_tokens_total": 5.0,
        "prompt_tokens_total": 5.0,
    }

    assert last([a_reading(values, seconds=5.0 * i) for i in range(14)]) is Level.CRITICAL


def test_cold_must_not_be_shorter_than_quiet() -> None:
    with pytest.raises(ValidationError, match="cold_seconds 10 must not be under"):
        StalledConfig(cold_seconds=10)


def probed(readings: list[Reading], up: float, *, age: float = 3.0) -> list[Reading]:
    """Return the readings with a probe beside them that is `age` seconds old at each."""
    return [
        replace(it, values={**it.values, "probe_up": up}, ages={"probe_up": age}) for it in readings
    ]


def test_an_answered_probe_says_that_the_page_stands_still_and_not_the_engine() -> None:
    quiet = [scrape(5.0 * i) for i in range(30)]

    found = verdicts(probed(quiet, 1.0))

    assert {verdict.level for verdict in found} == {Level.OK, Level.WARNING}
    assert found[-1].details["breached"] == 0.0
    assert "its probe was answered" in found[-1].reason


def test_a_failed_probe_confirms_a_stall_and_does_not_hasten_it() -> None:
    quiet = [scrape(5.0 * i) for i in range(14)]

    found = verdicts(probed(quiet, 0.0))

    assert [verdict.level for verdict in found].index(Level.CRITICAL) == 13
    assert "its probe failed, too" in found[-1].reason
    assert "probe" not in found[10].reason


@pytest.mark.parametrize("age", [61.0, 70.0, 1000.0])
def test_a_probe_from_before_the_quiet_time_or_long_ago_excuses_nothing(age: float) -> None:
    quiet = [scrape(5.0 * i) for i in range(14)]  # 65 s

    assert last(probed(quiet, 1.0, age=age)) is Level.CRITICAL


def test_a_probe_that_was_skipped_leaves_the_decision_to_the_counters() -> None:
    skipped = [replace(scrape(5.0 * i), absent={"probe_up": Absence.SKIPPED}) for i in range(14)]

    assert last(skipped) is Level.CRITICAL


def stepping(
    seconds: float,
    *,
    steps: float = 320,
    taken: float = 100,
    waiting: float = 0,
    running: float = 4,
) -> Reading:
    values = scrape(seconds, taken=taken, waiting=waiting, running=running).values
    return a_reading({**values, "engine_steps_total": steps}, seconds=seconds)


def test_a_long_answer_of_an_engine_that_counts_tokens_at_its_end_is_no_stall() -> None:
    assert last([stepping(5.0 * i, steps=320 + 90 * i) for i in range(60)]) is Level.OK


def test_a_queue_that_grows_while_no_step_is_made_is_a_stall_though_prompts_come_in() -> None:
    readings = [stepping(5.0 * i, waiting=i, taken=100 + 7 * i) for i in range(14)]

    found = verdicts(readings)

    assert found[-1].level is Level.CRITICAL
    assert found[-1].reason == "no step for 65 s with 4 running, 13 waiting; limit 60 s"


def test_a_queue_gauge_that_grows_for_ever_while_steps_are_made_is_none() -> None:
    readings = [stepping(5.0 * i, waiting=i, steps=320 + i) for i in range(200)]

    assert {verdict.level for verdict in verdicts(readings)} == {Level.OK}


def test_an_engine_that_hangs_in_its_first_requests_is_judged_by_queue_and_steps() -> None:
    values = {"engine_steps_total": 1.0, "requests_waiting": 2.0}
    absent = dict.fromkeys(
        ("requests_running", "generation_tokens_total", "prompt_tokens_total"), Absence.NO_FAMILY
    )

    found = verdicts([a_reading(values, absent=absent, seconds=5.0 * i) for i in range(14)])

    assert found[-1].level is Level.CRITICAL
    assert found[-1].reason == "no step for 65 s with 0 running, 2 waiting; limit 60 s"


def test_steps_that_one_page_leaves_out_do_not_count_as_progress() -> None:
    quiet = [stepping(5.0 * i) for i in range(14)]
    quiet[7] = scrape(35)

    assert last(quiet) is Level.CRITICAL
