"""Ids, sampling ratios, coverage and vocabulary: what a line says beside request and response."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from collector.ingest.decode import decode
from collector.ingest.records import Decoded, Limits, TierNames
from tests.collector.ingest.lines import a_line
from tests.collector.ingest.recorded import DEFAULTS, the

LONG = "chatcmpl-6f1c9a0d41f24c1f"


def taken(*lines: bytes, **limits: Any) -> Decoded:
    return decode(b"\n".join(lines), DEFAULTS, Limits(**limits))


def answered(identity: object, **members: Any) -> bytes:
    """Return a line whose response says this id."""
    line = json.loads(a_line(**members))
    line["response"]["id"] = identity
    return json.dumps(line).encode()


def ids(found: Decoded) -> list[int]:
    return [one for said in found.sent for one in said.ids.tolist()]


def test_of_two_lines_of_one_id_the_first_counts_and_both_are_accepted() -> None:
    found = taken(a_line(id="r-1"), a_line(id="r-1"), a_line(id="r-2"))

    assert (found.accepted, found.generations) == (3, 2)
    assert dict(found.partial) == {"duplicate": 1}
    assert len(set(ids(found))) == 2


def test_lines_without_ids_all_count() -> None:
    found = taken(
        a_line(), a_line(), a_line(id=None), a_line(id=None), a_line(id=""), a_line(id="")
    )

    assert (found.generations, dict(found.partial)) == (6, {})
    assert ids(found) == [0] * 6


@pytest.mark.parametrize(
    ("identity", "counts"),
    [
        (LONG, 1),
        ("cmpl-db0591d9", 1),  # vLLM's Rust front end
        ("chatcmpl-ca971b3c-3613-40a2-8b6d-68c3f926d9d9", 1),
        ("resp_9ef57362ca2b46e9", 1),
        ("chatcmpl-BxqJ7mEXhLzVn1aRkP0sT4uWyCd", 1),  # OpenAI
        ("0b6c1b8f9a4e4d0fa0d6e4e55a6b5a64", 1),  # SGLang
        ("chatcmpl-517", 2),  # Ollama: a number under 1,000
        ("", 2),  # TGI
        (None, 2),
    ],
)
def test_the_responses_id_serves_if_it_is_long_enough_to_be_unique(
    identity: str | None, counts: int
) -> None:
    assert taken(answered(identity), answered(identity)).generations == counts


def test_the_lines_id_goes_before_the_responses() -> None:
    found = taken(answered(LONG, id="r-1"), answered(LONG, id="r-2"), answered("x", id="r-1"))

    assert (found.generations, dict(found.partial)) == (2, {"duplicate": 1})


def test_of_a_stream_the_first_chunk_that_has_an_id_says_it() -> None:
    stream = the("0.32.0-chat-stream-top5")

    one, other = taken(stream.line()), taken(stream.line(), stream.line())

    assert ids(one) == ids(other) != [0]


@pytest.mark.parametrize("identity", [17, 17.5, True, ["a"], {"a": 1}])
def test_an_id_of_any_form_is_an_id(identity: object) -> None:
    found = taken(a_line(id=identity), a_line(id=identity))

    assert (found.accepted, found.generations) == (2, 1)


def test_the_same_id_in_another_tier_is_another_request() -> None:
    defaults = replace(DEFAULTS, tiers={"chat": TierNames(), "embed": TierNames()})
    body = b"\n".join([a_line(id="r-1"), a_line(id="r-1", tier="embed")])

    assert decode(body, defaults, Limits()).generations == 2


def test_rows_of_one_line_have_its_id_and_a_repeated_line_repeats_them_all() -> None:
    line = json.loads(a_line({"n": 2}, id="r-1"))
    choice = line["response"]["choices"][0]
    line["response"]["choices"].append({**choice, "index": 1})
    body = json.dumps(line).encode()

    found = taken(body, a_line(id="r-2"), body)

    first, second, third = ids(found)
    assert first == second != third
    assert dict(found.partial) == {"duplicate": 2}


def test_an_id_is_the_same_in_every_process() -> None:
    assert ids(taken(a_line(id="r-1"))) == [8640944396277417785]


def test_a_refused_line_does_not_take_its_id() -> None:
    broken = json.dumps({"id": "r-1", "request": {}, "response": {"error": "no"}}).encode()

    found = taken(broken, a_line(id="r-1"))

    assert (found.accepted, found.generations, dict(found.partial)) == (1, 1, {})


def test_an_oversized_line_counts_its_size_once() -> None:
    long = a_line({"prompt": "x" * 3000}, id="r-1")

    found = taken(long, long, max_line_bytes=1000)

    assert dict(found.refused) == {"oversized": 2}
    assert found.generations == 1


def test_the_sampling_ratio_of_each_row_is_kept_where_one_says_one() -> None:
    found = taken(a_line(id="r-1", sample_ratio=0.1), a_line(), a_line(sample_ratio=1))

    assert found.sent[0].ratios.tolist() == [0.1, 1.0, 1.0]
    assert taken(a_line()).sent[0].ratios.tolist() == []


@pytest.mark.parametrize("ratio", [0, -0.1, 1.01, 1e300])
def test_a_ratio_that_is_none_is_told_and_counts_as_one(ratio: float) -> None:
    found = taken(a_line(sample_ratio=ratio))

    assert (found.accepted, dict(found.partial)) == (1, {"bad_sample_ratio": 1})
    assert found.sent[0].ratios.tolist() == []


def test_whether_an_answer_came_with_logprobs_is_a_signal() -> None:
    bare = json.loads(a_line(target="a"))
    del bare["response"]["choices"][0]["logprobs"]
    nothing = {**bare, "request": {**bare["request"], "max_tokens": 0}}

    found = taken(a_line(), json.dumps(bare).encode(), json.dumps(nothing).encode())

    scored = [batch.columns.get("output_scored") for batch in found.batches]
    told = np.concatenate([one for one in scored if one is not None]).tolist()
    assert sorted(one for one in told if not math.isnan(one)) == [0.0, 1.0]
    assert sum(map(math.isnan, told)) == 1  # no token was asked for: nothing to score


def test_the_size_of_the_vocabulary_reaches_the_estimate() -> None:
    def entropy(vocabulary: int) -> float:
        names = TierNames(vocabulary_tokens=vocabulary)
        found = decode(a_line(), replace(DEFAULTS, tiers={"chat": names}), Limits())
        return float(found.batches[0].columns["output_entropy_nats"][0])

    # Of the hidden mass r each position takes r c, and c has ln(V - 2) / 2 in it.
    first, second = 1 - math.exp(-0.5) - math.exp(-2.0), 1 - math.exp(-0.7) - math.exp(-1.5)
    expected = (first + second) / 2 * math.log((1_000_000 - 2) / (1_000 - 2)) / 2

    assert entropy(1_000_000) - entropy(1_000) == pytest.approx(expected)
    assert entropy(128_000) == pytest.approx(
        float(taken(a_line()).batches[0].columns["output_entropy_nats"][0])
    )


def test_tiers_of_one_body_have_vocabularies_of_their_own() -> None:
    tiers = {
        "chat": TierNames(vocabulary_tokens=1_000),
        "big": TierNames(vocabulary_tokens=900_000),
    }
    body = b"\n".join([a_line(), a_line(tier="big")])

    found = decode(body, replace(DEFAULTS, tiers=tiers), Limits())

    by_tier = {one.tier: float(one.columns["output_entropy_nats"][0]) for one in found.batches}
    assert by_tier["big"] > by_tier["chat"]
