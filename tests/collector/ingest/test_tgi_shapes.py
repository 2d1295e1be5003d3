"""TGI's own shapes, made by hand from the events that its sources describe.

Nobody posted a stream with details.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.collector.ingest.table import chat, decoded, tgi, value

TOKENS = [
    {"id": 1, "text": " a", "logprob": -0.5, "special": False},
    {"id": 2, "text": " b", "logprob": -1.5, "special": False},
    {"id": 0, "text": "</s>", "logprob": -0.1, "special": True},
]
TOPS = [
    [{"id": 1, "text": " a", "logprob": -0.5}, {"id": 3, "text": " c", "logprob": -2.0}],
    [{"id": 4, "text": " d", "logprob": -0.7}, {"id": 2, "text": " b", "logprob": -1.5}],
    [{"id": 0, "text": "</s>", "logprob": -0.1}, {"id": 5, "text": " e", "logprob": -3.0}],
]
SUMMARY = {"finish_reason": "eos_token", "generated_tokens": 3, "seed": 2**64 - 1}
ASKED = tgi("Hello there", top_n_tokens=2, max_new_tokens=9)


def tgi_plain(**more: Any) -> dict[str, Any]:
    details = {**SUMMARY, "prefill": [], "tokens": TOKENS, "top_tokens": TOPS, **more}
    return {"generated_text": " a b", "details": details}


def tgi_events() -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = [
        {"index": place + 1, "token": token, "top_tokens": tops, "generated_text": None}
        for place, (token, tops) in enumerate(zip(TOKENS, TOPS, strict=True))
    ]
    events[-1] |= {"generated_text": " a b", "details": {**SUMMARY, "input_length": 4}}
    return events


def test_tgi_streamed_and_in_one_piece_give_the_same_numbers() -> None:
    plain = decoded(ASKED, tgi_plain())
    chunks = decoded(ASKED, tgi_events())
    text = "".join(f"data:{json.dumps(event)}\n\n" for event in tgi_events())
    stream = decoded(ASKED, text)

    for found in (plain, chunks, stream):
        assert found.accepted == 1
        assert value(found, "output_tokens") == 3.0
        assert value(found, "output_surprisal_mean_nats") == pytest.approx(1.0)
        assert value(found, "max_tokens") == 9.0
    assert value(chunks, "prompt_tokens") == value(stream, "prompt_tokens") == 4.0
    names = [name for name in plain.batches[0].columns if name.startswith("output_")]
    assert len(names) >= 10
    for name in names:
        assert value(stream, name) == pytest.approx(value(plain, name), nan_ok=True), name
        assert value(chunks, name) == pytest.approx(value(plain, name), nan_ok=True), name


def test_tgi_takes_the_answer_that_best_of_chose_and_not_the_others() -> None:
    other = {"generated_text": " x", "finish_reason": "length", "generated_tokens": 99}
    others = [{**other, "prefill": [], "tokens": TOKENS[:1], "top_tokens": TOPS[:1]}]

    found = decoded({**ASKED}, tgi_plain(best_of_sequences=others))

    assert found.generations == 1
    assert value(found, "output_tokens") == 3.0
    assert value(found, "output_surprisal_mean_nats") == pytest.approx(1.0)


def test_the_list_that_tgi_answers_on_its_root_is_read() -> None:
    assert value(decoded(ASKED, [tgi_plain()]), "output_tokens") == 3.0


def test_an_error_in_the_middle_of_a_tgi_stream_takes_nothing() -> None:
    broken = [*tgi_events()[:2], {"error": "out of memory", "error_type": "generation"}]

    found = decoded(ASKED, broken)

    assert (found.accepted, dict(found.refused)) == (0, {"engine_error": 1})


def test_tgi_chat_and_completions_are_read_as_openais() -> None:
    entry = {"token": "a", "logprob": -0.5, "top_logprobs": [{"token": "a", "logprob": -0.5}]}
    choice = {"index": 0, "finish_reason": "stop", "logprobs": {"content": [entry]}}
    answer = {"id": "", "object": "text_completion", "choices": [choice]}  # so says TGI 1.4

    assert value(decoded(chat("Hi"), answer), "output_surprisal_mean_nats") == 0.5


def test_sglangs_own_shape_is_told_and_its_openai_shape_is_read() -> None:
    own = {"text": "a", "meta_info": {"output_token_logprobs": [[-0.5, 1, "a"]]}}

    assert dict(decoded({"text": "Hi"}, own).refused) == {"no_answer": 1}
