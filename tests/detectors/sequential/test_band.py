"""The null: thresholds, confidence, gate and season."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from detectors.baseline import make_baseline
from detectors.proportions import clopper_pearson
from detectors.sequential.band import (
    LEVELS,
    Gate,
    coarse,
    coarse_rows,
    make_band,
    seasons,
    thresholds_of,
)
from detectors.signals import grid_of
from tests.builders import START, a_tick
from tests.detectors.sequential.drawn import EDGES, NO_GATE, PAGE_GATE, a_band, counted

COUNTS = arrays(np.int64, st.integers(2, 30), elements=st.integers(0, 500)).filter(
    lambda counts: bool(counts.sum() > 0)
)


def test_thresholds_are_the_edges_at_fixed_levels() -> None:
    counts = counted(np.random.default_rng(0).normal(size=100_000))

    chosen = thresholds_of(counts)

    shares = np.cumsum(counts)[chosen] / counts.sum()
    assert len(chosen) == len(LEVELS)
    assert (shares >= np.asarray(LEVELS)).all()
    assert (np.cumsum(counts)[chosen - 1] / counts.sum() < np.asarray(LEVELS)).all()


def test_thresholds_hold_those_of_a_stored_baseline() -> None:
    values = np.random.default_rng(1).uniform(size=5000)
    stored = make_baseline(
        [a_tick({"prompt_json_ratio": values})], made_at=START, provenance="file test"
    ).signals["prompt_json_ratio"]

    chosen = thresholds_of(grid_of("prompt_json_ratio").count(values))

    assert set(stored.thresholds) <= set(chosen)


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ([0, 0, 900, 0], [1, 2]),  # a constant has an edge on both sides
        ([900, 0, 0], [0]),  # nothing is under the first bin
        ([0, 0, 900], [1]),  # nor over the last
        ([700, 0, 0, 200, 0], [0, 2, 3]),  # two values: what comes between them is told apart
        ([98, 2], [0]),  # a flag
    ],
)
def test_few_values_have_few_thresholds(counts: list[int], expected: list[int]) -> None:
    assert thresholds_of(np.asarray(counts)).tolist() == expected


@pytest.mark.parametrize("counts", [[0, 0], [5], [3, -1]])
def test_counts_that_are_no_baseline_are_refused(counts: list[int]) -> None:
    with pytest.raises(ValueError, match="expected at least two bins, none negative, some filled"):
        thresholds_of(np.asarray(counts))


@given(counts=COUNTS, share=st.floats(0.0, 1.0))
@settings(max_examples=50, deadline=None)
def test_halves_between_thresholds_add_to_the_whole(counts: np.ndarray, share: float) -> None:
    half = (counts * share).astype(np.int64)
    thresholds = thresholds_of(counts)

    added = coarse(half, thresholds) + coarse(counts - half, thresholds)

    np.testing.assert_array_equal(added, coarse(counts, thresholds))
    np.testing.assert_array_equal(
        np.cumsum(coarse(counts, thresholds))[:-1], np.cumsum(counts)[thresholds]
    )


@given(counts=COUNTS, tau=st.floats(1, 100), distance=st.floats(0, 0.5), odds=st.floats(1, 5))
@settings(max_examples=80, deadline=None)
def test_a_band_holds_its_confidence_and_rises(
    counts: np.ndarray, tau: float, distance: float, odds: float
) -> None:
    band = make_band(counts, gate=Gate(distance, odds), tau=tau)

    bounds = np.stack([band.low, band.lower, band.shares, band.upper, band.high])
    assert (np.diff(bounds, axis=0) >= -1e-12).all()
    assert (band.low < 1).all()
    assert (band.high > 0).all()
    assert (np.diff(bounds, axis=1) >= -1e-12).all()


def test_confidence_is_that_of_the_effective_requests() -> None:
    counts = np.asarray([400, 600])

    band = make_band(counts, gate=NO_GATE, tau=4.0)

    lower, upper = clopper_pearson(np.asarray([100.0]), 250.0, 0.01)
    assert (band.low, band.high) == (lower, upper)


def test_the_gate_moves_the_body_by_distance_and_the_tail_by_odds() -> None:
    band = a_band(np.random.default_rng(0), 1_000_000, Gate(0.05, 2.0))

    middle = int(np.abs(band.shares - 0.5).argmin())
    far = int(np.abs(band.shares - 0.999).argmin())
    assert band.high[middle] == pytest.approx(band.upper[middle] + 0.05)
    tail, edge = 1 - band.lower[far], 1 - band.low[far]
    assert edge / (1 - edge) == pytest.approx(2 * tail / (1 - tail))


def test_strata_widen_the_band_to_what_is_normal_at_some_hour() -> None:
    rng = np.random.default_rng(3)
    hours = [counted(rng.normal(mean, 1, 5000)) for mean in (-0.5, 0.0, 0.5)]
    whole = np.sum(hours, axis=0)

    plain = make_band(whole, gate=PAGE_GATE, tau=1.0)
    wide = make_band(whole, gate=PAGE_GATE, tau=1.0, strata=[*hours, np.zeros_like(whole)])

    for hour in hours:
        shares = np.cumsum(hour)[wide.thresholds] / hour.sum()
        assert (shares >= wide.low).all()
        assert (shares <= wide.high).all()
        assert ((shares < plain.low) | (shares > plain.high)).any() or hour is hours[1]


def test_neighbouring_hours_make_groups_that_are_large_enough() -> None:
    hours = np.full((24, 10), 500)  # 5,000 requests an hour

    assert seasons(hours, tau=1.0) == tuple(tuple(range(s, s + 4)) for s in range(0, 24, 4))
    assert seasons(hours, tau=2.0)[-1] == tuple(range(16, 24))
    assert seasons(hours, tau=100.0) == (tuple(range(24)),)


@pytest.mark.parametrize("gate", [(-0.1, 2.0), (1.0, 2.0), (0.1, 0.9), (0.1, float("inf"))])
def test_a_gate_that_makes_no_sense_is_refused(gate: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="gate: distance"):
        Gate(*gate)


@pytest.mark.parametrize("tau", [0.5, float("nan"), float("inf")])
def test_a_design_effect_under_one_is_refused(tau: float) -> None:
    with pytest.raises(ValueError, match="expected a number from 1"):
        make_band(counted(EDGES), gate=PAGE_GATE, tau=tau)


def test_streams_of_many_baselines_are_laid_side_by_side() -> None:
    rng = np.random.default_rng(6)
    bands = [a_band(rng, 20_000), make_band(np.asarray([5, 900, 95]), gate=PAGE_GATE, tau=1.0)]
    counts = np.zeros((3, len(EDGES) + 1), dtype=np.int64)
    counts[0] = counts[2] = counted(rng.normal(size=100))
    counts[1, :3] = [1, 7, 2]

    laid = coarse_rows(counts, bands, np.asarray([0, 1, 0]))

    np.testing.assert_array_equal(laid[0], coarse(counts[0], bands[0].thresholds))
    np.testing.assert_array_equal(laid[2], laid[0])
    assert laid[1].sum() == 10
    assert laid[1, : len(bands[1].counts)].tolist() == [1, 7, 2]
