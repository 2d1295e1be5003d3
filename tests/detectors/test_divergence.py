"""Divergences: right when nothing changed, bounds hold, estimates are unbiased."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import rel_entr

from detectors.divergence import (
    common_tokens,
    grid_divergence,
    head_k3,
    jensen_shannon_bounds,
    k1,
    k3,
    kl_lower_bound,
    total_variation_bounds,
)
from detectors.records import FloatArray, IntArray
from detectors.signals import NATS_GRID

TOKENS = 40


def pairs(n: int, noise: float, seed: int = 1) -> tuple[FloatArray, FloatArray]:
    """Return n pairs of distributions over TOKENS tokens, Q near P."""
    rng = np.random.default_rng(seed)
    p = np.maximum(rng.dirichlet(np.full(TOKENS, 0.4), size=n), 1e-12)
    q = p * np.exp(noise * rng.normal(size=p.shape))
    return p / p.sum(axis=1, keepdims=True), q / q.sum(axis=1, keepdims=True)


def heads(p: FloatArray, q: FloatArray, k: int) -> tuple[FloatArray, FloatArray, IntArray]:
    """Return logprobs of the k largest of P under both, and which tokens those are."""
    top = np.argsort(-p, axis=1)[:, :k].astype(np.int64)
    return np.log(np.take_along_axis(p, top, 1)), np.log(np.take_along_axis(q, top, 1)), top


def kl(p: FloatArray, q: FloatArray) -> FloatArray:
    found: FloatArray = rel_entr(p, q).sum(axis=1)
    return found


@pytest.mark.parametrize(("n", "m"), [(500, 20_000), (2_000, 2_000), (20_000, 500)])
def test_the_null_mean_is_what_an_unchanged_signal_gives(n: int, m: int) -> None:
    rng = np.random.default_rng(n)
    found = [
        grid_divergence(
            NATS_GRID.count(rng.gamma(8, 0.5, m)), NATS_GRID.count(rng.gamma(8, 0.5, n))
        )
        for _ in range(150)
    ]

    mean = np.mean([one.kl_nats for one in found])
    null = np.mean([one.null_mean_nats for one in found])

    assert mean == pytest.approx(null, rel=0.12)


def test_a_shift_shows_in_every_measure_and_the_true_kl_is_met() -> None:
    rng = np.random.default_rng(4)
    reference = NATS_GRID.count(rng.normal(4.0, 1.0, 100_000))
    live = NATS_GRID.count(rng.normal(5.0, 1.0, 100_000))

    found = grid_divergence(reference, live)

    assert found.kl_nats == pytest.approx(0.5, abs=0.02)  # (shift / sd)^2 / 2
    assert found.excess_nats == pytest.approx(0.5, abs=0.02)
    assert 0.1 < found.js_nats < np.log(2)


def test_counts_far_apart_stay_finite() -> None:
    found = grid_divergence(np.array([1000, 0, 0]), np.array([0, 0, 1000]))

    assert 5 < found.kl_nats < 20
    assert found.js_nats == pytest.approx(np.log(2), abs=0.01)


def test_one_shared_bin_is_no_divergence() -> None:
    found = grid_divergence(np.array([0, 1000, 0]), np.array([0, 7, 0]))

    assert (found.kl_nats, found.null_mean_nats, found.cells) == (0.0, 0.0, 1)


@pytest.mark.parametrize(
    ("reference", "live", "message"),
    [
        ([1, 2], [1, 2, 3], "shapes"),
        ([0, 0], [1, 2], "0 reference and 3 live"),
        ([1, 2], [0, 0], "3 reference and 0 live"),
        ([1, -2], [1, 2], "negative"),
    ],
)
def test_counts_that_cannot_be_compared_are_refused(
    reference: list[int], live: list[int], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        grid_divergence(np.array(reference), np.array(live))


@pytest.mark.parametrize("k", [1, 5, 20])
@pytest.mark.parametrize("noise", [0.02, 0.5, 3.0])
def test_the_bounds_contain_the_truth_in_every_position(k: int, noise: float) -> None:
    p, q = pairs(3000, noise)
    p_head, q_head, _ = heads(p, q, k)

    common = common_tokens(p_head, q_head)
    variation = np.abs(p - q).sum(axis=1) / 2
    shannon = (kl(p, (p + q) / 2) + kl(q, (p + q) / 2)) / 2

    assert (kl_lower_bound(common) <= kl(p, q) + 1e-9).all()
    low, high = total_variation_bounds(common)
    assert ((low <= variation + 1e-9) & (variation <= high + 1e-9)).all()
    low, high = jensen_shannon_bounds(common)
    assert ((low <= shannon + 1e-9) & (shannon <= high + 1e-9)).all()


def test_with_the_whole_vocabulary_known_the_bounds_meet() -> None:
    p, q = pairs(100, 0.5)

    common = common_tokens(np.log(p), np.log(q))

    np.testing.assert_allclose(kl_lower_bound(common), kl(p, q), atol=1e-9)
    low, high = total_variation_bounds(common)
    np.testing.assert_allclose(low, high, atol=1e-9)


@pytest.mark.parametrize("k", [1, 5])
def test_the_expected_estimates_are_the_kl(k: int) -> None:
    p, q = pairs(50, 0.7)
    p_head, q_head, top = heads(p, q, k)
    common = common_tokens(p_head, q_head)

    expected = {"k1": 0.0, "k3": 0.0, "head": 0.0}
    sums: dict[str, FloatArray] = {name: np.zeros(len(p)) for name in expected}
    for token in range(TOKENS):  # the expectation, exactly: over all tokens that may come
        lp, lq, outside = np.log(p[:, token]), np.log(q[:, token]), ~(top == token).any(axis=1)
        sums["k1"] += p[:, token] * k1(lp, lq)
        sums["k3"] += p[:, token] * k3(lp, lq)
        sums["head"] += p[:, token] * head_k3(common, lp, lq, outside)

    for name, found in sums.items():
        np.testing.assert_allclose(found, kl(p, q), atol=1e-6, err_msg=name)


def test_the_head_makes_the_estimate_quieter_and_never_negative() -> None:
    p, q = pairs(3000, 0.1)
    rng = np.random.default_rng(3)
    tokens = np.array([rng.choice(TOKENS, p=row) for row in p])
    rows = np.arange(len(p))
    lp, lq = np.log(p[rows, tokens]), np.log(q[rows, tokens])
    p_head, q_head, top = heads(p, q, 10)
    outside = ~(top == tokens[:, None]).any(axis=1)

    found = head_k3(common_tokens(p_head, q_head), lp, lq, outside)

    assert (found >= 0).all()
    assert (k3(lp, lq) >= 0).all()
    assert np.std(found) < 0.75 * np.std(k3(lp, lq))
    assert np.std(k3(lp, lq)) < 0.5 * np.std(k1(lp, lq))


def test_padding_is_no_token_and_must_be_the_same_on_both_sides() -> None:
    p = np.log([[0.5, 0.25], [0.5, np.nan]])

    common = common_tokens(p, p)

    np.testing.assert_allclose(common.p_rest, [0.25, 0.5])
    with pytest.raises(ValueError, match="padding differ"):
        common_tokens(p, np.log([[0.5, np.nan], [0.5, 0.5]]))
    with pytest.raises(ValueError, match=r"add to 1\.2"):
        common_tokens(np.log([[0.6, 0.6]]), np.log([[0.5, 0.5]]))
