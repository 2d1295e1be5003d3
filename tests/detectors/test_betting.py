"""The confidence sequence holds at every look, its ends are rounded outwards, order is nothing."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detectors.betting import (
    Side,
    add,
    evidence,
    evidence_path,
    interval,
    means_around,
    start,
    visible_excess,
)
from detectors.records import FloatArray

ALPHA = 0.05
LIMIT = 0.05
Draw = Callable[[np.random.Generator, int], FloatArray]


def bernoulli(rng: np.random.Generator, n: int) -> FloatArray:
    return (rng.random(n) < 0.05).astype(np.float64)


def beta(rng: np.random.Generator, n: int) -> FloatArray:
    return rng.beta(1.0, 19.0, n)


def narrow(rng: np.random.Generator, n: int) -> FloatArray:
    return rng.uniform(0.04, 0.06, n)


def rare(rng: np.random.Generator, n: int) -> FloatArray:
    """As most candidates are: next to nothing, and now and then a ruined request."""
    return np.where(rng.random(n) < 0.01, 1.0, 0.04 / 0.99)


def misses(draw: Draw, mean: float, *, paths: int, looks: int, side: Side) -> float:
    """Return how many of the paths ever say that the true mean cannot be, from one side."""
    rng = np.random.default_rng(7)
    ever = 0
    for _ in range(paths):
        path = evidence_path(draw(rng, looks), mean, side)
        ever += bool(path.max() >= np.log(2 / ALPHA))
    return ever / paths


@pytest.mark.parametrize("draw", [bernoulli, beta, narrow, rare])
@pytest.mark.parametrize("side", Side)
def test_the_true_mean_is_refuted_by_few_runs_however_often_one_looks(
    draw: Draw, side: Side
) -> None:
    found = misses(draw, 0.05, paths=60, looks=1000, side=side)

    assert found <= ALPHA / 2 + 0.03  # one in sixty either way


@pytest.mark.slow
@pytest.mark.parametrize("draw", [bernoulli, beta, narrow, rare])
def test_coverage_is_at_least_that_promised_over_ten_thousand_looks(draw: Draw) -> None:
    above, below = (misses(draw, 0.05, paths=200, looks=10_000, side=side) for side in Side)

    assert above + below <= ALPHA  # a sum: an upper bound of what both sides miss
    assert above <= ALPHA / 2  # at the limit this is the rate of false fails


def test_looking_with_a_test_made_for_one_look_would_not_hold() -> None:
    rng = np.random.default_rng(3)
    draws = np.stack([beta(rng, 2000) for _ in range(60)])
    counts = np.arange(1, 2001)
    means = np.cumsum(draws, axis=1) / counts
    spread = np.sqrt(np.cumsum(draws**2, axis=1) / counts - means**2)
    normal = np.abs(means - 0.05) / np.maximum(spread, 1e-9) * np.sqrt(counts)

    refuted = (normal[:, 100:] > 1.96).any(axis=1).mean()

    assert refuted > 3 * ALPHA


@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=40),
    st.floats(0.01, 0.5),
)
@settings(max_examples=60, deadline=None)
def test_the_grid_gives_the_interval_of_all_means_rounded_outwards(
    values: list[float], alpha: float
) -> None:
    drawn = np.array(values)
    bets = add(start(means_around(LIMIT)), drawn)

    lower, upper = interval(bets, alpha)

    assert lower <= upper
    ruin = np.log(2 / alpha)
    for mean in (lower, upper):
        if 0 < mean < 1:
            side = Side.ABOVE if mean == lower else Side.BELOW
            assert evidence_path(drawn, mean, side)[-1] >= ruin - 1e-9
    if lower < drawn.mean() < upper:
        inside = [evidence_path(drawn, float(drawn.mean()), side)[-1] for side in Side]
        assert max(inside) <= ruin + 1e-9


def test_evidence_grows_with_the_distance_of_the_mean_that_is_bet_against() -> None:
    bets = add(start(means_around(LIMIT)), beta(np.random.default_rng(1), 300))

    assert (np.diff(evidence(bets.above)) <= 1e-9).all()
    assert (np.diff(evidence(bets.below)) >= -1e-9).all()


def test_order_and_blocks_change_nothing() -> None:
    values = beta(np.random.default_rng(2), 700)
    once = add(start(means_around(LIMIT)), values)
    bets = start(means_around(LIMIT))
    for part in np.split(values[::-1], [1, 40, 300]):
        bets = add(bets, part)

    assert bets.requests == once.requests == 700
    np.testing.assert_allclose(bets.above, once.above, rtol=0, atol=1e-8)
    np.testing.assert_allclose(bets.below, once.below, rtol=0, atol=1e-8)


def test_the_interval_narrows_onto_the_mean() -> None:
    values = beta(np.random.default_rng(5), 3_000)
    bets = start(means_around(LIMIT))
    widths = []
    for part in np.split(values, [50, 400]):
        bets = add(bets, part)
        lower, upper = interval(bets, ALPHA)
        widths.append(upper - lower)

    assert widths[0] > widths[1] > widths[2]
    assert widths[2] < 0.016


def test_the_middle_is_on_the_grid() -> None:
    means = means_around(LIMIT)

    assert LIMIT in means
    assert 0 < means[0] < 1e-4
    assert 0.9 < means[-1] < 1
    assert (np.diff(means) > 0).all()


def test_without_values_every_mean_is_possible() -> None:
    assert interval(start(means_around(LIMIT)), ALPHA) == (0.0, 1.0)


@pytest.mark.parametrize("value", [-0.01, 1.01, np.nan, np.inf])
def test_values_that_are_not_in_range_are_refused(value: float) -> None:
    with pytest.raises(ValueError, match="clip and scale"):
        add(start(means_around(LIMIT)), np.array([0.5, value]))


@pytest.mark.parametrize("middle", [0.0, 1.0, -1.0, float("nan")])
def test_a_middle_outside_is_refused(middle: float) -> None:
    with pytest.raises(ValueError, match="inside"):
        means_around(middle)


@pytest.mark.parametrize(("n", "spread"), [(60, 0.01), (400, 0.03), (3_000, 0.08)])
def test_what_is_called_visible_is_seen_in_about_half_of_runs(n: int, spread: float) -> None:
    excess = visible_excess(LIMIT, spread, n, ALPHA)
    mean = LIMIT + excess
    shape = mean * (mean * (1 - mean) / spread**2 - 1)
    rng = np.random.default_rng(11)

    def seen(share: float) -> float:
        shift = LIMIT + share * excess - mean
        runs = (np.clip(rng.beta(shape, shape / mean - shape, n) + shift, 0, 1) for _ in range(80))
        paths = (evidence_path(run, LIMIT, Side.ABOVE)[-1] for run in runs)
        return float(np.mean([path >= np.log(2 / ALPHA) for path in paths]))

    assert seen(1.0) > 0.4
    assert seen(0.4) < 0.5


def test_nothing_is_visible_before_there_is_evidence() -> None:
    assert visible_excess(LIMIT, 0.01, 3, ALPHA) == np.inf
    assert visible_excess(LIMIT, float("nan"), 1, ALPHA) == np.inf
    assert visible_excess(LIMIT, 0.0, 500, ALPHA) < 0.001
