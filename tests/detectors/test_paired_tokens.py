"""Figures of one request: estimates unbiased, bounds hold the truth, hidden tokens count low."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import rel_entr

from detectors.paired_tokens import PairedTokens, figures_of
from detectors.records import FloatArray

VOCABULARY = 30


def models(n: int, seed: int = 3) -> tuple[FloatArray, FloatArray]:
    """Return n pairs of distributions, from near ones to far ones, some sharp and some flat."""
    rng = np.random.default_rng(seed)
    p, q = np.empty((2, n, VOCABULARY))
    for row in range(n):
        p[row] = rng.dirichlet(np.full(VOCABULARY, rng.choice([0.05, 0.3, 2.0])))
        mixed = rng.dirichlet(np.full(VOCABULARY, 0.3))
        q[row] = np.maximum(p[row], 1e-9) ** rng.uniform(0.5, 1.5) + rng.choice([0, 0.1, 9]) * mixed
    p = np.maximum(p, 1e-9)
    return p / p.sum(axis=1, keepdims=True), q / q.sum(axis=1, keepdims=True)


def paired(p: FloatArray, q: FloatArray, drawn: FloatArray, k: int) -> PairedTokens:
    """Return positions with the tokens that are in the k largest of both."""
    rows = np.arange(len(p))
    places = drawn.astype(np.int64)
    common = np.ones(p.shape, dtype=np.bool_)
    for side in (p, q):
        largest = np.zeros(p.shape, dtype=np.bool_)
        largest[rows[:, None], np.argsort(-side, axis=1)[:, :k]] = True
        common &= largest
    return PairedTokens(
        p=np.log(p[rows, places]),
        q=np.log(q[rows, places]),
        q_most=np.zeros(len(p)),
        p_common=np.where(common, np.log(p), np.nan),
        q_common=np.where(common, np.log(q), np.nan),
        listed=np.ones(len(p), dtype=np.bool_),
        outside=~common[rows, places],
    )


def one_position(tokens: PairedTokens, place: int) -> PairedTokens:
    cut = slice(place, place + 1)
    return PairedTokens(
        tokens.p[cut],
        tokens.q[cut],
        tokens.q_most[cut],
        tokens.p_common[cut],
        tokens.q_common[cut],
        tokens.listed[cut],
        tokens.outside[cut],
    )


def jensen_shannon(p: FloatArray, q: FloatArray) -> FloatArray:
    middle = (p + q) / 2
    found: FloatArray = (rel_entr(p, middle) + rel_entr(q, middle)).sum(axis=-1) / 2
    return found


@pytest.mark.slow
@pytest.mark.parametrize("k", [1, 5, 20])
def test_bounds_hold_the_truth_of_ten_thousand_pairs_of_models(k: int) -> None:
    p, q = models(10_000)
    tokens = paired(p, q, np.zeros(len(p)), k)
    kl, js = rel_entr(p, q).sum(axis=1), jensen_shannon(p, q)
    tv = np.abs(p - q).sum(axis=1) / 2

    for place in range(len(p)):
        found = figures_of(one_position(tokens, place))
        assert found.kl_lower_nats <= kl[place] + 1e-9
        assert found.js_lower_nats - 1e-9 <= js[place] <= found.js_upper_nats + 1e-9
        assert found.tv_lower - 1e-9 <= tv[place] <= found.tv_upper + 1e-9


@pytest.mark.parametrize("k", [1, 5, 20])
def test_bounds_hold_the_truth_on_average_over_positions(k: int) -> None:
    p, q = models(400, seed=k)
    found = figures_of(paired(p, q, np.zeros(len(p)), k))

    assert 0 <= found.kl_lower_nats <= rel_entr(p, q).sum(axis=1).mean()
    assert found.js_lower_nats <= jensen_shannon(p, q).mean() <= found.js_upper_nats
    assert found.tv_lower <= np.abs(p - q).sum(axis=1).mean() / 2 <= found.tv_upper


def test_estimates_mean_the_true_divergence_exactly() -> None:
    p, q = models(40, seed=9)
    truth = rel_entr(p, q).sum(axis=1)
    drawn = np.arange(VOCABULARY)

    for row in range(len(p)):
        same = np.tile(p[row], (VOCABULARY, 1)), np.tile(q[row], (VOCABULARY, 1))
        tokens = paired(*same, drawn.astype(np.float64), 5)
        each = [figures_of(one_position(tokens, place)) for place in range(VOCABULARY)]
        for values in (
            [one.k3_nats for one in each],
            [one.k1_nats for one in each],
            [one.head_k3_nats for one in each],
        ):
            assert p[row] @ np.array(values) == pytest.approx(truth[row], rel=1e-9, abs=1e-9)


def test_the_same_model_diverges_by_nothing() -> None:
    p, _ = models(50)
    found = figures_of(paired(p, p, np.zeros(50), 5))

    assert found.k3_nats == found.k1_nats == found.head_k3_nats == found.kl_lower_nats == 0
    assert found.js_lower_nats == found.tv_lower == 0


def test_supports_without_a_common_token_are_counted_and_bounded() -> None:
    p = np.full((4, VOCABULARY), 1e-6)
    q = p.copy()
    p[:, :2] = q[:, 2:4] = 0.5
    found = figures_of(
        paired(p / p.sum(1, keepdims=True), q / q.sum(1, keepdims=True), np.zeros(4), 2)
    )

    assert found.disjoint == found.listed == 4
    assert found.js_upper_nats == pytest.approx(np.log(2))
    assert found.k3_nats > 10


def test_a_hidden_token_counts_as_little_as_it_can() -> None:
    p, q = models(200, seed=5)
    tokens = paired(p, q, np.zeros(200), 5)
    known = figures_of(tokens)
    hide = np.arange(200) % 3 == 0
    hidden = replace(tokens, q=np.where(hide, np.nan, tokens.q))
    capped = replace(hidden, q_most=np.where(hide, tokens.q, 0.0))

    assert figures_of(hidden).hidden == hide.sum()
    assert figures_of(hidden).k3_nats <= figures_of(capped).k3_nats <= known.k3_nats + 1e-12
    assert figures_of(hidden).head_k3_nats <= known.head_k3_nats + 1e-12
    assert figures_of(capped).k3_nats > figures_of(hidden).k3_nats


def test_without_lists_only_the_sampled_tokens_speak() -> None:
    p, q = models(20)
    tokens = replace(paired(p, q, np.zeros(20), 5), listed=np.zeros(20, dtype=np.bool_))
    found = figures_of(tokens)

    assert found.listed == 0
    assert found.k3_nats > 0
    assert np.isnan([found.head_k3_nats, found.kl_lower_nats, found.js_upper_nats]).all()


def test_what_is_no_request_is_refused() -> None:
    p, q = models(3)
    tokens = paired(p, q, np.zeros(3), 5)

    with pytest.raises(ValueError, match="at least one position"):
        figures_of(replace(tokens, p=np.array([])))
    with pytest.raises(ValueError, match="at least one position"):
        figures_of(replace(tokens, p=np.full(3, np.nan)))
    with pytest.raises(ValueError, match="expected at most 1"):
        figures_of(replace(tokens, p_common=np.zeros((3, 2)), q_common=np.zeros((3, 2))))
