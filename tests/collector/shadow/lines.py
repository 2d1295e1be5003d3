"""Lines for tests of comparisons, written as engines and loggers write them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

FIXTURES = Path(__file__).parents[2] / "fixtures" / "shadow"


def scored(tokens: Sequence[str], logprobs: Sequence[float | None], **members: object) -> bytes:
    """A scored text."""
    return to_line({"tokens": tokens, "token_logprobs": logprobs, **members})


def completion(  # noqa: D417  # the rest are members of the line
    tokens: Sequence[str],
    logprobs: Sequence[float],
    *,
    tops: Sequence[Mapping[str, float]] | None = None,
    prompt: object = "Say",
    request: Mapping[str, object] | None = None,
    choice: Mapping[str, object] | None = None,
    **members: object,
) -> bytes:
    """An answer of the completions API.

    Args:
        tokens: The answer.
        logprobs: Of its tokens.
        tops: The candidates of each position, with `logprobs` asked for as many as the shortest.
        prompt: As sent.
        request: More of the request.
        choice: More of the choice.
    """
    lists: dict[str, object] = {"tokens": tokens, "token_logprobs": logprobs}
    sent: dict[str, object] = {"prompt": prompt}
    if tops is not None:
        lists["top_logprobs"] = tops
        sent["logprobs"] = min(map(len, tops))
    answer = {"index": 0, "logprobs": lists, "finish_reason": "length", **(choice or {})}
    return to_line(
        {
            "request": {**sent, **(request or {})},
            "response": {"choices": [answer]},
            **members,
        }
    )


def chat(tokens: Sequence[tuple[str, float, Mapping[str, float]]], **members: object) -> bytes:
    """An answer of the chat API: token, logprob, and its list."""
    content = [
        {
            "token": token,
            "logprob": logprob,
            "top_logprobs": [{"token": key, "logprob": value} for key, value in top.items()],
        }
        for token, logprob, top in tokens
    ]
    response = {"choices": [{"index": 0, "logprobs": {"content": content}}]}
    return to_line(
        {"request": {"messages": [{"role": "user", "content": "Say"}]}, "response": response}
        | members
    )


def prompt_maps(
    positions: Sequence[Mapping[int, tuple[str | None, float, int]] | None],
    ids: Sequence[int] | None = None,
    **members: Any,
) -> bytes:
    """A scored prompt of vLLM: by position and token id text, logprob and rank."""
    maps = [
        None
        if one is None
        else {
            str(key): {"decoded_token": text, "logprob": logprob, "rank": rank}
            for key, (text, logprob, rank) in one.items()
        }
        for one in positions
    ]
    answer = {"index": 0, "prompt_logprobs": maps, "prompt_token_ids": ids}
    return to_line({"request": {"prompt": "Say"}, "response": {"choices": [answer]}, **members})


def to_line(members: Mapping[str, object]) -> bytes:
    return json.dumps(members).encode() + b"\n"


def write(path: Path, lines: Iterable[bytes]) -> Path:
    path.write_bytes(b"".join(lines))
    return path
