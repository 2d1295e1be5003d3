"""Detectors of what only some targets have: silent there, and unknown where it went missing."""

from __future__ import annotations

import pytest

from detectors import OfferedConfig, default_detectors, reading_detectors, wanted_signals
from detectors.offered import Subject, unjudged
from detectors.protocols import ReadingDetector
from detectors.records import Absence, Level, Reading
from tests.builders import a_reading

SUBJECT = Subject("it", "gpu_memory_used_bytes", "a_cause")
NEEDED = ("gpu_memory_used_bytes", "gpu_memory_total_bytes")
A_PLAIN_ENGINE = a_reading(
    {
        "up": 1.0,
        "requests_running": 4.0,
        "requests_waiting": 0.0,
        "kv_cache_usage_ratio": 0.4,
        "generation_tokens_total": 900.0,
        "prompt_tokens_total": 900.0,
        "inter_token_p99_seconds": 0.04,
    },
    absent={
        "batch_tokens": Absence.NOT_IN_VERSION,
        "batch_token_budget": Absence.NOT_IN_VERSION,
    },
)


def judged(reading: Reading, idle: tuple[Absence, ...] = ()) -> list[tuple[Level, str]] | None:
    found = unjudged(SUBJECT, reading, NEEDED, stale_seconds=60, idle=idle)
    return None if found is None else [(it.level, it.cause) for it in found]


def gpu(reason: Absence) -> Reading:
    return a_reading({"gpu_memory_total_bytes": 8e10}, absent={"gpu_memory_used_bytes": reason})


def speaking(reading: Reading) -> set[str]:
    """Return the detectors of the default set that the pipeline asks, and that answer."""
    found = set()
    for detector in reading_detectors(default_detectors()):
        one: ReadingDetector[object] = detector
        if reading.known.isdisjoint(one.signals):
            continue
        found |= {it.detector for it in one.step(one.start(), reading)[1]}
    return found


@pytest.mark.parametrize("reason", [Absence.NO_FAMILY, Absence.NOT_IN_VERSION])
def test_what_is_never_told_is_not_spoken_of(reason: Absence) -> None:
    assert judged(gpu(reason)) == []


@pytest.mark.parametrize("reason", [Absence.STALE, Absence.NO_DRIVER, Absence.SCRAPE_FAILED])
def test_what_went_missing_is_unknown_with_the_cause(reason: Absence) -> None:
    assert judged(gpu(reason)) == [(Level.UNKNOWN, "a_cause")]


def test_what_an_idle_target_does_not_tell_is_unknown_without_a_cause() -> None:
    assert judged(gpu(Absence.TOO_FEW), idle=(Absence.TOO_FEW,)) == [(Level.UNKNOWN, "")]


def test_what_is_there_can_be_judged() -> None:
    assert judged(a_reading(dict.fromkeys(NEEDED, 1.0))) is None


def test_an_engine_without_other_sources_is_judged_by_its_own_page_only() -> None:
    found = speaking(A_PLAIN_ENGINE)

    offered = {it.build().name for it in default_detectors() if isinstance(it, OfferedConfig)}
    assert found & offered == {"kv_exhaustion", "throughput", "token_latency"}


def test_a_client_that_only_streams_is_judged_by_its_streams_only() -> None:
    client = ("client_requests_total", "client_rate_limited_total", "client_retries_total")
    queue = ("client_queue_size", "client_queue_bound")
    absent = dict.fromkeys((*client, *queue), Absence.NO_FAMILY)

    found = speaking(
        a_reading({"client_streams_active": 3.0, "memory_rss_bytes": 1e9}, absent=absent)
    )

    assert found == {"streams"}


def test_nobody_is_told_that_an_engine_has_no_gpu_source() -> None:
    wanted = wanted_signals(default_detectors())

    assert not [it for it in wanted if it.startswith(("gpu_", "allocator_", "memory_", "batch_"))]
    assert {"kv_cache_usage_ratio", "requests_waiting", "corrupted_requests_total"} <= wanted
