"""Corrupted logits and targets that do not answer."""

from __future__ import annotations

from dataclasses import replace

from detectors.corrupted import CorruptedConfig
from detectors.down import DownConfig
from detectors.records import Level, Reading
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
    verdicts = judged(DownConfig().build(), [a_reading(problem="connection refused")] * 2)

    assert verdicts[0].reason == "1 scrape failed: connection refused"
    assert verdicts[1].reason == "2 scrapes in a row failed: connection refused"
    assert verdicts[1].cause == "target_down"


def test_another_scraper_that_saw_the_target_down_is_believed() -> None:
    assert down([a_reading({"up": 0.0})] * 3)[-1] is Level.CRITICAL


def test_old_news_of_a_target_is_unknown() -> None:
    old = replace(a_reading({"up": 1.0}), age_seconds=600.0)

    assert down([old]) == [Level.UNKNOWN]
