"""Only tokens in the same context are paired, and a first difference is not passed over."""

from __future__ import annotations

import json

import numpy as np
import pytest

from collector.shadow.aligning import Aligned, Misfit, Way, align
from collector.shadow.reading import ScoreReader
from collector.shadow.records import Scored, Sequenced
from detectors.paired_tokens import PairedTokens, figures_of
from detectors.records import FloatArray
from tests.collector.shadow.lines import chat, completion, prompt_maps, scored, to_line


def aligned(reference: bytes, candidate: bytes) -> Aligned:
    reader = ScoreReader()
    return align(reader.read(reference), reader.read(candidate))


def tokens_of(found: Aligned) -> PairedTokens:
    assert found.tokens is not None
    return found.tokens


def stopped(line: bytes) -> bytes:
    members = json.loads(line)
    members["response"]["choices"][0]["finish_reason"] = "stop"
    return to_line(members)


def test_production_s_answer_is_paired_with_the_end_of_the_text_that_the_candidate_scored() -> None:
    found = aligned(completion(["a", "b"], [-1, -2]), scored(["S", "a", "b"], [None, -1.5, -2.5]))

    assert found.way is Way.FORCED
    assert tokens_of(found).p.tolist() == [-1, -2]
    assert tokens_of(found).q.tolist() == [-1.5, -2.5]


def test_the_token_that_ended_an_answer_may_be_missing_in_the_text() -> None:
    line = stopped(completion(["a", "<end>"], [-1, -2]))

    assert tokens_of(aligned(line, scored(["S", "a"], [None, -1.5]))).q.tolist() == [-1.5]
    assert (
        aligned(completion(["a", "<end>"], [-1, -2]), scored(["S", "a"], [None, -1])).tokens is None
    )


def test_an_answer_that_was_cut_anew_is_used_up_to_there() -> None:
    line = completion(["a", "b", "c"], [-1, -2, -3])
    found = aligned(line, scored(["S", "a", "bc"], [None, -1.5, -9]))

    assert found.misfit is Misfit.DIFFERENT_TOKENS
    assert tokens_of(found).q.tolist() == [-1.5]


def test_a_token_over_the_end_of_the_prompt_pairs_nothing() -> None:
    found = aligned(completion(["a", "b"], [-1, -2]), scored(["S", "ya", "b"], [None, -1, -2]))

    assert found.tokens is None
    assert found.misfit is Misfit.DIFFERENT_TOKENS


def test_a_text_that_does_not_end_with_the_answer_pairs_nothing() -> None:
    found = aligned(completion(["a"], [-1]), scored(["S", "z"], [None, -1]))

    assert (found.tokens, found.misfit) == (None, Misfit.DIFFERENT_TEXT)


def test_a_scored_prompt_of_the_engine_is_paired_by_text() -> None:
    maps = [None, {4: ("a", -1.5, 3), 9: ("z", -0.2, 1)}]
    tops = [{"a": -1, "z": -0.5}]
    found = aligned(completion(["a"], [-1], tops=tops), prompt_maps(maps, ids=[3, 4]))

    assert found.way is Way.FORCED
    assert tokens_of(found).q.tolist() == [-1.5]
    assert tokens_of(found).listed.all()


def test_two_scored_texts_are_paired_without_their_first_token() -> None:
    left = scored(["S", "a", "b"], [None, -1, -2])
    found = aligned(left, scored(["S", "a", "b"], [None, -1.5, None]))

    assert found.way is Way.SCORED
    assert tokens_of(found).p.tolist() == [-1, -2]
    assert np.isnan(tokens_of(found).q).tolist() == [False, True]


@pytest.mark.parametrize(
    ("other", "misfit", "paired"),
    [
        (["S", "a", "bc"], Misfit.DIFFERENT_TOKENS, 1),
        (["S", "ab", "c"], Misfit.DIFFERENT_TOKENS, 0),
        (["S", "z", "b"], Misfit.DIFFERENT_TEXT, 0),
    ],
)
def test_scored_texts_that_differ_are_paired_up_to_there(
    other: list[str], misfit: Misfit, paired: int
) -> None:
    left = scored(["S", "a", "b", "c"], [None, -1, -2, -3])
    found = aligned(left, scored(other, [None, -1, -2]))

    assert found.misfit is misfit
    assert (0 if found.tokens is None else len(found.tokens.p)) == paired


def test_answers_are_paired_up_to_and_with_the_first_difference() -> None:
    tops = [{"a": -1.0, "b": -1.1}, {"b": -0.5, "c": -1.2}, {"d": -0.1, "e": -3.0}]
    left = completion(["a", "b", "d"], [-1.0, -0.5, -0.1], tops=tops)
    right = completion(["a", "c", "e"], [-1.0, -1.2, -3.0], tops=tops)
    found = aligned(left, right)

    assert found.way is Way.FREE
    assert found.equal is False
    assert tokens_of(found).p.tolist() == [-1.0, -0.5]
    assert tokens_of(found).q.tolist() == [-1.0, -0.5]


def test_production_s_token_that_the_candidate_does_not_list_is_hidden_and_bounded() -> None:
    left = completion(
        ["x"], [-4.0], tops=[{"x": -4.0, "a": -0.5, "b": -1.5}], request={"logprobs": 2}
    )
    right = completion(["a"], [-0.5], tops=[{"a": -0.5, "b": -1.5}])
    tokens = tokens_of(aligned(left, right))

    assert np.isnan(tokens.q).all()
    assert tokens.q_most.tolist() == [-1.5]
    assert tokens.outside.all()
    assert figures_of(tokens).k3_nats == 0


def test_an_answer_that_begins_another_is_paired_to_its_end() -> None:
    found = aligned(completion(["a", "b"], [-1, -2]), completion(["a"], [-1]))

    assert found.equal is False
    assert len(tokens_of(found).p) == 1
    assert aligned(completion(["a"], [-1]), completion(["a"], [-1])).equal is True


def test_answers_with_other_last_tokens_that_no_text_shows_are_equal() -> None:
    left, right = (
        stopped(completion(["a", end], [-1, -2], choice={"text": text}))
        for end, text in (("<end>", "a"), ("<stop>", "a"))
    )

    assert aligned(left, right).equal is True
    assert (
        aligned(left, stopped(completion(["a", "b"], [-1, -2], choice={"text": "ab"}))).equal
        is False
    )


def test_the_same_text_cut_otherwise_is_told_from_another_text() -> None:
    left = completion(["in", "ter"], [-1, -1])

    assert aligned(left, completion(["inter", "x"], [-1, -1])).misfit is Misfit.DIFFERENT_TOKENS
    assert aligned(left, completion(["inner", "x"], [-1, -1])).misfit is None
    assert aligned(left, completion(["inter"], [-1])).equal is True


def test_other_numbers_for_the_same_text_are_told() -> None:
    left, right = (
        completion(["a", "b"], [-1, -1], choice={"token_ids": ids}) for ids in ([1, 2], [1, 3])
    )

    assert aligned(left, right).misfit is Misfit.DIFFERENT_IDS
    assert aligned(left, left).misfit is None


@pytest.mark.parametrize("other", ["completion", "scored"])
def test_numbers_against_texts_pair_nothing(other: str) -> None:
    left = completion(["token_id:4", "token_id:5"], [-1, -1])
    right = completion(["a", "b"], [-1, -1]) if other == "completion" else scored(["a"], [-1])
    found = aligned(left, right)

    assert (found.tokens, found.misfit) == (None, Misfit.IDS_AND_TEXTS)


def test_a_prompt_against_an_answer_pairs_nothing() -> None:
    found = aligned(scored(["a"], [-1]), completion(["a"], [-1]))

    assert (found.tokens, found.misfit) == (None, Misfit.NOTHING_SCORED)


def test_lists_of_other_lengths_are_used_where_they_meet() -> None:
    left = chat([("a", -0.5, {"a": -0.5, "b": -1.5, "c": -3.0})])
    right = completion(["a"], [-0.6], tops=[{"a": -0.6}])
    found = aligned(left, right)

    assert found.ks == (2, 1)
    assert np.isnan(tokens_of(found).p_common).sum() == 0
    assert tokens_of(found).p_common.tolist() == [[-0.5]]


def drawn(models: FloatArray, race: FloatArray) -> Scored:
    """Return an answer drawn from rows of probabilities, with every candidate listed."""
    labels = [chr(97 + token) for token in np.argmax(models / race, axis=1)]
    tops = [
        {chr(97 + token): float(np.log(value)) for token, value in enumerate(row)} for row in models
    ]
    values = np.array([top[label] for top, label in zip(tops, labels, strict=True)])
    none = np.zeros(len(labels), dtype=np.bool_)
    return Scored(Sequenced(labels, None, values, none, tops, k=len(tops[0])), None)


def test_stopping_at_the_first_difference_leaves_the_divergence_unbiased() -> None:
    """As engines sample with one seed: an exponential race, so that near models agree mostly."""
    rng = np.random.default_rng(8)
    p = np.array([0.4, 0.3, 0.2, 0.07, 0.03])
    q = np.array([0.3, 0.32, 0.14, 0.14, 0.1])
    truth = float((p * np.log(p / q)).sum())
    total, positions, agreed, places = 0.0, 0, 0.0, 0
    for _ in range(1500):
        race = rng.exponential(size=(6, 5))
        left, right = (drawn(np.tile(model, (6, 1)), race) for model in (p, q))
        tokens = tokens_of(align(left, right))
        total += figures_of(tokens).k3_nats * len(tokens.p)
        positions += len(tokens.p)
        assert left.generated is not None
        assert right.generated is not None
        same = [
            one == two
            for one, two in zip(left.generated.labels, right.generated.labels, strict=True)
        ]
        shared = same.index(False) if False in same else len(same)
        agreed += float((np.expm1(tokens.q - tokens.p) - tokens.q + tokens.p)[:shared].sum())
        places += shared

    assert total / positions == pytest.approx(truth, rel=0.08)
    assert abs(agreed / places - truth) > 0.1 * truth  # as it would be without the difference
