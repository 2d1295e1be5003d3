"""Reading detectors on what real engines did; times are seconds since the first scrape."""

from __future__ import annotations

from pathlib import Path

import pytest

from detectors import default_detectors, reading_detectors
from detectors.records import Level, Verdict
from tests.detectors.recordings import judged, recorded, seconds_when


@pytest.fixture
def readings_of(fixtures: Path):
    return lambda name: recorded(fixtures / "readings" / f"{name}.json")


def verdicts_of(name: str, readings) -> list[Verdict]:
    (detector,) = (d for d in reading_detectors(default_detectors()) if d.name == name)
    return judged(detector, readings)


def critical(verdict: Verdict) -> bool:
    return verdict.level is Level.CRITICAL


def test_a_dead_engine_behind_a_healthy_page_is_found_a_minute_after_its_last_token(
    readings_of,
) -> None:
    verdicts = verdicts_of("stalled", readings_of("hang-0.9.2"))

    found = seconds_when(verdicts, critical)

    assert found[0] == pytest.approx(64.5, abs=0.1)  # last token at 0.8 s, scrapes 5 s apart
    assert all(critical(verdict) for verdict in verdicts[-len(found) :]), "it never clears"
    assert verdicts[-1].statistic == pytest.approx(598, abs=3)
    assert "4 running, 19 waiting" in verdicts[-1].reason


def test_a_full_cache_is_raised_at_its_third_full_scrape_and_cleared_when_it_empties(
    readings_of,
) -> None:
    verdicts = verdicts_of("kv_cache", readings_of("kvfull-0.32.0"))

    found = seconds_when(verdicts, critical)

    assert found[0] == pytest.approx(4.57, abs=0.01)
    assert verdicts[-1].level is Level.OK


def test_a_queue_behind_a_full_cache_is_raised_and_cleared(readings_of) -> None:
    verdicts = verdicts_of("queue_growth", readings_of("kvfull-0.32.0"))

    found = seconds_when(verdicts, critical)

    assert found[0] == pytest.approx(4.15, abs=0.01)
    assert verdicts[-1].level is Level.OK


@pytest.mark.parametrize("name", ["kv_cache", "queue_growth", "stalled", "down"])
def test_a_burst_that_the_engine_works_off_raises_nothing(name: str, readings_of) -> None:
    verdicts = verdicts_of(name, readings_of("load-0.32.0"))

    assert {verdict.level for verdict in verdicts} <= {Level.OK, Level.WARNING}


def test_a_cold_engine_that_reports_nothing_for_its_first_seconds_is_not_stalled(
    readings_of,
) -> None:
    readings = readings_of("kvfull-0.32.0")
    cold = [reading for reading in readings if reading.values["generation_tokens_total"] == 0]

    assert len(cold) == 7
    assert {v.level for v in verdicts_of("stalled", readings)} == {Level.OK}
