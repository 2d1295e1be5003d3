"""The gate on the paired divergence: fail comes early and stays, pass waits for what it needs."""

from __future__ import annotations

import numpy as np
import pytest

from detectors.paired import Answer, Gate, add, judge, limit_of, start
from detectors.records import FloatArray

HARMLESS, LOSSY = 1.9e-4, 2.8e-2  # int8 and int4 of the recorded corpus


def spread(mean: float, n: int, seed: int = 1) -> FloatArray:
    """Return values around a mean as the requests of a candidate vary."""
    return mean * np.random.default_rng(seed).gamma(13, 1 / 13, n)


def answer(values: FloatArray, gate: Gate, elapsed: float = np.inf) -> Answer:
    return judge(add(start(), values, gate), gate, elapsed_seconds=elapsed).answer


@pytest.mark.parametrize(
    ("mean", "n", "expected"),
    [
        (0.0, 150, Answer.PASS),
        (HARMLESS, 150, Answer.PASS),
        (HARMLESS, 60, Answer.NOT_YET),
        (LOSSY, 8, Answer.FAIL),
        (LOSSY, 1, Answer.NOT_YET),
        (0.005, 2_000, Answer.NOT_YET),
        (0.003, 400, Answer.PASS),
        (0.008, 200, Answer.FAIL),
    ],
)
def test_the_answer_follows_the_mean_and_the_evidence(
    mean: float, n: int, expected: Answer
) -> None:
    assert answer(spread(mean, n), Gate()) is expected


def test_no_request_is_not_yet() -> None:
    found = judge(start(), Gate())

    assert found.answer is Answer.NOT_YET
    assert "no request" in found.reason
    assert (found.lower_nats, found.requests, found.requests_used) == (0.0, 0, 0)
    assert np.isnan(found.mean_nats)
    assert found.smallest_visible_nats == np.inf


def test_the_limit_is_ten_floors_and_at_least_five_thousandths() -> None:
    assert limit_of(0.0) == limit_of(4e-4) == 5e-3
    assert limit_of(2e-3) == pytest.approx(2e-2)


@pytest.mark.parametrize("floor", [-1e-9, np.inf, np.nan])
def test_a_floor_that_is_none_is_refused(floor: float) -> None:
    with pytest.raises(ValueError, match="floor"):
        limit_of(floor)


def test_a_higher_floor_lets_a_candidate_pass() -> None:
    values = spread(0.008, 300)

    assert answer(values, Gate(limit_nats=limit_of(0.0))) is Answer.FAIL
    assert answer(values, Gate(limit_nats=limit_of(2e-3))) is Answer.PASS


def test_a_pass_waits_for_requests_and_for_time_and_a_fail_for_neither() -> None:
    gate = Gate(min_requests=1_000, min_duration_seconds=86_400)
    good = spread(HARMLESS, 1_000)

    assert answer(good[:999], gate) is Answer.NOT_YET
    assert answer(good, gate, elapsed=3_600) is Answer.NOT_YET
    assert answer(good, gate, elapsed=86_400) is Answer.PASS
    assert answer(spread(LOSSY, 10), gate, elapsed=5) is Answer.FAIL


def test_a_fail_stays_whatever_comes_after() -> None:
    gate = Gate()
    failed = add(start(), spread(LOSSY, 10), gate)
    later = judge(add(failed, np.zeros(3_000), gate), gate)

    assert later.answer is Answer.FAIL
    assert later.requests_used == failed.failed_at < 10
    assert later.requests == 3_010


def test_the_same_answer_comes_from_one_block_and_from_single_requests() -> None:
    gate = Gate()
    values = spread(0.009, 60)
    once, single = add(start(), values, gate), start()
    for value in values:
        single = add(single, np.array([value]), gate)

    assert single.failed_at == once.failed_at > 0
    one, other = judge(once, gate), judge(single, gate)
    assert (one.lower_nats, one.upper_nats) == (other.lower_nats, other.upper_nats)
    assert one.mean_nats == pytest.approx(values.mean())


def test_the_interval_holds_the_mean_and_one_request_counts_at_most_twenty_limits() -> None:
    gate = Gate()
    values = np.append(spread(HARMLESS, 400), [5.0, np.inf])
    found = judge(add(start(), values, gate), gate)

    clipped = np.minimum(values, 20 * gate.limit_nats).mean()
    assert found.mean_nats == pytest.approx(clipped)
    assert found.lower_nats < clipped < found.upper_nats < gate.limit_nats
    assert found.clipped == 2
    assert found.answer is Answer.PASS


def test_an_obstacle_turns_a_pass_into_not_yet_and_leaves_a_fail() -> None:
    gate = Gate()
    good, bad = (add(start(), spread(mean, 300), gate) for mean in (HARMLESS, LOSSY))

    assert judge(good, gate, obstacle="too little").answer is Answer.NOT_YET
    assert judge(good, gate, obstacle="too little").reason == "too little"
    assert judge(bad, gate, obstacle="too little").answer is Answer.FAIL


def test_smaller_changes_are_seen_with_more_requests() -> None:
    gate = Gate()
    visible = [
        judge(add(start(), spread(HARMLESS, n), gate), gate).smallest_visible_nats
        for n in (20, 200, 2_000)
    ]

    assert visible[0] > visible[1] > visible[2] > gate.limit_nats


@pytest.mark.parametrize("value", [-1e-9, np.nan])
def test_a_divergence_that_is_none_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="leave out"):
        add(start(), np.array([0.1, value]), Gate())


def test_no_values_change_nothing() -> None:
    memory = start()

    assert add(memory, np.array([]), Gate()) is memory


@pytest.mark.parametrize(
    "settings",
    [
        {"limit_nats": 0.0},
        {"limit_nats": np.inf},
        {"alpha": 0.0},
        {"alpha": 1.0},
        {"min_requests": 0},
        {"min_duration_seconds": -1.0},
    ],
)
def test_a_gate_that_cannot_be_is_refused(settings: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"expected|needs"):
        Gate(**settings)  # type: ignore[arg-type]  # numbers of the table
