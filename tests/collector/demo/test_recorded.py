"""The recordings in the package, and how answers are drawn from them."""

from __future__ import annotations

import json
from importlib.resources import files
from random import Random

import pytest

from collector.demo.recorded import (
    BASELINE,
    HOT,
    JSON_BLOBS,
    KV_FULL,
    LOAD,
    SETS,
    Answers,
    Exchange,
    read_exchanges,
    read_pages,
)


@pytest.fixture(scope="module")
def sets() -> dict[str, list[Exchange]]:
    return {name: read_exchanges(name) for name in SETS}


def test_the_recordings_are_small_enough_for_the_package() -> None:
    sizes = [
        len(entry.read_bytes())
        for entry in files("collector.demo").joinpath("recordings").iterdir()
        if entry.name.endswith((".gz", ".xz"))
    ]

    assert len(sizes) == 5
    assert max(sizes) < 700_000
    assert sum(sizes) < 2_000_000


def test_pages_and_exchanges_are_all_there(sets: dict[str, list[Exchange]]) -> None:
    assert len(read_pages(KV_FULL)) == 29
    assert len(read_pages(LOAD)) == 15
    assert {name: len(found) for name, found in sets.items()} == {
        BASELINE: 200,
        JSON_BLOBS: 150,
        HOT: 200,
    }


def test_the_hot_answers_are_to_the_prompts_of_the_baseline(
    sets: dict[str, list[Exchange]],
) -> None:
    prompts = {exchange.prompt for exchange in sets[BASELINE]}

    assert prompts == {exchange.prompt for exchange in sets[HOT]}
    assert {json.loads(exchange.request)["temperature"] for exchange in sets[HOT]} == {1.5}


def test_a_prompt_is_answered_from_the_set_in_force(sets: dict[str, list[Exchange]]) -> None:
    answers = Answers(sets, rng=Random(1))
    asked = sets[BASELINE][7]
    hot = next(exchange for exchange in sets[HOT] if exchange.prompt == asked.prompt)

    plain_answer = json.loads(answers.draw(asked.prompt, in_force=BASELINE))
    hot_answer = json.loads(answers.draw(asked.prompt, in_force=HOT))

    assert plain_answer["choices"] == json.loads(asked.response)["choices"]
    assert hot_answer["choices"] == json.loads(hot.response)["choices"]


def test_a_prompt_of_another_set_is_answered_from_there(sets: dict[str, list[Exchange]]) -> None:
    answers = Answers(sets, rng=Random(1))
    blob = sets[JSON_BLOBS][3]

    answer = json.loads(answers.draw(blob.prompt, in_force=BASELINE))

    assert answer["usage"] == json.loads(blob.response)["usage"]


def test_an_unknown_prompt_gets_some_answer_of_the_set_in_force(
    sets: dict[str, list[Exchange]],
) -> None:
    answers = Answers(sets, rng=Random(1))

    answer = json.loads(answers.draw("never recorded", in_force=HOT))

    known = [json.loads(exchange.response)["choices"] for exchange in sets[HOT]]
    assert answer["choices"] in known


def test_every_answer_has_an_id_of_its_own(sets: dict[str, list[Exchange]]) -> None:
    answers = Answers(sets, rng=Random(1))
    asked = sets[BASELINE][0]

    ids = {json.loads(answers.draw(asked.prompt, in_force=BASELINE))["id"] for _ in range(50)}

    assert len(ids) == 50
    assert json.loads(asked.response)["id"] not in ids
