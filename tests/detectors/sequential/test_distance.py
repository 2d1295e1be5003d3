"""Distances and their bands: exact at the thresholds, right at every look."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ks_2samp

from detectors.records import FloatArray, IntArray
from detectors.sequential.band import coarse, make_band, thresholds_of
from detectors.sequential.distance import (
    calm,
    distance,
    quantile_shifts,
    time_uniform_radius,
)
from tests.detectors.sequential.drawn import EDGES, PAGE_GATE, a_band, counted, known_band


def live(rng: np.random.Generator, band_thresholds: IntArray, size: int, mean: float) -> IntArray:
    return coarse(counted(rng.normal(mean, 1, size)), band_thresholds)


@given(seed=st.integers(0, 2**32 - 1), mean=st.floats(-1, 1), size=st.integers(5, 500))
@settings(max_examples=40, deadline=None)
def test_the_distance_is_scipys_but_for_the_largest_bin(seed: int, mean: float, size: int) -> None:
    rng = np.random.default_rng(seed)
    before, now = rng.normal(size=800), rng.normal(mean, 1, size)
    band = make_band(counted(before), gate=PAGE_GATE, tau=1.0)
    counts = coarse(counted(now), band.thresholds)

    found = distance(band, counts, 1.0).value

    exact = ks_2samp(before, now, method="asymp").statistic
    assert found <= exact + 1e-12
    assert found >= exact - max((band.counts / 800).max(), (counts / size).max()) - 1e-12


def test_the_distance_is_scipys_for_values_at_thresholds() -> None:
    rng = np.random.default_rng(1)
    before = rng.normal(size=5000)
    thresholds = EDGES[thresholds_of(counted(before))]

    def snapped(values: FloatArray) -> FloatArray:
        places = np.searchsorted(thresholds, values)
        return np.append(thresholds, thresholds[-1] + 1)[places]

    now = rng.normal(0.3, 1, size=700)
    band = make_band(counted(before), gate=PAGE_GATE, tau=1.0)

    found = distance(band, coarse(counted(now), band.thresholds), 1.0).value

    exact = ks_2samp(snapped(before), snapped(now), method="asymp").statistic
    assert found == pytest.approx(exact, abs=1e-12)


def test_the_band_covers_at_every_look() -> None:
    rng = np.random.default_rng(2)
    band = known_band()
    masses = np.diff(band.low, prepend=0.0, append=1.0)
    looks = np.unique(np.rint(np.logspace(0, 5, 120)).astype(np.int64))
    steps = np.diff(looks, prepend=0)

    left = 0
    for _ in range(300):
        counts = np.cumsum(rng.multinomial(steps, masses), axis=0)
        shares = np.cumsum(counts, axis=1)[:, :-1] / looks[:, None]
        gaps = np.abs(shares - band.low).max(axis=1)
        left += int((gaps > time_uniform_radius(looks.astype(float), 0.05)).any())

    assert left <= 300 * 0.05


def test_the_radius_is_the_published_one() -> None:
    assert time_uniform_radius(np.asarray(1000.0), 0.05) == pytest.approx(0.0866, abs=2e-4)
    assert time_uniform_radius(np.asarray([0.0, 1.0]), 0.05).tolist() == [1.0, 1.0]


def test_dependence_and_a_small_baseline_widen_the_band() -> None:
    rng = np.random.default_rng(3)
    large, small = a_band(rng, 100_000), a_band(rng, 1000)
    counts = live(rng, large.thresholds, 5000, 0.0)

    plain = distance(large, counts, 1.0)
    dependent = distance(large, counts, 10.0)
    unsure = distance(small, live(rng, small.thresholds, 5000, 0.0), 1.0)

    assert plain.lower == 0 < plain.value < plain.upper
    assert dependent.upper > plain.upper + 0.05
    assert unsure.upper > plain.upper + 0.02
    assert distance(large, np.zeros_like(counts), 1.0).upper == 1.0


def test_a_change_is_over_when_it_is_surely_inside_the_gate() -> None:
    rng = np.random.default_rng(4)
    band = a_band(rng, 100_000)

    assert calm(band, live(rng, band.thresholds, 10_000, 0.0), 1.0)
    assert not calm(band, live(rng, band.thresholds, 1000, 0.0), 1.0)  # not sure yet
    assert not calm(band, live(rng, band.thresholds, 10_000, 0.15), 1.0)  # near the gate
    assert not calm(band, live(rng, band.thresholds, 10_000, 0.0), 10.0)
    assert not calm(band, np.zeros_like(band.counts), 1.0)
    tail = live(rng, band.thresholds, 100_000, 0.0)
    tail[-1] += 1000  # 1 % of a new kind: no distance to speak of, but outside the gate
    assert not calm(band, tail, 1.0)


def test_quantiles_are_upper_edges_of_their_bins() -> None:
    edges = np.asarray([1.0, 10.0, 100.0])
    before, now = np.asarray([60, 35, 5, 0]), np.asarray([10, 30, 55, 5])

    shifts = quantile_shifts(edges, before, now)

    assert [(s.level, s.baseline, s.live) for s in shifts] == [
        (0.5, 1.0, 100.0),
        (0.95, 10.0, 100.0),
        (0.99, 100.0, np.inf),
    ]
    assert quantile_shifts(edges, before, np.zeros(4, dtype=np.int64)) == ()
