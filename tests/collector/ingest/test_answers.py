"""Shapes that no recording holds: TGI streams, long lists, mismatched lists, Responses input."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from collector.ingest.decode import decode
from collector.ingest.records import Decoded, Limits, Missing
from tests.collector.ingest.recorded import DEFAULTS


def the_decoded(request: dict[str, Any], response: Any) -> Decoded:
    line = json.dumps({"request": request, "response": response}).encode()
    return decode(line, DEFAULTS, Limits())


def the_values(request: dict[str, Any], response: Any) -> dict[str, float]:
    (batch,) = the_decoded(request, response).batches
    return {name: float(column[0]) for name, column in batch.columns.items()}


def tgi_token(logprob: float | None, *, special: bool = False) -> dict[str, Any]:
    return {"id": 1, "text": "x", "logprob": logprob, "special": special}


def test_a_tgi_stream_is_the_tgi_body() -> None:
    tops = [
        [tgi_token(-0.5), tgi_token(-1.5)],
        [tgi_token(-0.1), tgi_token(-3.0)],
        [tgi_token(0.0)],
    ]
    tokens = [tgi_token(-0.5), tgi_token(-3.0), tgi_token(None, special=True)]
    details = {"finish_reason": "eos_token", "generated_tokens": 3, "prefill": []}
    body = {
        "generated_text": "xx",
        "details": {**details, "tokens": tokens, "top_tokens": tops},
    }
    events = [{"index": i, "token": tokens[i], "top_tokens": tops[i]} for i in range(3)]
    events[2] |= {"generated_text": "xx", "details": {**details, "input_length": 9}}
    stream = "".join(f"data:{json.dumps(event)}\n\n" for event in events)
    request = {"inputs": "hello", "parameters": {"top_n_tokens": 2, "temperature": 0.5}}

    whole, pieces = the_values(request, body), the_values(request, stream)
    listed = the_values(request, [body])

    assert whole["output_surprisal_mean_nats"] == 1.75  # the special token is left out
    assert whole["temperature"] == 0.5
    assert pieces.pop("prompt_tokens") == 9
    assert whole == listed == pieces


def test_tgi_lists_are_the_largest_whether_or_not_the_sampled_token_is_among_them() -> None:
    tops = [[tgi_token(float(np.log(0.5))), tgi_token(float(np.log(0.5)))]]
    details = {
        "finish_reason": "length",
        "generated_tokens": 1,
        "tokens": [tgi_token(float(np.log(0.5)))],
        "top_tokens": tops,
    }

    found = the_values({"inputs": "a"}, {"generated_text": "x", "details": details})

    assert found["output_entropy_nats"] == pytest.approx(np.log(2))
    assert found["output_length_capped"] == 1


@pytest.mark.parametrize("shape", ["chat", "completions"])
def test_a_whole_vocabulary_is_cut_and_stays_exact(shape: str) -> None:
    p = np.geomspace(1, 1e-6, 500)
    logprobs = [float(x) for x in np.log(p / p.sum())]
    listed: Any = [{"token": str(i), "logprob": x} for i, x in enumerate(logprobs)]
    entry = {"token": "0", "logprob": logprobs[0], "top_logprobs": listed}
    if shape == "completions":
        entry = {
            "tokens": ["0"],
            "token_logprobs": [logprobs[0]],
            "top_logprobs": [{str(i): x for i, x in enumerate(logprobs)}],
        }
    made = {"content": [entry]} if shape == "chat" else entry
    choice = {"index": 0, "finish_reason": "stop", "logprobs": made}

    found = the_decoded({"prompt": "a"}, {"choices": [choice]})

    (batch,) = found.batches
    assert 2.0 < batch.columns["output_entropy_nats"][0] < 6.5
    assert Missing.SHORT_CANDIDATES not in found.partial


def test_lists_of_different_length_are_malformed() -> None:
    logprobs = {"tokens": ["a"], "token_logprobs": [-1.0, -2.0]}

    decoded = the_decoded({"prompt": "a"}, {"choices": [{"logprobs": logprobs}]})

    assert decoded.refused == {"malformed": 1}


def test_candidates_may_stop_before_the_tokens_do() -> None:
    logprobs = {"tokens": ["a", "b"], "token_logprobs": [-1.0, -2.0], "top_logprobs": [{"a": -1.0}]}

    decoded = the_decoded({"prompt": "a", "logprobs": 1}, {"choices": [{"logprobs": logprobs}]})

    assert decoded.accepted == 1
    assert decoded.partial[Missing.SHORT_CANDIDATES] == 1


def test_a_finished_responses_answer_is_not_capped_and_its_input_is_the_prompt() -> None:
    part = {"type": "output_text", "text": "ok", "logprobs": [{"token": "ok", "logprob": -0.5}]}
    response = {"status": "completed", "error": None, "output": [{"content": [part]}, {}]}
    request = {"instructions": "be brief", "input": [{"role": "user", "content": "hello"}, "you"]}

    found = the_values(request, response)

    assert found["output_length_capped"] == 0
    assert found["output_surprisal_mean_nats"] == 0.5
    assert found["prompt_chars"] == len("be brief\nhello\nyou")


def test_a_body_given_as_text_is_read_as_the_body() -> None:
    body = {"choices": [{"index": 0, "text": "abc", "finish_reason": "length"}]}

    assert the_values({"prompt": "x"}, json.dumps(body)) == the_values({"prompt": "x"}, body)


def test_an_array_with_something_after_its_end_says_so() -> None:
    line = json.dumps({"request": {}, "response": {"choices": [{"text": "a"}]}})

    decoded = decode(f"[{line}] x".encode(), DEFAULTS, Limits())

    assert (decoded.accepted, decoded.refused) == (1, {"malformed": 1})
    assert "after the array's end" in decoded.rejected[0].message


def test_an_oversized_line_of_which_nothing_can_be_read_is_counted_only() -> None:
    decoded = decode(b'{"request": ' + b"x" * 5000, DEFAULTS, Limits(max_line_bytes=1000))

    assert (decoded.refused, decoded.batches) == ({"oversized": 1}, ())


def test_an_oversized_line_gives_the_prompts_tokens_where_usage_tells() -> None:
    response = {"model": "m", "usage": {"prompt_tokens": 77}, "choices": [{"text": "y" * 2000}]}
    line = json.dumps({"request": {"prompt": [1, 2]}, "response": response}).encode()

    decoded = decode(line, DEFAULTS, Limits(max_line_bytes=1000))

    assert decoded.batches[0].columns["prompt_tokens"].tolist() == [77.0]


def test_several_echoed_prompts_in_a_list_are_split_by_their_text() -> None:
    def choice(index: int) -> dict[str, Any]:
        logprobs = {
            "tokens": ["ab", "cd"],
            "token_logprobs": [None, -2.0],
            "text_offset": [0, 2],
        }
        return {"index": index, "text": "abcd", "finish_reason": "stop", "logprobs": logprobs}

    request = {"prompt": ["ab", "ab"], "echo": True, "n": 1, "logprobs": 0}
    usage = {"prompt_tokens": 2, "completion_tokens": 2}

    (batch,) = the_decoded(request, {"choices": [choice(0), choice(1)], "usage": usage}).batches

    assert batch.columns["output_tokens"].tolist() == [1.0, 1.0]
    assert batch.columns["output_surprisal_mean_nats"].tolist() == [2.0, 2.0]


def test_an_echo_that_cannot_be_split_says_so() -> None:
    logprobs = {"tokens": ["ab", "cd"], "token_logprobs": [None, -2.0]}
    choice = {"index": 0, "text": "abcd", "finish_reason": "stop", "logprobs": logprobs}

    decoded = the_decoded({"prompt": "ab", "echo": True, "logprobs": 0}, {"choices": [choice]})

    assert decoded.partial[Missing.ECHO_UNSPLIT] == 1
    assert "output_surprisal_mean_nats" not in decoded.batches[0].columns
