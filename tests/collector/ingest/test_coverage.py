"""What generations stand for, and the share of them that came with logprobs."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from collector.ingest.coverage import Coverage
from collector.ingest.records import Sent
from tests.builders import a_batch


class Clock:
    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


def a_coverage(clock: Clock) -> Coverage:
    return Coverage(monotonic=clock, tick_seconds=5.0)


def sampled(*ratios: float) -> Sent:
    return Sent(ratios=np.asarray(ratios))


def test_the_share_counts_answers_with_logprobs_among_those_that_could_have_them(
    clock: Clock,
) -> None:
    coverage = a_coverage(clock)

    coverage.take(a_batch({"output_scored": [1.0, 0.0, 0.0, math.nan]}), Sent())
    coverage.take(a_batch({"output_scored": [1.0]}), Sent())

    assert coverage.ratios() == {"chat": 0.5}


def test_a_sampled_row_stands_for_as_many_requests_as_it_was_drawn_from(clock: Clock) -> None:
    coverage = a_coverage(clock)

    found = coverage.take(a_batch({"output_scored": [1.0, 0.0]}), sampled(0.1, 0.5))

    assert found.requests == pytest.approx(12.0)
    assert coverage.ratios()["chat"] == pytest.approx(10 / 12)


def test_what_is_not_sampled_stands_for_itself(clock: Clock) -> None:
    found = a_coverage(clock).take(a_batch({"prompt_tokens": [1.0, 2.0, 3.0]}), Sent())

    assert (found.requests, found.mixed) == (3.0, 0)


def test_after_a_minute_without_requests_the_share_is_unknown(clock: Clock) -> None:
    coverage = a_coverage(clock)
    coverage.take(a_batch({"output_scored": [1.0]}), Sent())

    clock.seconds += 40
    coverage.take(a_batch({"output_scored": [0.0]}), Sent())
    both = coverage.ratios()["chat"]
    clock.seconds += 30
    second = coverage.ratios()["chat"]
    clock.seconds += 60

    assert (both, second) == (0.5, 0.0)
    assert math.isnan(coverage.ratios()["chat"])


def test_ratios_that_differ_within_a_tick_are_told_and_between_ticks_are_not(clock: Clock) -> None:
    coverage = a_coverage(clock)
    batch = a_batch({"prompt_tokens": [1.0, 2.0]})

    same = coverage.take(batch, sampled(0.1, 0.1))
    other = coverage.take(batch, sampled(0.1, 0.2))
    whole = coverage.take(batch, Sent())
    clock.seconds += 5
    later = coverage.take(batch, Sent())

    assert [found.mixed for found in (same, other, whole, later)] == [0, 1, 2, 0]


def test_another_tier_has_a_ratio_of_its_own_and_is_forgotten(clock: Clock) -> None:
    coverage = a_coverage(clock)
    batch = a_batch({"output_scored": [1.0]})

    coverage.take(batch, sampled(0.1))
    found = coverage.take(replace(batch, tier="embed"), Sent())
    coverage.forget("chat")

    assert found.mixed == 0
    assert coverage.ratios() == {"embed": 1.0}


def test_memory_is_bounded_however_long_it_runs(clock: Clock) -> None:
    coverage = a_coverage(clock)

    for _ in range(1000):
        clock.seconds += 1
        coverage.take(a_batch({"output_scored": [1.0]}), Sent())

    assert len(coverage._tiers["chat"].slots) <= 12
