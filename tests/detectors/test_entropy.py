"""Entropy from truncated logprobs: bounds hold, the estimate is unbiased, features count."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detectors.entropy import (
    AnswerTokens,
    answer_features,
    clean_logprobs,
    entropy_bounds,
    entropy_estimate,
    entropy_of_logits,
    entropy_of_logits_torch,
    head_of,
    tail_means,
    tail_price,
)
from detectors.records import FloatArray
from tests.parts import need_module

VOCABULARY = 50


def distributions(n: int, seed: int, sharpness: float = 0.3) -> FloatArray:
    """Return `n` distributions over the vocabulary, each in descending order."""
    rng = np.random.default_rng(seed)
    drawn = rng.dirichlet(np.full(VOCABULARY, sharpness), size=n)
    return -np.sort(-np.maximum(drawn, 1e-12), axis=1)


def entropy(p: FloatArray) -> FloatArray:
    found: FloatArray = -(p * np.log(p)).sum(axis=1)
    return found


@pytest.mark.parametrize("k", [1, 2, 5, 20])
@pytest.mark.parametrize("sharpness", [0.05, 0.3, 3.0])
def test_the_bounds_contain_the_truth_in_every_position(k: int, sharpness: float) -> None:
    p = distributions(2000, seed=k, sharpness=sharpness)

    lower, upper = entropy_bounds(np.log(p[:, :k]), VOCABULARY)

    truth = entropy(p / p.sum(axis=1, keepdims=True))
    assert (lower <= truth + 1e-9).all()
    assert (truth <= upper + 1e-9).all()
    assert (lower >= 0).all()


def test_the_bounds_are_reached_by_the_distributions_that_define_them() -> None:
    even = np.array([0.5, 0.3, *([0.2 / 8] * 8)])
    piled = np.array([0.5, 0.3, 0.2])
    top = np.log([[0.5, 0.3]])

    lower, upper = entropy_bounds(top, 10)

    assert upper[0] == pytest.approx(-(even * np.log(even)).sum())
    assert lower[0] == pytest.approx(-(piled * np.log(piled)).sum())


def test_a_sampled_token_outside_the_list_narrows_the_bounds() -> None:
    p = distributions(500, seed=3)
    top, outside = np.log(p[:, :3]), np.log(p[:, 7])

    lower, upper = entropy_bounds(top, VOCABULARY)
    closer_lower, closer_upper = entropy_bounds(top, VOCABULARY, outside)
    unchanged, _ = entropy_bounds(top, VOCABULARY, np.full(500, np.nan))

    truth = entropy(p)
    assert (lower <= closer_lower + 1e-9).all()
    assert (closer_lower <= truth + 1e-9).all()
    assert (truth <= closer_upper + 1e-9).all()
    assert (closer_upper <= upper + 1e-9).all()
    np.testing.assert_allclose(unchanged, lower)


def test_a_certain_position_has_no_entropy() -> None:
    lower, upper = entropy_bounds(np.array([[0.0, -np.inf]]), VOCABULARY)

    assert (lower[0], upper[0]) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("top", "vocabulary", "message"),
    [
        ([[np.nan, -1.0]], 50, "hold NaN"),
        ([[-0.1, -0.1]], 50, "add to 1.8"),
        ([[-1.0, -1.0]], 2, "expected more than the 2"),
    ],
)
def test_what_is_no_list_of_logprobs_is_refused(
    top: list[list[float]], vocabulary: int, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        entropy_bounds(np.array(top), vocabulary)


@pytest.mark.parametrize("k", [1, 3, 5])
@pytest.mark.parametrize("assumed", [VOCABULARY, 128_000])
def test_the_expected_estimate_is_the_entropy_whatever_vocabulary_is_assumed(
    k: int, assumed: int
) -> None:
    p = distributions(20, seed=7)
    p = p / p.sum(axis=1, keepdims=True)
    head = head_of(np.log(p[:, :k]), k)
    price = tail_price(head, assumed, k)

    expected = np.zeros(len(p))
    for token in range(VOCABULARY):  # the expectation, exactly: over all tokens that may come
        outside = np.full(len(p), token >= k)
        estimate = entropy_estimate(head, np.log(p[:, token]), outside, price)
        expected += p[:, token] * estimate

    np.testing.assert_allclose(expected, entropy(p), atol=1e-9)


def test_the_estimate_is_quieter_than_the_surprisal() -> None:
    p = distributions(4000, seed=8)
    p = p / p.sum(axis=1, keepdims=True)
    rng = np.random.default_rng(9)
    tokens = np.array([rng.choice(VOCABULARY, p=row) for row in p])
    sampled = np.log(p[np.arange(len(p)), tokens])
    head = head_of(np.log(p[:, :5]), 5)
    estimate = entropy_estimate(head, sampled, tokens >= 5, tail_price(head, VOCABULARY, 5))

    truth = entropy(p)

    assert np.std(estimate - truth) < 0.7 * np.std(-sampled - truth)
    assert np.mean(estimate - truth) == pytest.approx(0, abs=0.05)


def test_clamps_and_infinities_are_missing_and_logits_are_refused() -> None:
    cleaned = clean_logprobs(np.array([-0.5, -9999.0, -1000.0, -np.inf, np.nan, 0.0, 1e-7]))

    np.testing.assert_array_equal(np.isnan(cleaned), [False, True, True, True, True, False, False])
    with pytest.raises(ValueError, match="reports logits"):
        clean_logprobs(np.array([-0.5, 0.1]))
    assert clean_logprobs(np.array([])).size == 0


def answers(*sampled: list[float]) -> AnswerTokens:
    """Return answers of sampled tokens alone."""
    flat = np.array([value for one in sampled for value in one], dtype=np.float64)
    return AnswerTokens(
        sampled=flat,
        top=np.empty((len(flat), 0)),
        k=0,
        outside=None,
        complete=np.ones(len(flat), dtype=np.bool_),
        offsets=np.concatenate([[0], np.cumsum([len(one) for one in sampled])]),
    )


logprobs = st.one_of(
    st.floats(-20, 0), st.floats(-0.02, 0), st.just(math.nan), st.just(math.log(0.5))
)


@given(st.lists(st.lists(logprobs, max_size=12), min_size=1, max_size=6))
def test_the_features_of_many_answers_are_those_of_each_alone(given: list[list[float]]) -> None:
    found = answer_features(answers(*given))

    for row, one in enumerate(given):
        costs = [-x for x in one if not math.isnan(x)]
        runs = "".join("1" if math.exp(x) > 0.99 else "0" for x in one).split("0")
        expected = {
            "output_surprisal_mean_nats": sum(costs) / len(costs) if costs else math.nan,
            "output_unlikely_ratio": sum(math.exp(-x) < 0.1 for x in costs) / len(costs)
            if costs
            else math.nan,
            "output_surprisal_p90_nats": sorted(costs)[math.ceil(0.9 * len(costs) - 1e-9) - 1]
            if costs
            else math.nan,
            "output_longest_sure_run_tokens": max(map(len, runs)) if costs else math.nan,
        }
        for name, value in expected.items():
            assert found[name][row] == pytest.approx(value, abs=1e-9, nan_ok=True), name


def test_without_candidates_the_distribution_is_unknown() -> None:
    found = answer_features(answers([-1.0, -2.0]))

    assert np.isnan(found["output_entropy_nats"]).all()
    assert np.isnan(found["output_frozen_ratio"]).all()


def test_a_frozen_answer_is_frozen_and_a_free_one_is_not() -> None:
    top = np.log([[0.9999, 0.00005], [0.4, 0.3]])
    tokens = AnswerTokens(
        sampled=top[:, 0],
        top=top,
        k=2,
        outside=None,
        complete=np.array([True, True]),
        offsets=np.array([0, 1, 2]),
    )

    found = answer_features(tokens, VOCABULARY)

    assert found["output_frozen_ratio"].tolist() == [1.0, 0.0]


def test_short_lists_are_left_out_of_the_entropy_and_not_of_the_surprisal() -> None:
    top = np.log([[0.5, 0.5], [0.1, np.nan]])
    tokens = AnswerTokens(
        sampled=np.log([0.5, 0.1]),
        top=top,
        k=2,
        outside=None,
        complete=np.array([True, False]),
        offsets=np.array([0, 2]),
    )

    found = answer_features(tokens, VOCABULARY)

    assert found["output_entropy_nats"][0] == pytest.approx(math.log(2))
    assert found["output_surprisal_mean_nats"][0] == pytest.approx((math.log(2) + math.log(10)) / 2)


def test_tail_means_read_the_end_of_each_span() -> None:
    values = np.array([9.0, 1.0, np.nan, 3.0, 5.0])

    found = tail_means(values, np.array([0, 4, 4, 5]), window=3)

    np.testing.assert_array_equal(found, [2.0, np.nan, 5.0])


def test_full_logits_give_the_exact_entropy() -> None:
    logits = np.array([[0.0, 0.0, -np.inf], [1e4, 0.0, 0.0], [1.0, 1.0, 1.0]])

    found = entropy_of_logits(logits)

    np.testing.assert_allclose(found, [math.log(2), 0.0, math.log(3)], atol=1e-12)


def test_torch_gives_what_numpy_gives() -> None:
    need_module("torch", install="pip install 'fusewire[torch]'")
    import torch

    logits = np.random.default_rng(1).normal(size=(7, 3000)).astype(np.float32) * 4
    logits[:, 5] = -np.inf

    for dtype, tolerance in ((torch.float32, 1e-5), (torch.bfloat16, 0.05)):
        found = entropy_of_logits_torch(torch.from_numpy(logits).to(dtype)).numpy()
        np.testing.assert_allclose(found, entropy_of_logits(logits.astype(float)), atol=tolerance)
