"""One token in every recorded shape, and nothing but numbers of hostile ones."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.sources.server.generating import _is_generation, _tokens
from tests.collector.sources.engine_server import ANSWERS

TGI = {
    "details": {
        "tokens": [{"id": 0, "text": "a", "logprob": -0.1}],
        "top_tokens": [
            [{"id": 0, "text": "a", "logprob": -0.1}, {"id": 1, "text": "b", "logprob": None}]
        ],
    },
    "generated_text": "a",
}


def load(name: str) -> object:
    return json.loads((ANSWERS / name).read_bytes())


@pytest.mark.parametrize(
    ("body", "tokens"),
    [
        (load("vllm-0.32.0-completions-one-token.json"), 5),
        (load("vllm-0.32.0-chat-top20.json"), 20),
        (load("tgi-1.0-generate-one-token.json"), 0),
        (TGI, 1),
        ([TGI], 1),
    ],
    ids=["completions", "chat", "tgi without", "tgi", "tgi in a list"],
)
def test_every_form_is_a_generation_with_its_alternatives(body: object, tokens: int) -> None:
    found = _tokens(body)

    assert _is_generation(body)
    assert len(found) == tokens
    assert sum(map(math.exp, found.values())) <= 1.0


def test_the_likeliest_alternative_keeps_its_logprob() -> None:
    found = _tokens(load("vllm-0.32.0-completions-one-token.json"))

    assert max(found.values()) == pytest.approx(-0.70595, abs=1e-5)


@pytest.mark.parametrize("value", [-9999.0, -1000.0, None, "x", True])
def test_what_stands_for_an_impossible_token_is_left_out(value: object) -> None:
    body = {"choices": [{"logprobs": {"top_logprobs": [{"a": -0.5, "b": value}]}}]}

    assert list(_tokens(body).values()) == [-0.5]


NAMES = (
    "choices",
    "logprobs",
    "top_logprobs",
    "content",
    "details",
    "top_tokens",
    "generated_text",
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from((*NAMES, "logprob", "token", "id", "bytes")), inner)
    ),
    max_leaves=15,
)


def completions(first: Mapping[str, object]) -> object:
    return {"choices": [{"logprobs": {"top_logprobs": [first]}}]}


@settings(max_examples=80, deadline=None)
@given(
    body=JSON
    | st.dictionaries(st.text(max_size=3), st.floats() | st.none(), max_size=70).map(completions)
)
def test_whatever_comes_the_tokens_are_few_and_their_numbers_are_logprobs(body: object) -> None:
    found = _tokens(body)
    _is_generation(body)

    assert len(found) <= 64
    assert all(-1000 < value <= 0 and len(token) == 16 for token, value in found.items())
