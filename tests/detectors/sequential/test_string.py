"""The taut string finds the distribution of a band that is nearest to a target."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import Bounds, LinearConstraint, minimize

from detectors.records import FloatArray
from detectors.sequential.string import taut_string


def a_tube(rng: np.random.Generator, size: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return cumulative Q and a monotone tube around another distribution."""
    center = np.cumsum(rng.dirichlet(np.full(size + 1, 2.0)))[:-1]
    width = rng.uniform(0.01, 0.3)
    low = np.maximum.accumulate(np.maximum(center - width * rng.uniform(0.1, 1, size), 0))
    high = np.minimum(center + width * rng.uniform(0.1, 1, size), 1)
    high = np.minimum.accumulate(high[::-1])[::-1]
    target = np.cumsum(rng.dirichlet(np.full(size + 1, 2.0)) * 0.98 + 0.02 / (size + 1))[:-1]
    return target, low, np.maximum(high, low)


def divergence(target: FloatArray, cumulative: FloatArray) -> float:
    q = np.diff(target, prepend=0.0, append=1.0)
    p = np.diff(cumulative, prepend=0.0, append=1.0)
    return float((q * np.log(q / np.maximum(p, 1e-12))).sum())


def solved(target: FloatArray, low: FloatArray, high: FloatArray) -> float:
    """Return the least divergence that a solver for any convex problem finds."""
    size = len(target)
    rises = LinearConstraint(
        np.eye(size + 1, size) - np.eye(size + 1, size, k=-1),
        np.append(np.full(size, 1e-9), 1e-9 - 1),
        np.inf,
    )
    found = minimize(
        partial(divergence, target),
        np.linspace(0, 1, size + 2)[1:-1] * 1e-3 + (low + high) / 2 * 0.999,
        method="SLSQP",
        bounds=Bounds(low, high),
        constraints=[rises],
        tol=1e-13,
    )
    return float(found.fun)


@given(seed=st.integers(0, 2**32 - 1), size=st.integers(1, 5))
@settings(max_examples=40, deadline=None)
def test_no_solver_finds_a_nearer_distribution(seed: int, size: int) -> None:
    target, low, high = a_tube(np.random.default_rng(seed), size)

    string = taut_string(target, low, high)
    generic = solved(target, low, high)

    assert divergence(target, string) <= generic + 1e-6


@given(seed=st.integers(0, 2**32 - 1), size=st.integers(1, 40))
@settings(max_examples=60, deadline=None)
def test_the_string_rises_inside_its_tube(seed: int, size: int) -> None:
    target, low, high = a_tube(np.random.default_rng(seed), size)

    string = taut_string(target, low, high)

    assert (low <= string).all()
    assert (string <= high).all()
    assert (np.diff(string, prepend=0.0, append=1.0) > -1e-12).all()


def test_a_target_inside_the_tube_is_its_own_string() -> None:
    target = np.asarray([0.2, 0.5, 0.9])

    string = taut_string(target, target - 0.05, np.minimum(target + 0.05, 1.0))

    np.testing.assert_allclose(string, target, atol=1e-15)


def test_a_tube_without_width_gives_back_itself() -> None:
    only = np.asarray([0.1, 0.4, 0.7])

    string = taut_string(np.asarray([0.3, 0.5, 0.95]), only, only)

    np.testing.assert_allclose(string, only, atol=1e-15)


def test_time_grows_with_the_thresholds_and_not_with_their_square() -> None:
    rng = np.random.default_rng(1)

    target, low, high = a_tube(rng, 200_000)

    assert len(taut_string(target, low, high)) == 200_000  # hours, were it quadratic


@pytest.mark.parametrize("target", [[0.5, 0.5], [0.0, 0.5], [0.5, 1.0], [np.nan, 0.5]])
def test_a_target_that_does_not_rise_is_refused(target: list[float]) -> None:
    with pytest.raises(ValueError, match="must rise strictly"):
        taut_string(np.asarray(target), np.zeros(2), np.ones(2))


def test_a_tube_that_is_upside_down_is_refused() -> None:
    with pytest.raises(ValueError, match="over high"):
        taut_string(np.asarray([0.5]), np.asarray([0.6]), np.asarray([0.4]))
