"""Bounds of what one body may cost: each is refused with its reason, and the rest is taken."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from collector.ingest.batches import MOST_COUNTED
from collector.ingest.decode import decode
from collector.ingest.records import BodyError, Limits, Missing, Reason
from detectors.signals import grid_of
from tests.collector.ingest.lines import a_line, the_batch
from tests.collector.ingest.recorded import DEFAULTS, corpus, replayed

LIMITS = Limits()


def test_an_oversized_line_counts_its_prompt_and_nothing_else() -> None:
    limits = replace(LIMITS, max_line_bytes=2000)
    line = a_line({"prompt": "x" * 3000})

    decoded = decode(a_line() + b"\n" + line, DEFAULTS, limits)

    assert decoded.accepted == 1
    assert [(p.line, p.reason) for p in decoded.rejected] == [(2, Reason.OVERSIZED)]
    (batch,) = decoded.batches  # the same variant: the rest of the tier's stream
    assert batch.columns["prompt_chars"].tolist() == [5.0, 3000.0]
    assert np.isnan(batch.columns["output_tokens"]).tolist() == [False, True]
    assert decoded.partial == {Missing.ONLY_PROMPT_SIZE: 1}


def test_a_line_of_countless_tiny_objects_is_stopped_before_it_takes_memory() -> None:
    line = b'{"request": {}, "response": [' + b"{}," * 600_000 + b"{}]}"

    decoded = decode(line, DEFAULTS, LIMITS)

    assert decoded.refused == {"oversized": 1}


def test_lines_beyond_the_limit_are_refused_with_one_message() -> None:
    decoded = decode(b"\n".join([a_line()] * 5), DEFAULTS, replace(LIMITS, max_lines=3))

    assert decoded.accepted == 3
    assert decoded.refused == {"too_many_lines": 1}


def test_a_body_over_the_limit_is_refused_whole() -> None:
    with pytest.raises(BodyError, match="expected at most 10") as caught:
        decode(a_line(), DEFAULTS, replace(LIMITS, max_batch_bytes=10))

    assert caught.value.reason is Reason.TOO_LARGE


@pytest.mark.parametrize("opening", [b"[", b'{"request":', b'{"request": {}, "response": ' + b"["])
def test_deep_nesting_is_malformed(opening: bytes) -> None:
    decoded = decode(opening * 20_000, DEFAULTS, LIMITS)

    assert decoded.refused == {"malformed": 1}


def test_a_stream_of_too_many_chunks_is_refused() -> None:
    line = json.dumps({"request": {}, "response": "data: {}\n" * 20}).encode()

    decoded = decode(line, DEFAULTS, replace(LIMITS, max_chunks=10))

    assert decoded.refused == {"oversized": 1}


def test_the_list_of_refused_lines_is_bounded_and_their_number_is_not() -> None:
    decoded = decode(b"nonsense\n" * 50, DEFAULTS, replace(LIMITS, max_rejected=10))

    assert len(decoded.rejected) == 10
    assert decoded.refused == {"malformed": 50}


def one_body(choices: list[dict[str, Any]]) -> Any:
    return {"choices": choices}


def one_stream(choices: list[dict[str, Any]]) -> Any:
    return [{"choices": [choice]} for choice in choices]


@pytest.mark.parametrize("shape", [one_body, one_stream])
def test_a_line_of_countless_choices_is_refused_and_the_rest_is_taken(
    shape: Callable[[list[dict[str, Any]]], Any],
) -> None:
    def line(answers: int) -> bytes:
        choices = [{"index": index} for index in range(answers)]
        return json.dumps({"request": {}, "response": shape(choices)}).encode()

    decoded = decode(b"\n".join([line(1024), line(1025), line(20_000)]), DEFAULTS, LIMITS)

    assert (decoded.accepted, decoded.generations) == (1, 1024)
    assert decoded.refused == {"too_many_choices": 2}
    assert "at most 1024 choices" in decoded.rejected[0].message


def test_choices_of_one_index_are_as_many_as_they_are() -> None:
    choices = b",".join([b'{"index":0}'] * 1025)

    decoded = decode(b'{"request":{},"response":{"choices":[' + choices + b"]}}", DEFAULTS, LIMITS)

    assert decoded.refused == {"too_many_choices": 1}


def test_a_body_stops_being_read_at_its_most_generations() -> None:
    line = json.dumps(
        {"request": {}, "response": {"choices": [{"index": index} for index in range(40)]}}
    ).encode()

    decoded = decode(b"\n".join([line] * 5), DEFAULTS, replace(LIMITS, max_generations=100))

    assert (decoded.accepted, decoded.generations) == (2, 80)
    assert decoded.refused == {"too_many_generations": 1}
    assert decoded.rejected[0].line == 3
    assert Limits().max_generations == 200_000


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"prompt_tokens": 7}, 7.0),
        ({"prompt_tokens": -7}, math.nan),
        ({"prompt_tokens": -7, "input_tokens": 5}, 5.0),
        ({"input_tokens": 5}, 5.0),
        ({}, math.nan),
    ],
)
def test_the_tokens_of_an_oversized_line_are_read_by_the_same_rule(
    usage: dict[str, float], expected: float
) -> None:
    line = json.loads(a_line({"prompt": "x" * 3000}))
    line["response"]["usage"] = usage

    decoded = decode(json.dumps(line).encode(), DEFAULTS, replace(LIMITS, max_line_bytes=2000))

    (batch,) = decoded.batches
    found = batch.columns.get("prompt_tokens", np.array([math.nan]))
    np.testing.assert_array_equal(found, [expected])


def test_a_batch_comes_with_the_counts_of_its_columns() -> None:
    batch = the_batch(decode(corpus("a-baseline"), replayed(), LIMITS))

    assert batch.counts.keys() == batch.columns.keys()
    for signal, column in batch.columns.items():
        np.testing.assert_array_equal(batch.counts[signal], grid_of(signal).count(column))


def test_of_countless_variants_only_the_largest_are_counted_beforehand() -> None:
    lines = [a_line({"model": f"m{number}"}) for number in range(MOST_COUNTED + 30)]
    lines += [a_line({"model": "large"})] * 3

    decoded = decode(b"\n".join(lines), DEFAULTS, LIMITS)

    assert len(decoded.batches) == MOST_COUNTED + 31
    counted = [batch for batch in decoded.batches if batch.counts]
    assert len(counted) == MOST_COUNTED
    assert max(decoded.batches, key=lambda batch: batch.size) in counted
