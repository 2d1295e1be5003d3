"""The distance of two sets of answers: known values, symmetry, and what is not told."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.sources.server.canary_answers import AnswersError, Reference, divergence_nats
from detectors.records import Identity


def logs(**shares: float) -> dict[str, float]:
    return {token: math.log(share) for token, share in shares.items()}


def test_whole_distributions_give_the_textbook_value() -> None:
    p, q = logs(a=0.7, b=0.3), logs(a=0.4, b=0.6)
    forward = 0.7 * math.log(0.7 / 0.4) + 0.3 * math.log(0.3 / 0.6)
    backward = 0.4 * math.log(0.4 / 0.7) + 0.6 * math.log(0.6 / 0.3)

    assert divergence_nats([p], [q]) == pytest.approx((forward + backward) / 2, abs=1e-4)
    assert divergence_nats([p, p], [p, q]) == pytest.approx((forward + backward) / 4, abs=1e-4)


def test_answers_without_a_token_in_common_are_far_apart() -> None:
    assert divergence_nats([logs(a=0.9)], [logs(b=0.9)]) > 1.0


def test_a_token_that_fell_off_the_end_of_a_list_makes_little_difference() -> None:
    p = logs(a=0.6, b=0.2, c=0.0101)
    q = logs(a=0.6, b=0.2, d=0.0101)

    assert divergence_nats([p], [q]) < 1e-3


DISTRIBUTIONS = st.dictionaries(
    st.sampled_from("abcdefgh"), st.floats(0.001, 1.0), min_size=1, max_size=8
).map(lambda found: {it: math.log(found[it] / (sum(found.values()) + 0.05)) for it in found})


@settings(max_examples=100, deadline=None)
@given(
    first=st.lists(DISTRIBUTIONS, min_size=3, max_size=3),
    second=st.lists(DISTRIBUTIONS, min_size=3, max_size=3),
)
def test_it_is_symmetric_finite_and_zero_only_between_equals(
    first: list[dict[str, float]], second: list[dict[str, float]]
) -> None:
    there, back = divergence_nats(first, second), divergence_nats(second, first)

    assert there == pytest.approx(back)
    assert 0.0 <= there < math.inf
    assert divergence_nats(first, first) == 0.0


@settings(max_examples=100, deadline=None)
@given(first=st.lists(DISTRIBUTIONS, min_size=2, max_size=2), floor=st.floats(0, 1))
def test_a_reference_comes_back_as_it_was(first: list[dict[str, float]], floor: float) -> None:
    reference = Reference("key", Identity("vllm", "1", "m"), tuple(first), floor, changed=True)

    assert Reference.load(reference.save()) == reference


@settings(max_examples=100, deadline=None)
@given(data=st.binary(max_size=60))
def test_random_bytes_are_a_reference_or_refused(data: bytes) -> None:
    try:
        reference = Reference.load(data)
    except AnswersError:
        return
    assert divergence_nats(reference.answers, reference.answers) == 0.0


@pytest.mark.parametrize(
    ("first", "second"),
    [([], []), ([{"a": 0.0}], []), ([{}], [{"a": 0.0}]), ([{"a": 0.5}], [{"a": 0.5}])],
    ids=["nothing", "of other prompts", "an empty answer", "no logprobs"],
)
def test_what_cannot_be_compared_is_refused(
    first: list[dict[str, float]], second: list[dict[str, float]]
) -> None:
    with pytest.raises(AnswersError, match="expected"):
        divergence_nats(first, second)
