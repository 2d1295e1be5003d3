"""Every recorded body of every engine against numbers worked out by hand (`by_hand.py`)."""

from __future__ import annotations

import json
import math

import pytest

from collector.ingest.decode import decode
from collector.ingest.records import Limits, Reason
from tests.collector.ingest.by_hand import chunks_of, rows_of
from tests.collector.ingest.recorded import Recorded, recorded, replayed, the

NO_JSON = {
    "openai-chat-logprobs-sdk-repr.txt",
    "vllm-0.11-chat-logprobs-openai-sdk-repr.txt",
    "vllm-0.6-python-logprob-repr-minus-inf.txt",
    "vllm-ascend-0.12-request-state-stats-repr.txt",
    "aphrodite-first-token-minus-inf-repr.txt",
    "tgi-1.4.4-chat-logprobs-truncated.txt",
}
BODIES = recorded()
# The Rust front end lists prompt candidates in no order, which the oracle does not know.
UNORDERED = {one.name for one in BODIES if "rust" in one.name and "prompt_logprobs" in one.body}


def the_rows(one: Recorded) -> list[dict[str, float]]:
    decoded = decode(one.line(), replayed(), Limits())
    assert decoded.lines == 1
    assert len(decoded.batches) <= 1
    if not decoded.batches:
        return []
    (batch,) = decoded.batches
    return [
        {name: float(column[row]) for name, column in batch.columns.items()}
        for row in range(batch.size)
    ]


@pytest.mark.parametrize("one", BODIES, ids=lambda one: one.name)
def test_a_recorded_body_gives_the_numbers_worked_out_by_hand(one: Recorded) -> None:
    if "err-wrong-type" in one.name:  # the request itself has text where a number belongs
        assert the_rows(one) == []
        return
    expected = [] if one.name in NO_JSON else rows_of(one.request, one.response)

    found = the_rows(one)

    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        for signal, value in theirs.items():
            if signal == "prompt_logprob_mean_nats" and one.name in UNORDERED:
                continue
            got = ours.get(signal, math.nan)
            assert got == pytest.approx(value, rel=1e-9, abs=1e-9, nan_ok=True), signal


def test_the_recordings_hold_enough_to_mean_something() -> None:
    answers = [
        row
        for one in BODIES
        if one.name not in NO_JSON
        for row in rows_of(one.request, one.response)
    ]

    with_entropy = [row for row in answers if not math.isnan(row["output_entropy_nats"])]

    assert len(BODIES) > 200
    assert len(answers) > 130
    assert len(with_entropy) > 90


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("0.8.5.post2-err-model-not-found", Reason.ENGINE_ERROR),  # flat
        ("0.32.0-err-model-not-found", Reason.ENGINE_ERROR),  # nested
        ("0.32.0-err-401-no-key", Reason.ENGINE_ERROR),  # {"error": "Unauthorized"}
        ("0.32.0-err-unknown-route", Reason.ENGINE_ERROR),  # {"detail": …}
        ("0.32.0-enginedead-inflight-stream", Reason.ENGINE_ERROR),  # an event mid-stream
        ("0.32.0-nanweights-completions-logprobs5", Reason.ENGINE_ERROR),
        ("0.32.0-post_tokenize", Reason.NO_ANSWER),
        ("tgi-1.4.4-chat-logprobs-truncated.txt", Reason.MALFORMED),
        ("vllm-0.6-python-logprob-repr-minus-inf.txt", Reason.NO_ANSWER),
    ],
)
def test_what_is_no_answer_is_refused_with_its_reason(name: str, reason: Reason) -> None:
    decoded = decode(the(name).line(), replayed(), Limits())

    assert decoded.accepted == 0
    assert [problem.reason for problem in decoded.rejected] == [reason]


def test_a_streamed_answer_and_the_same_in_one_piece_give_the_same_numbers() -> None:
    whole = the("0.32.0-completions-logprobs5")
    pieces = the("0.32.0-completions-stream-logprobs5")
    assert whole.request["prompt"] == pieces.request["prompt"]

    (one,), (other,) = the_rows(whole), the_rows(pieces)

    same = [name for name in one if name.startswith("output_")]
    assert len(same) >= 10
    for name in same:
        assert one[name] == pytest.approx(other[name], nan_ok=True), name


def test_a_stream_as_a_list_of_chunks_is_the_stream_as_text() -> None:
    text = the("0.32.0-chat-stream-top5")
    chunks = Recorded(text.name, text.request, json.dumps(chunks_of(text.body)))

    assert the_rows(chunks) == the_rows(text)
    assert the_rows(text)[0]["output_tokens"] == 12
