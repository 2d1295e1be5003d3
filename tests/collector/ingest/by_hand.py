"""What a recorded body must give, worked out with json and math alone: the oracle of the tests.

Slow and literal on purpose; shares nothing with the code under test but the documented meaning.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any

import zstandard

VOCABULARY = 128_000
Row = dict[str, float]


def rows_of(request: dict[str, Any], response: Any) -> list[Row]:
    """Return the expected signals of each answer, or [] if the response is none."""
    chunks = chunks_of(response)
    if not chunks or any(is_error(chunk) for chunk in chunks):
        return []
    if "output" in chunks[0]:
        return [of_responses_api(request, chunks[0])]
    if any("details" in chunk or "token" in chunk for chunk in chunks):
        return [of_tgi(request, chunks[0])]
    choices: dict[int, list[Any]] = {}
    for chunk in chunks:
        for choice in chunk.get("choices") or []:
            choices.setdefault(choice.get("index", 0), []).append(choice)
    usage: dict[str, Any] = next((c["usage"] for c in reversed(chunks) if c.get("usage")), {})
    prompts = request.get("prompt")
    several = isinstance(prompts, list) and len(prompts) > 1 and isinstance(prompts[0], str)
    rows = []
    for index in sorted(choices):
        row = of_choice(request, choices[index], usage, alone=len(choices) == 1, several=several)
        owner = index // (request.get("n") or 1) if several else 0
        if several or index == 0:
            text = prompts[owner] if several else None  # type: ignore[index]  # checked above
            row |= of_prompt(request, chunks, choices[index], usage, text=text)
        rows.append(row)
    return rows


def chunks_of(response: Any) -> list[Any]:
    if isinstance(response, str):
        events = [line[5:].strip() for line in response.split("\n") if line.startswith("data:")]
        return [json.loads(event) for event in events if event != "[DONE]"]
    return response if isinstance(response, list) else [response]


def is_error(chunk: Any) -> bool:
    if not isinstance(chunk, dict) or chunk.get("object") == "error" or chunk.get("error"):
        return True
    return not any(key in chunk for key in ("choices", "output", "details", "token"))


def of_choice(request, pieces, usage, *, alone, several) -> Row:
    texts, sampled, tops, tokens, finish = [], [], [], [], None
    style = ""
    for piece in pieces:
        message = piece.get("message") or piece.get("delta") or {}
        texts.append(piece.get("text") or message.get("content") or "")
        finish = piece.get("finish_reason") or finish
        logprobs = piece.get("logprobs")
        if not logprobs:
            continue
        if logprobs.get("content") is not None:
            style = "chat"
            for entry in logprobs["content"]:
                sampled.append(entry["logprob"])
                tokens += [entry["token"]] if "token" in entry else []
                tops.append([top["logprob"] for top in entry.get("top_logprobs") or []])
        else:
            style = "completions"
            sampled += logprobs["token_logprobs"]
            tokens += logprobs["tokens"]
            given = logprobs.get("top_logprobs") or [None] * len(sampled)
            tops += [list((one or {}).values()) for one in given]
    text = "".join(texts)
    if request.get("echo") and sampled:
        cut = usage["prompt_tokens"]
        sampled, tokens, tops = sampled[cut:], tokens[cut:], tops[cut:]
        text = text.removeprefix(request["prompt"])
    asked = request.get("top_logprobs", request.get("logprobs"))
    asked = None if asked is True else asked
    row = of_tokens(sampled, tops, style, asked) | of_text(tokens, text)
    row["output_tokens"] = float(len(sampled)) if sampled else math.nan
    if alone and "completion_tokens" in usage:
        row["output_tokens"] = float(usage["completion_tokens"])
    if request.get("max_tokens") == 0:
        row["output_tokens"] = 0.0
    row["output_length_capped"] = math.nan if finish is None else float(finish == "length")
    return row


def of_tokens(sampled, tops, style, asked) -> Row:
    costs = [-x for x in sampled if x is not None and x > -999]
    row = dict.fromkeys(
        ("output_surprisal_mean_nats", "output_unlikely_ratio", "output_surprisal_p90_nats"),
        math.nan,
    )
    row |= {"output_entropy_nats": math.nan, "output_frozen_ratio": math.nan}
    row["output_longest_sure_run_tokens"] = math.nan
    if not costs:
        return row
    row["output_surprisal_mean_nats"] = math.fsum(costs) / len(costs)
    row["output_unlikely_ratio"] = sum(math.exp(-x) < 0.1 for x in costs) / len(costs)
    row["output_surprisal_p90_nats"] = sorted(costs)[math.ceil(0.9 * len(costs) - 1e-9) - 1]
    runs = "".join("1" if x is not None and math.exp(x) > 0.99 else "0" for x in sampled)
    row["output_longest_sure_run_tokens"] = float(max(map(len, runs.split("0"))))
    most = max(map(len, tops), default=0)
    if style == "completions" and asked is not None:
        k = full = min(asked, most)
    elif style == "completions":
        k = full = max(most - 1, 0)
    else:
        k, full = max(most - 1, 0), most
    entropies, frozen = [], []
    for x, listed in zip(sampled, tops, strict=True):
        if k == 0 or x is None or x <= -999 or len(listed) < full:
            continue
        known = sorted((y for y in listed if y is not None and y > -999), reverse=True)[:k]
        mass = math.fsum(math.exp(y) for y in known)
        rest = max(1 - mass, 0.0)
        head = -math.fsum(math.exp(y) * y for y in known)
        even = math.log((VOCABULARY - k) / max(rest, 1e-300))
        price = (max(even, -known[-1]) - known[-1]) / 2
        outside = len(listed) > k if style == "completions" and asked is not None else None
        if outside is None:
            outside = x < known[-1] - 1e-9
        entropies.append(head + rest * price + (-x - price if outside else 0.0))
        frozen.append(head + rest * price < 0.05)
    if entropies:
        row["output_entropy_nats"] = math.fsum(entropies) / len(entropies)
        row["output_frozen_ratio"] = sum(frozen) / len(frozen)
    return row


def of_text(tokens, text) -> Row:
    grams = [tuple(tokens[i : i + 4]) for i in range(len(tokens) - 3)]
    data = text.encode()
    return {
        "output_distinct_ratio": len(Counter(grams)) / len(grams) if grams else math.nan,
        "output_compression_ratio": len(zstandard.compress(data, 1)) / len(data)
        if data
        else math.nan,
    }


def of_prompt(request, chunks, pieces, usage, *, text) -> Row:
    if text is None:
        text = prompt_text(request)
    row = {
        "temperature": float(request.get("temperature", math.nan)),
        "max_tokens": float(request.get("max_tokens", math.nan)),
    }
    if text is not None:
        data = text.encode()
        row["prompt_chars"] = float(len(text))
        row["prompt_digit_ratio"] = sum(chr(b).isdigit() for b in data if b < 128) / len(data)
        row["prompt_json_ratio"] = sum(chr(b) in '{}[]":,' for b in data) / len(data)
        row["prompt_nonascii_ratio"] = sum(b > 127 for b in data) / len(data)
    if "prompt_tokens" in usage and not isinstance(request.get("prompt"), list):
        row["prompt_tokens"] = float(usage["prompt_tokens"])
    maps = pieces[0].get("prompt_logprobs") or chunks[0].get("prompt_logprobs")
    if maps:  # vLLM's own front end: the prompt's token comes first
        scores = [next(iter(one.values()))["logprob"] for one in maps if one]
        row["prompt_logprob_mean_nats"] = math.fsum(scores) / len(scores)
    return row


def prompt_text(request) -> str | None:
    if "messages" in request:
        return "\n".join(message["content"] for message in request["messages"])
    given = request.get("prompt", request.get("input", request.get("inputs")))
    return given if isinstance(given, str) else None


def of_responses_api(request, body) -> Row:
    content = body["output"][0]["content"]
    entries = [entry for part in content for entry in part["logprobs"]]
    sampled = [entry["logprob"] for entry in entries]
    tops = [[top["logprob"] for top in entry["top_logprobs"]] for entry in entries]
    text = "".join(part["text"] for part in content)
    row = of_tokens(sampled, tops, "chat", None)
    row |= of_text([entry["token"] for entry in entries], text)
    row["output_tokens"] = float(body.get("usage", {}).get("output_tokens", len(sampled)))
    row["output_length_capped"] = float(body["incomplete_details"] is not None)
    if text_in := prompt_text(request):
        row["prompt_chars"] = float(len(text_in))
    return row


def of_tgi(request, body) -> Row:
    details = body["details"]
    tokens = [token for token in details["tokens"] if not token["special"]]
    row = of_tokens([token["logprob"] for token in tokens], [[] for _ in tokens], "tgi", None)
    row |= of_text([token["text"] for token in tokens], body["generated_text"])
    row["output_tokens"] = float(details["generated_tokens"])
    row["output_length_capped"] = float(details["finish_reason"] == "length")
    scores = [token["logprob"] for token in details["prefill"][1:]]
    if scores:
        row["prompt_logprob_mean_nats"] = math.fsum(scores) / len(scores)
        row["prompt_tokens"] = float(len(details["prefill"]))
    return row
