"""Two samples of one number: scipy is the referee, on ties, infinities, any type and any size."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from detectors.ks_tail import MOST_EXACT, two_sample_p
from detectors.records import FloatArray
from detectors.two_sample import (
    NumberArray,
    common_type,
    ks_of,
    pair_of,
    psi_of,
    psi_of_counts,
    quantile_shifts,
    shares_below,
    wasserstein_of,
)

LENGTHS = st.integers(1, 40)
FEW_VALUES = st.sampled_from([0.0, -0.0, 1.0, 2.5, -np.inf, np.inf, 1e300, 5e-324])
FLOATS = hnp.arrays(np.float64, LENGTHS, elements=st.floats(allow_nan=False) | FEW_VALUES)
TIED = hnp.arrays(np.float64, LENGTHS, elements=FEW_VALUES)
SINGLE = hnp.arrays(np.float32, LENGTHS, elements=st.floats(allow_nan=False, width=32))
WHOLE = hnp.arrays(np.int64, LENGTHS, elements=st.integers(-(2**63), 2**63 - 1))
UNSIGNED = hnp.arrays(np.uint64, LENGTHS, elements=st.integers(0, 2**64 - 1))
SMALL = hnp.arrays(np.int8, LENGTHS, elements=st.integers(-3, 3))
TRUTHS = hnp.arrays(np.uint8, LENGTHS, elements=st.integers(0, 1))
SAMPLES = st.one_of(
    *(st.tuples(kind, kind) for kind in (FLOATS, TIED, SINGLE, WHOLE, UNSIGNED, SMALL, TRUTHS)),
    st.tuples(FLOATS, TIED),
    st.tuples(SINGLE, FLOATS),
    st.tuples(SMALL, WHOLE),
)


def by_scipy(reference: Any, current: Any) -> tuple[float, float | None]:
    """Return scipy's distance and p-value; None for p where scipy says that it gave up."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        try:
            found: Any = stats.ks_2samp(reference, current)
        except RuntimeWarning:
            warnings.simplefilter("ignore", RuntimeWarning)
            return float(stats.ks_2samp(reference, current).statistic), None
    return float(found.statistic), float(found.pvalue)


@settings(max_examples=300, deadline=None)
@given(SAMPLES)
def test_distance_and_p_equal_scipys(samples: tuple[NumberArray, NumberArray]) -> None:
    reference, current = samples
    distance, p = by_scipy(reference, current)

    found = ks_of(pair_of(reference, current))

    assert found.distance == pytest.approx(distance, abs=1e-12)
    if p is not None:
        assert found.p == pytest.approx(p, rel=1e-9, abs=1e-300)


@settings(max_examples=150, deadline=None)
@given(st.tuples(*(hnp.arrays(np.float64, LENGTHS, elements=st.floats(-1e6, 1e6)),) * 2))
def test_wasserstein_equals_scipys(samples: tuple[FloatArray, FloatArray]) -> None:
    expected = float(stats.wasserstein_distance(*samples))

    found = wasserstein_of(pair_of(*samples))

    assert found == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("decimals", [9, 2, 0])
@pytest.mark.parametrize("sizes", [(70_000, 50_000), (100_000, 900), (3, 80_000)])
def test_samples_of_many_pieces_equal_scipys(sizes: tuple[int, int], decimals: int) -> None:
    rng = np.random.default_rng(sizes[0])
    reference = np.round(rng.normal(size=sizes[0]), decimals)
    current = np.round(rng.normal(0.02, 1.1, size=sizes[1]), decimals)

    pair = pair_of(reference, current)

    distance, p = by_scipy(reference, current)
    assert ks_of(pair).distance == pytest.approx(distance, abs=1e-12)
    assert ks_of(pair).p == pytest.approx(p, rel=1e-7)
    area = float(stats.wasserstein_distance(reference, current))
    assert wasserstein_of(pair) == pytest.approx(area, rel=1e-9)
    found, at = ks_of(pair).distance, np.asarray([ks_of(pair).at])
    gap = shares_below(pair.reference, at) - shares_below(pair.current, at)
    assert abs(float(gap[0])) == pytest.approx(found, abs=1e-12)


@pytest.mark.parametrize("sizes", [(9_999, 10_000), (10_000, 10_000), (10_000, 37), (1_500, 900)])
@pytest.mark.parametrize("shift", [0.0, 0.05, 0.4])
def test_exact_p_values_of_larger_samples_equal_scipys(
    sizes: tuple[int, int], shift: float
) -> None:
    rng = np.random.default_rng(5)
    samples = rng.normal(size=sizes[0]), rng.normal(size=sizes[1]) + shift

    assert max(sizes) <= MOST_EXACT
    assert ks_of(pair_of(*samples)).p == pytest.approx(by_scipy(*samples)[1], rel=1e-6)


def test_exact_p_values_are_shares_of_all_orders() -> None:
    for m, n in ((2, 3), (4, 4), (3, 5)):
        gaps = []
        for places in range(1 << (m + n)):
            steps = [places >> bit & 1 for bit in range(m + n)]
            if sum(steps) == m:
                i = np.cumsum(steps)
                gaps.append(int(np.abs(n * i - m * (np.arange(1, m + n + 1) - i)).max()))
        for gap in set(gaps):
            share = float(np.mean(np.asarray(gaps) >= gap))
            assert two_sample_p(gap, m, n) == pytest.approx(share, rel=1e-12)


def test_huge_whole_numbers_are_not_rounded() -> None:
    reference = np.asarray([2**63 - 2] * 5, dtype=np.int64)
    current = np.asarray([2**63 - 1] * 5, dtype=np.int64)

    assert ks_of(pair_of(reference, current)).distance == 1.0
    assert ks_of(pair_of(reference, current.astype(np.uint64))).distance == 1.0
    mixed = np.asarray([2**64 - 1] * 5, dtype=np.uint64)
    assert common_type(reference, mixed) == np.dtype(np.uint64)
    assert common_type(-reference, mixed) == np.dtype(np.float64)


def test_an_empty_sample_or_nan_is_an_error_in_words() -> None:
    with pytest.raises(ValueError, match="some on both sides"):
        pair_of(np.empty(0), np.ones(3))
    with pytest.raises(ValueError, match="holds NaN"):
        pair_of(np.ones(3), np.asarray([1.0, np.nan]))


def test_infinite_values_have_no_wasserstein_distance_but_a_ks_distance() -> None:
    pair = pair_of(np.asarray([0.0, np.inf]), np.asarray([0.0, 1.0]))

    assert wasserstein_of(pair) is None
    assert ks_of(pair).distance == 0.5


def test_psi_is_zero_for_equal_shares_and_grows_with_the_shift() -> None:
    rng = np.random.default_rng(1)
    reference = rng.normal(size=10_000)

    shifts = [psi_of(pair_of(reference, reference + shift)) for shift in (0.0, 0.2, 1.0)]

    assert shifts[0] == pytest.approx(0.0, abs=1e-9)
    assert shifts[0] < shifts[1] < shifts[2]
    assert shifts[2] == pytest.approx(1.0, abs=0.15)  # of two normals a deviation apart
    assert psi_of_counts(np.asarray([10, 90]), np.asarray([90, 10])) > 3


def test_quantile_intervals_cover_the_true_quantile_as_often_as_stated() -> None:
    rng = np.random.default_rng(2)
    held = np.zeros(3)
    for _ in range(300):
        pair = pair_of(rng.random(200), rng.random(7))
        shifts = quantile_shifts(pair, (0.05, 0.5, 0.95))
        for place, shift in enumerate(shifts):
            for low, high in (shift.reference_interval, shift.current_interval):
                held[place] += low <= shift.level <= high

    assert (held / 600 >= 0.94).all()


def test_a_quantile_of_few_rows_has_an_open_interval() -> None:
    (shift,) = quantile_shifts(pair_of(np.asarray([1.0, 2.0]), np.asarray([3.0])), (0.5,))

    assert shift.reference == 1.0
    assert shift.current == 3.0
    assert shift.current_interval == (-np.inf, np.inf)
