"""Recorded bodies with the request that belongs to them, and what a line of both must give.

The numbers were added up by hand from the files.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

from collector.ingest.decode import decode
from collector.ingest.records import Decoded, Limits, Reason
from tests.collector.ingest.recorded import replayed

COUNT = "Return the number of items in the list. If the optional argument is given"
COPY = "Return a copy of the string"


@dataclass(frozen=True)
class Row:
    """One recorded body, the request that led to it, and what a line of both gives."""

    name: str
    request: dict[str, Any]
    expected: dict[str, float]
    lacks: frozenset[str] = frozenset()


def chat(text: str, **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], "logprobs": True, **more}


def tgi(text: str, **parameters: Any) -> dict[str, Any]:
    return {"inputs": text, "parameters": {"details": True, **parameters}}


def lacking(*reasons: str) -> frozenset[str]:
    return frozenset(reasons)


NO_LOGPROBS, NO_LIST = lacking("no_logprobs"), lacking("no_candidates")
TABLE = (
    Row(
        "tgi-1.0-generate-one-token.json",
        tgi("Which", max_new_tokens=1),
        {
            "output_tokens": 1,
            "output_surprisal_mean_nats": 1.1894531,
            "output_length_capped": 1,
            "prompt_tokens": math.nan,  # nothing tells it
            "max_tokens": 1,
        },
        NO_LIST,
    ),
    Row(
        "tgi-3.0-generate-empty-prefill.json",
        tgi("Test request", decoder_input_details=True),
        {
            "output_tokens": 5,
            "output_surprisal_mean_nats": 5.92333993 / 5,
            "output_length_capped": 0,
            "prompt_logprob_mean_nats": math.nan,  # asked for, and switched off in TGI 3
        },
        NO_LIST,
    ),
    Row(
        "tgi-3.0-starcoder-default-params.json",
        tgi("def print_hello():", temperature=0.2),
        {
            "output_tokens": 2,
            "output_surprisal_mean_nats": 0.048583984,  # the end of text is not compared
            "temperature": 0.2,
        },
        NO_LIST,
    ),
    Row(
        "tgi-3.0.2-generate-sampled-seed.json",  # its seed is above 2^53
        tgi("A", max_new_tokens=2),
        {
            "output_tokens": 2,
            "output_surprisal_mean_nats": (2.1425781 + 4.4609375) / 2,
            "output_length_capped": 1,
        },
        NO_LIST,
    ),
    Row(
        "tgi-generate-prefill-null-first.json",
        tgi("Pour déguster un ortolan, il faut tout d'abord"),
        {
            "prompt_tokens": 11,
            "prompt_logprob_mean_nats": -45.03271484 / 10,
            "output_tokens": 10,
            "output_length_capped": 1,
        },
        NO_LIST,
    ),
    Row(
        "tgi-generate-warped-logprob-zero.json",
        tgi(", il faut tout d'abord", typical_p=0.95),
        {
            "prompt_tokens": 5,
            "prompt_logprob_mean_nats": -15.0312499 / 4,
            "output_tokens": 10,
        },
        NO_LIST,
    ),
    Row(
        "tgi-3.1-chat-stream-usage-chunk.json",
        chat("Say OK"),
        {"prompt_tokens": 39, "output_tokens": 3, "output_length_capped": 0},
        NO_LOGPROBS,
    ),
    Row(
        "tgi-3.1-completions-logprobs-null.json",
        {"prompt": "What is Deep Learning?", "logprobs": 1},
        {"prompt_tokens": 6, "output_tokens": 10, "output_length_capped": 1},
        NO_LOGPROBS,
    ),
    Row(
        "tgi-3.1-completions-stream-usage.json",
        chat("What is Deep Learning?"),
        {"prompt_tokens": 40, "output_tokens": 10, "output_length_capped": 1},
        NO_LOGPROBS,
    ),
    Row(
        "vllm-2026-completions-stream.txt",
        {"prompt": "2 + 5 = ", "logprobs": 5, "max_tokens": 1},
        {
            "output_tokens": 1,
            "output_surprisal_mean_nats": 2.4199192921514623e-05,
            "output_unlikely_ratio": 0,
            "output_length_capped": 1,
        },
    ),
    Row(
        "vllm-0.3-chat-with-completions-shaped-logprobs.json",
        chat("Hi"),
        {
            "output_tokens": 4,
            "output_surprisal_mean_nats": 0.033077025886079524 / 4,
            "output_length_capped": 0,
        },
        NO_LIST,
    ),
    Row(
        "vllm-chat-completion-usage-inference-sim.json",
        chat("Hi"),
        {"prompt_tokens": 2, "output_tokens": 21, "output_length_capped": 0},
        NO_LOGPROBS,
    ),
    Row(
        "openai-responses-api-logprobs-excerpt.json",
        {"input": "Hi", "instructions": "Be brief"},
        {
            "prompt_chars": 11,  # the instructions, a line break, the input
            "output_tokens": 3,
            "output_surprisal_mean_nats": 25.84899806976318 / 3,
            "output_length_capped": 1,
        },
        NO_LIST,
    ),
    Row(
        "0.32.0-responses-api",
        {"input": COPY, "max_output_tokens": 12, "top_logprobs": 5},
        {"prompt_tokens": 16, "output_tokens": 12, "max_tokens": 12, "output_length_capped": 1},
    ),
    Row(
        "0.32.0-completions-prompt-logprobs3",
        {"prompt": COUNT, "prompt_logprobs": 3, "logprobs": 3, "max_tokens": 8},
        {
            "prompt_tokens": 16,
            "prompt_logprob_mean_nats": -2.758774479230245,
            "output_tokens": 8,
        },
    ),
    Row(
        "0.32.0-chat-prompt-logprobs3",
        chat(COPY, top_logprobs=3, prompt_logprobs=3),
        {"prompt_tokens": 16, "prompt_logprob_mean_nats": -1.5068716970349973},
    ),
    Row(
        "vllm-0.32.0-rust-completions-prompt-logprobs2.json",
        {"prompt": "Hello world", "prompt_logprobs": 2},
        # Maps without order: where the prompt's token is one of the two, nothing says which.
        {"prompt_tokens": 6, "prompt_logprob_mean_nats": math.nan, "output_tokens": 2},
        lacking("no_logprobs", "prompt_order"),
    ),
    Row(
        "vllm-0.32.0-rust-completions-prompt-logprobs2.json",
        {"prompt": [43, 1967, 82, 286, 269, 543], "prompt_logprobs": 2},
        {  # the same, sent as ids: the ids say which
            "prompt_tokens": 6,
            "prompt_logprob_mean_nats": -25.1892592 / 5,
        },
        lacking("no_logprobs"),
    ),
    Row(
        "vllm-0.32.0-rust-chat-prompt-logprobs2.json",
        chat("Hi", prompt_logprobs=2),
        {
            "prompt_tokens": 12,
            "prompt_logprob_mean_nats": math.nan,
            "output_tokens": 2,
            "output_surprisal_mean_nats": 9.9458895 / 2,
        },
        lacking("no_candidates", "prompt_order"),
    ),
    Row(
        "vllm-0.32.0-rust-completions-logprobs3-echo.json",
        {"prompt": "Hello world", "echo": True, "logprobs": 3, "max_tokens": 4},
        {
            "prompt_tokens": 6,
            "prompt_logprob_mean_nats": -25.1892592 / 5,
            "output_tokens": 4,
            "output_surprisal_mean_nats": 19.4780335 / 4,
        },
    ),
    Row(
        "vllm-0.32.0-rust-completions-allowed-one-token.json",
        {"prompt": "Hi", "logprobs": 3},
        {
            "prompt_tokens": 3,
            "output_tokens": 2,
            "output_surprisal_mean_nats": 14.3995643 / 2,  # raw: forced tokens look unlikely
            "output_unlikely_ratio": 1,
        },
    ),
    Row(
        "vllm-0.32.0-rust-chat-logprobs-top3.json",
        chat("Hi", top_logprobs=3),
        {"prompt_tokens": 13, "output_tokens": 4, "output_length_capped": 1},
    ),
    Row(
        "vllm-0.32.0-rust-chat-stream-top2.sse",
        chat("Hi", top_logprobs=2),
        {"prompt_tokens": 13, "output_tokens": 3},
    ),
    Row(
        "vllm-0.32.0-rust-completions-stream-logprobs2.sse",
        {"prompt": "Hi", "logprobs": 2},
        {"prompt_tokens": math.nan, "output_tokens": 3},
    ),
)

REFUSED = (
    ("llm-cli-stored-logprobs-custom-shape.json", Reason.NO_ANSWER),
    ("openai-completions-legacy-logprobs-excerpt.json", Reason.NO_ANSWER),
    ("tgi-1.4.4-chat-logprobs-truncated.txt", Reason.MALFORMED),
    ("openai-chat-logprobs-sdk-repr.txt", Reason.NO_ANSWER),
    ("vllm-0.11-chat-logprobs-openai-sdk-repr.txt", Reason.NO_ANSWER),
    ("vllm-0.6-python-logprob-repr-minus-inf.txt", Reason.NO_ANSWER),
    ("vllm-ascend-0.12-request-state-stats-repr.txt", Reason.NO_ANSWER),
    ("aphrodite-first-token-minus-inf-repr.txt", Reason.NO_ANSWER),
    ("vllm-0.32.0-rust-completions-n2.json", Reason.ENGINE_ERROR),
    ("vllm-0.32.0-rust-err-logprobs-50.json", Reason.ENGINE_ERROR),
    ("vllm-0.32.0-rust-err-model-not-found.json", Reason.ENGINE_ERROR),
)


def decoded(request: dict[str, Any], response: Any) -> Decoded:
    line = json.dumps({"request": request, "response": response}).encode()
    return decode(line, replayed(), Limits())


def value(found: Decoded, signal: str) -> float:
    (batch,) = found.batches
    assert batch.size == 1
    return float(batch.columns[signal][0]) if signal in batch.columns else math.nan
