"""Corrupted logits and targets that do not answer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from detectors import default_detectors, reading_detectors
from detectors.corrupted import CorruptedConfig
from detectors.down import DownConfig
from detectors.records import Level, Reading
from detectors.saved import mark_of, pack
from tests.builders import a_reading
from tests.detectors.recordings import judged


def counted(requests: float, seconds: float = 0.0) -> Reading:
    return a_reading({"corrupted_requests_total": requests}, seconds=seconds)


def corrupted(readings: list[Reading]) -> list[Level]:
    return [verdict.level for verdict in judged(CorruptedConfig().build(), readings)]


def test_one_corrupted_request_is_critical_and_held_for_the_confirmation() -> None:
    found = corrupted([counted(0), counted(1, 5), counted(1, 10), counted(1, 305), counted(1, 400)])

    assert found == [Level.OK, Level.CRITICAL, Level.CRITICAL, Level.CRITICAL, Level.OK]


def test_corrupted_requests_from_before_the_first_scrape_warn_once() -> None:
    assert corrupted([counted(7), counted(7, 5)]) == [Level.WARNING, Level.OK]


def test_an_engine_that_does_not_count_nan_is_unknown_without_a_cause() -> None:
    (verdict,) = judged(CorruptedConfig().build(), [a_reading({"requests_running": 1.0})])

    assert verdict.level is Level.UNKNOWN
    assert verdict.cause == ""
    assert "VLLM_COMPUTE_NANS_IN_LOGITS=1" in verdict.reason


def test_a_failed_scrape_leaves_the_count_as_it_was() -> None:
    failed = a_reading(problem="timed out", seconds=5)

    found = judged(CorruptedConfig().build(), [counted(0), failed, counted(2, 10)])

    assert [verdict.level for verdict in found] == [Level.OK, Level.UNKNOWN, Level.CRITICAL]
    assert found[1].cause == "logits_corrupted"


def test_only_watched_time_ends_the_hold_of_a_corrupted_request() -> None:
    detector = CorruptedConfig(hold_seconds=60).build()
    memory = detector.start()
    for reading in (counted(0), counted(1, 5), a_reading(problem="timed out", seconds=10)):
        memory, _ = detector.step(memory, reading)
    found = []

    for reading in (counted(1, 500), counted(1, 550)):
        memory, (verdict,) = detector.step(memory, reading)
        found.append(verdict.level)
    memory = detector.load(detector.save(memory))
    for reading in (counted(1, 5_000), counted(1, 5_015)):
        memory, (verdict,) = detector.step(memory, reading)
        found.append(verdict.level)

    assert found == [Level.CRITICAL, Level.CRITICAL, Level.CRITICAL, Level.OK]


def down(readings: list[Reading]) -> list[Level]:
    return [verdict.level for verdict in judged(DownConfig().build(), readings)]


def test_three_failed_scrapes_in_a_row_are_down_and_one_success_is_up() -> None:
    failed, well = a_reading(problem="connection refused"), a_reading({"requests_running": 0.0})

    found = down([well, failed, failed, failed, failed, well, failed])

    assert [str(level) for level in found] == [
        *("ok", "warning", "warning", "critical", "critical", "ok", "warning")
    ]


def test_the_reason_says_why_the_scrape_failed() -> None:
    readings = [a_reading({"up": 1.0}), *[a_reading(problem="connection refused")] * 2]

    verdicts = judged(DownConfig().build(), readings)

    assert verdicts[1].reason == "1 scrape failed: connection refused"
    assert verdicts[2].reason == "2 scrapes in a row failed: connection refused"
    assert verdicts[2].cause == "target_down"


def test_another_scraper_that_saw_the_target_down_is_believed() -> None:
    seen_up, seen_down = a_reading({"up": 1.0}), a_reading({"up": 0.0})

    assert down([seen_up, *[seen_down] * 3])[-1] is Level.CRITICAL


def refused(*seconds: float) -> list[Reading]:
    return [a_reading(problem="connection refused", seconds=it) for it in seconds]


def test_a_target_that_has_never_been_up_may_be_starting_for_ten_minutes_and_only_warns() -> None:
    verdicts = judged(DownConfig().build(), refused(*range(0, 621, 20)))

    levels = [verdict.level for verdict in verdicts]
    assert levels == [Level.WARNING] * 30 + [Level.CRITICAL] * 2
    assert verdicts[5].reason == (
        "not up yet: starting? 100 s of at most 600 s; "
        "6 scrapes in a row failed: connection refused"
    )
    assert "starting" not in verdicts[-1].reason


def test_a_target_that_was_up_once_is_not_starting_when_it_goes_away() -> None:
    found = down([*refused(0, 5, 10), a_reading({"up": 1.0}, seconds=15), *refused(20, 25, 30)])

    assert found[-1] is Level.CRITICAL


def test_a_restart_of_fusewire_neither_forgets_nor_lengthens_the_waiting() -> None:
    detector = DownConfig(startup_seconds=60).build()
    memory = detector.start()
    for reading in refused(1_000, 1_030, 1_055):
        memory, _ = detector.step(memory, reading)
    memory = detector.load(detector.save(memory))

    levels = []
    for reading in refused(3, 8):  # a clock that began anew, and the time between is not counted
        memory, (verdict,) = detector.step(memory, reading)
        levels.append(verdict.level)

    assert levels == [Level.WARNING, Level.CRITICAL]


def test_bytes_of_the_memory_before_there_was_a_start_up_time_begin_anew() -> None:
    detector = DownConfig().build()
    older = pack(2, mark=mark_of(DownConfig(), version=1))

    with pytest.raises(ValueError, match="start with a new memory"):
        detector.load(older)


def test_a_first_page_with_all_families_at_0_raises_nothing() -> None:
    cold = {
        **dict.fromkeys(("requests_running", "requests_waiting", "preemptions_total"), 0.0),
        **dict.fromkeys(("generation_tokens_total", "prompt_tokens_total"), 0.0),
        **dict.fromkeys(("kv_cache_usage_ratio", "corrupted_requests_total"), 0.0),
        "up": 1.0,
    }
    readings = refused(0, 5) + [a_reading(cold, seconds=it) for it in range(10, 400, 5)]

    found = [
        verdict
        for detector in reading_detectors(default_detectors())
        for verdict in judged(detector, readings)[2:]
    ]

    assert {verdict.level for verdict in found} <= {Level.OK, Level.UNKNOWN}
    assert {verdict.detector for verdict in found} >= {"down", "stalled", "kv_cache"}


def test_old_news_of_a_target_is_unknown() -> None:
    old = replace(a_reading({"up": 1.0}), age_seconds=600.0)

    assert down([old]) == [Level.UNKNOWN]
