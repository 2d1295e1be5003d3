"""The design effect: of independent traffic near 1, of dependent traffic what theory says."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.signal import lfilter

from detectors.records import FloatArray
from detectors.sequential.design_effect import LEAST_TAU, DesignEffect, design_effect
from tests.detectors.sequential.drawn import a_band, by_tick

BAND = a_band(np.random.default_rng(0), 50_000)


def autoregressive(rng: np.random.Generator, size: int, rho: float) -> FloatArray:
    noise = rng.normal(size=size + 1000) * np.sqrt(1 - rho**2)
    return lfilter([1.0], [1.0, -rho], noise)[1000:]


def of(values: FloatArray, size: int = 10) -> DesignEffect:
    return design_effect(by_tick(values[None], BAND, size)[:, 0])


def test_independent_requests_are_near_the_least() -> None:
    found = of(np.random.default_rng(1).normal(size=20_000))

    assert LEAST_TAU <= found.tau <= 1.7
    assert found.known


@pytest.mark.parametrize(("rho", "low", "high"), [(0.5, 2.0, 4.5), (0.9, 9, 25), (0.98, 35, 130)])
def test_autocorrelated_requests_tell_as_little_as_they_do(
    rho: float, low: float, high: float
) -> None:
    found = of(autoregressive(np.random.default_rng(2), 20_000, rho))

    assert low <= found.tau <= high


def test_sessions_of_a_user_are_seen() -> None:
    rng = np.random.default_rng(3)
    users = np.repeat(rng.normal(size=2000), rng.geometric(1 / 20, size=2000))
    values = np.sqrt(0.5) * users + np.sqrt(0.5) * rng.normal(size=len(users))

    assert 8 <= of(values).tau <= 25


def test_too_few_blocks_or_a_constant_are_not_known() -> None:
    few = of(np.random.default_rng(4).normal(size=100))
    constant = of(np.full(5000, 3.0))
    nothing = design_effect(np.zeros((0, 4), dtype=np.int64))

    for found in (few, constant, nothing):
        assert not found.known
        assert found.tau == LEAST_TAU


def test_empty_ticks_do_not_count_as_blocks() -> None:
    values = np.random.default_rng(5).normal(size=4000)
    counts = by_tick(values[None], BAND, 10)[:, 0]
    with_gaps = np.zeros((len(counts) * 2, counts.shape[1]), dtype=np.int64)
    with_gaps[::2] = counts

    found = design_effect(with_gaps)

    assert found.tick_requests == 5.0
    assert LEAST_TAU <= found.tau <= 1.8


def test_at_much_higher_rates_a_tick_tells_no_more_than_its_correlation_allows() -> None:
    found = DesignEffect(tau=5.0, ticks=1, blocks=100, tick_requests=21.0)

    many = np.asarray([1.0, 21.0, 1e3, 1e6])
    tau = found.at(many)

    assert found.correlation == pytest.approx(0.2)
    np.testing.assert_allclose(tau, [5.0, 5.0, 200.8, 200_000.8])
    assert (many / tau)[-1] == pytest.approx(1 / 0.2, rel=1e-3)


def test_correlation_is_at_most_one() -> None:
    assert DesignEffect(5.0, 1, 100, 2.0).correlation == 1.0
    assert DesignEffect(1.2, 1, 0, 0.5).correlation == 1.0
