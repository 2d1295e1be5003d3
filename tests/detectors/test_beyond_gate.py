"""The test behind a report's answer: its level at the gate's edge, its power, its corrections."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from detectors.beyond_gate import (
    Shares,
    allowed,
    allowed_down,
    benjamini_hochberg,
    beyond_gate_p,
    count_events,
    holm,
    joined,
    outside,
    smallest_visible,
    thresholds_of,
)
from detectors.proportions import clopper_pearson
from detectors.records import FloatArray, IntArray
from detectors.sequential.band import Gate

Counts: TypeAlias = FloatArray | IntArray | float
GATE = Gate(distance=0.05, odds=2.0)
NO_GATE = Gate(distance=0.0, odds=1.0)


def shares(reference: Counts, m: int, current: Counts, n: int) -> Shares:
    before, now = np.atleast_1d(reference).astype(float), np.atleast_1d(current).astype(float)
    return Shares(before, np.full(len(before), float(m)), now, np.full(len(now), float(n)))


@pytest.mark.parametrize("share", [0.5, 0.1, 0.01, 0.001])
@pytest.mark.parametrize("sizes", [(300, 300), (20_000, 500), (500, 20_000)])
def test_at_the_gates_edge_it_is_left_no_oftener_than_the_level(
    share: float, sizes: tuple[int, int]
) -> None:
    rng = np.random.default_rng(3)
    edge = float(allowed(np.asarray([share]), GATE)[0])
    counts = shares(rng.binomial(sizes[0], share, 4000), sizes[0],
                    rng.binomial(sizes[1], edge, 4000), sizes[1])  # fmt: skip

    p = beyond_gate_p(counts, GATE)

    for level in (0.1, 0.01):
        assert np.mean(p <= level) <= level


def test_far_beyond_the_gate_it_is_found_from_few_rows() -> None:
    rng = np.random.default_rng(4)
    counts = shares(rng.binomial(1000, 0.2, 500), 1000, rng.binomial(1000, 0.4, 500), 1000)

    assert np.mean(beyond_gate_p(counts, GATE) <= 1e-4) > 0.95


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 500), st.integers(1, 500), st.data())
def test_the_p_value_is_the_level_at_which_exact_bounds_leave_the_gate(
    m: int, n: int, data: st.DataObject
) -> None:
    k, j = data.draw(st.integers(0, m)), data.draw(st.integers(0, n))
    p = float(beyond_gate_p(shares(k, m, j, n), GATE)[0])

    assert 0 < p <= 1
    if 1e-9 < p < 0.9:
        for level, proved in ((p * 1.001, True), (p * 0.999, False)):
            _, upper = clopper_pearson(np.asarray([k]), m, level)
            lower, _ = clopper_pearson(np.asarray([j]), n, level)
            assert bool(lower[0] > allowed(upper, GATE)[0]) is proved


def test_without_a_gate_it_is_no_stronger_than_the_exact_test_and_not_far_from_it() -> None:
    p = float(beyond_gate_p(shares(40, 400, 90, 400), NO_GATE)[0])

    exact = float(
        stats.fisher_exact(np.asarray([[90, 310], [40, 360]]), alternative="greater").pvalue
    )
    assert exact < p < exact**0.4


def test_the_gate_is_the_smaller_of_its_two_moves_and_the_same_from_both_sides() -> None:
    share = np.asarray([0.0, 0.001, 0.5, 0.999, 1.0])

    assert allowed(share, GATE) == pytest.approx([0, 0.001998, 0.55, 0.9995, 1], abs=1e-6)
    assert allowed_down(share, GATE) == pytest.approx(1 - allowed(1 - share, GATE))
    assert outside(shares(np.full(2, 500), 1000, np.asarray([549, 560]), 1000), GATE).tolist() == [
        False,
        True,
    ]


def test_a_constant_that_moves_to_either_side_is_an_event() -> None:
    reference = np.full(1000, 5)
    values, closed = thresholds_of(reference)

    for current in (np.full(1000, 4), np.full(1000, 6)):
        counts = shares(
            count_events(reference, values, closed), 1000,
            count_events(current, values, closed), 1000,
        )  # fmt: skip
        assert beyond_gate_p(counts.and_not(), GATE).min() < 1e-100
        assert len(joined([counts, counts])) == 2 * len(counts)


def test_thresholds_reach_into_both_tails_and_depend_on_the_reference_alone() -> None:
    reference = np.sort(np.random.default_rng(0).normal(size=100_000))

    values, closed = thresholds_of(reference)

    below = count_events(reference, values, closed) / 1e5
    assert below.min() == 0
    assert below.max() == 1
    assert np.isin(np.round(below, 4), [0.001, 0.5, 0.999]).sum() == 3
    assert thresholds_of(np.asarray([7.0]))[0].tolist() == [7.0, 7.0]


@pytest.mark.parametrize("rows", [100, 1000, 100_000])
def test_the_smallest_visible_distance_is_proved_and_a_smaller_one_is_not(rows: int) -> None:
    level = 1e-5
    found = smallest_visible(rows, rows, gate=GATE, level=level)

    now = 0.5 + np.asarray([found, found - 0.002]) / 2
    p = beyond_gate_p(shares((1 - now) * rows, rows, now * rows, rows), GATE)
    assert p[0] <= level < p[1]


def test_a_handful_of_rows_shows_nothing() -> None:
    assert smallest_visible(10, 10, gate=GATE, level=1e-4) == np.inf
    assert smallest_visible(0, 1e6, gate=GATE, level=1e-4) == np.inf


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_corrections_equal_their_definitions(p: list[float]) -> None:
    values = np.asarray(p)

    hochberg = stats.false_discovery_control(values, method="bh")
    assert benjamini_hochberg(values) == pytest.approx(np.asarray(hochberg))
    ordered = np.sort(values)
    steps = [max((len(p) - i) * ordered[i] for i in range(place + 1)) for place in range(len(p))]
    assert np.sort(holm(values)) == pytest.approx(np.minimum(steps, 1))
    assert (holm(values) >= values).all()
