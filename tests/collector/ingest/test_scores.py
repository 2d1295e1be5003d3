"""Logprobs of the prompt's own tokens, and taking an echoed prompt off its answer."""

from __future__ import annotations

import math

import pytest

from collector.ingest.answers import Answer
from collector.ingest.prompts import Prompt
from collector.ingest.records import LineError, Reason
from collector.ingest.scores import mean_score, own_scores, split_echo
from collector.ingest.shapes import PromptEntry, PromptPositions
from tests.collector.ingest.recorded import the


def positions(*maps: dict[str, tuple[float, int]]) -> PromptPositions:
    made = [{key: PromptEntry(*pair) for key, pair in one.items()} for one in maps]
    return [None, *made]


def test_the_first_entry_is_the_prompts_own_where_the_order_says_so() -> None:
    given = positions(
        {"7": (-4.0, 5), "1": (-1.0, 1), "2": (-2.0, 2)},
        {"2": (-2.0, 2), "1": (-1.0, 1)},
    )

    assert own_scores(given, 2, None) == [-4.0, -2.0]


def test_without_order_the_entry_beyond_k_is_the_prompts_own() -> None:
    given = positions({"1": (-1.0, 1), "7": (-4.0, 5), "2": (-2.0, 2)})

    assert own_scores(given, 2, None) == [-4.0]


def test_without_order_a_map_of_k_entries_hides_it() -> None:
    given = positions(
        {"1": (-1.0, 1), "7": (-4.0, 5), "2": (-2.0, 2)}, {"2": (-2.0, 2), "1": (-1.0, 1)}
    )

    assert own_scores(given, 2, None) is None
    assert own_scores(given, 2, [9, 7, 1]) == [None, -4.0, -1.0]


def test_the_rust_front_ends_maps_are_read_with_the_ids_of_its_own_echo() -> None:
    one = the("vllm-0.32.0-rust-completions-logprobs3-echo.json")
    choice = one.response["choices"][0]
    maps = choice["prompt_logprobs"]
    echoed = choice["logprobs"]["token_logprobs"][: len(maps)]
    ids = [0] + [
        int(next(key for key, entry in entries.items() if entry["logprob"] == score))
        for entries, score in zip(maps[1:], echoed[1:], strict=True)
    ]
    given: PromptPositions = [
        None,
        *({k: PromptEntry(v["logprob"], v["rank"]) for k, v in m.items()} for m in maps[1:]),
    ]

    assert own_scores(given, 3, None) is None
    assert own_scores(given, 3, ids) == echoed


def test_the_mean_leaves_out_nulls_and_clamps_and_refuses_logits() -> None:
    assert mean_score([None, -1.0, -9999.0, -3.0]) == -2.0
    assert math.isnan(mean_score([None]))
    with pytest.raises(LineError, match="logits") as caught:
        mean_score([-1.0, 2.0])
    assert caught.value.reason is Reason.LOGITS


def an_echo(**changes: object) -> Answer:
    answer = Answer(
        texts=["hello world"],
        tokens=["hel", "lo", " wor", "ld"],
        sampled=[None, -1.0, -2.0, -3.0],
        top=[-1.0, -2.0, -0.5, -3.0],
        counts=[0, 1, 2, 1],
        offsets=[0, 3, 5, 9],
    )
    for name, value in changes.items():
        setattr(answer, name, value)
    return answer


@pytest.mark.parametrize(
    ("changes", "prompt", "count"),
    [
        ({}, Prompt("hello"), 2.0),  # by usage
        ({}, Prompt("hello"), math.nan),  # by the text
        ({"prompt_ids": [4, 5]}, None, math.nan),
        ({}, Prompt(tokens=2.0), 2.0),
    ],
)
def test_an_echoed_prompt_is_taken_off(
    changes: dict[str, object], prompt: Prompt | None, count: float
) -> None:
    answer = an_echo(**changes)

    assert split_echo(answer, prompt, count)

    assert answer.scored == [None, -1.0]
    assert (answer.sampled, answer.tokens) == ([-2.0, -3.0], [" wor", "ld"])
    assert (answer.counts, answer.top) == ([2, 1], [-2.0, -0.5, -3.0])
    assert answer.texts == [" world"]


def test_an_echo_that_cannot_be_split_is_not_counted_as_an_answer() -> None:
    answer = an_echo(offsets=[])

    assert not split_echo(answer, Prompt("hello"), math.nan)

    assert (answer.sampled, answer.texts) == ([], [])
