"""What a body of lines becomes: places, times, limits, and the fate of each line."""

from __future__ import annotations

import json
import math
import pickle
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collector.ingest.decode import decode
from collector.ingest.records import Limits, Missing, Reason
from tests.collector.ingest.lines import a_line, the_batch
from tests.collector.ingest.recorded import ARRIVAL, DEFAULTS, corpus, recorded, replayed, the

LIMITS = Limits()
CHAT = the("0.32.0-chat-logprobs-top5")
CREATED = datetime.fromtimestamp(CHAT.response["created"], UTC)


def test_one_object_an_array_and_ndjson_are_told_apart() -> None:
    line = a_line()
    bodies = {
        "one": (line, 1),
        "pretty": (json.dumps(json.loads(line), indent=2).encode(), 1),
        "array": (b"[" + line + b" ,\n" + line + b"]", 2),
        "empty array": (b" [ ] ", 0),
        "ndjson": (line + b"\n\n" + line + b"\r\n", 2),
        "byte order mark": (b"\xef\xbb\xbf" + line, 1),
        "nothing": (b" \n", 0),
    }

    found = {name: decode(body, DEFAULTS, LIMITS) for name, (body, _) in bodies.items()}

    for name, (_, count) in bodies.items():
        assert (found[name].accepted, found[name].lines) == (count, count), name


def test_a_broken_line_costs_itself_only_and_is_named_by_its_number() -> None:
    body = a_line() + b'\n{"request": {}\n\n' + a_line() + b'\n{"request": {}, "response": 7}'

    decoded = decode(body, DEFAULTS, LIMITS)

    assert decoded.accepted == 2
    assert [problem.line for problem in decoded.rejected] == [2, 5]
    assert decoded.refused == {"malformed": 2}


def test_an_array_is_read_up_to_its_first_broken_element() -> None:
    decoded = decode(
        b"[" + a_line() + b', {"request": nonsense}, ' + a_line() + b"]", DEFAULTS, LIMITS
    )

    assert decoded.accepted == 1
    assert [(p.line, p.reason) for p in decoded.rejected] == [(2, Reason.MALFORMED)]


def test_lines_go_to_the_place_they_name_and_unknown_names_make_no_streams() -> None:
    body = b"\n".join(
        [
            a_line(target="a", segment="upstream-1"),
            a_line(target="a", segment="someone"),
            a_line(target="invented", segment="upstream-1"),
        ]
    )

    decoded = decode(body, DEFAULTS, LIMITS)

    assert {(batch.target, batch.segment) for batch in decoded.batches} == {
        ("a", "upstream-1"),
        ("a", "other"),
        ("", "upstream-1"),
    }
    assert decoded.partial[Missing.UNKNOWN_TARGET] == 1


def test_a_line_may_override_the_callers_defaults() -> None:
    defaults = replace(DEFAULTS, target="a", segment="upstream-1")

    batch = the_batch(decode(a_line(target="b"), defaults, LIMITS))

    assert (batch.target, batch.segment) == ("b", "upstream-1")


@pytest.mark.parametrize("tier", ["nowhere", ""])
def test_a_line_of_no_known_tier_is_refused_with_the_known_ones(tier: str) -> None:
    decoded = decode(a_line(tier=tier), replace(DEFAULTS, tier=""), LIMITS)

    assert decoded.refused == {"unknown_tier": 1}
    assert decoded.rejected[0].message.endswith("configured: chat")


@pytest.mark.parametrize(
    ("at", "expected", "lacking"),
    [
        ("2026-11-29T17:59:30Z", ARRIVAL - timedelta(seconds=30), 0),
        ("2026-11-29T18:59:30+01:00", ARRIVAL - timedelta(seconds=30), 0),
        ((ARRIVAL - timedelta(seconds=5)).timestamp(), ARRIVAL - timedelta(seconds=5), 0),
        ("2026-11-29T17:59:30", ARRIVAL, 1),  # no offset
        ("yesterday", ARRIVAL, 1),
        ((ARRIVAL.timestamp()) * 1000, ARRIVAL, 1),  # milliseconds
        (-1e300, ARRIVAL, 1),
        ("2026-11-29T18:30:00Z", ARRIVAL, 1),  # a clock ahead
        ("2026-10-01T00:00:00Z", ARRIVAL, 1),  # too old to be live
        (None, CREATED, 0),
    ],
)
def test_a_lines_time_is_used_unless_it_is_no_time_to_believe(
    at: str | float | None, expected: datetime, lacking: int
) -> None:
    decoded = decode(CHAT.line(at=at), DEFAULTS, LIMITS)

    assert the_batch(decoded).newest_at == expected
    assert decoded.partial.get(Missing.BAD_TIME, 0) == lacking


def test_a_replay_believes_old_times() -> None:
    decoded = decode(CHAT.line(at="2025-01-01T00:00:00Z"), replayed(), LIMITS)

    assert the_batch(decoded).newest_at == datetime(2025, 1, 1, tzinfo=UTC)


def test_several_answers_count_their_prompt_once() -> None:
    one = the("0.32.0-completions-n3")

    decoded = decode(one.line(latency_seconds=2.5), DEFAULTS, LIMITS)

    batch = the_batch(decoded)
    assert (decoded.accepted, decoded.generations) == (1, 3)
    for signal in ("prompt_chars", "prompt_tokens", "max_tokens", "request_seconds"):
        assert np.isnan(batch.columns[signal]).tolist() == [False, True, True], signal
    assert not np.isnan(batch.columns["output_entropy_nats"]).any()


def test_each_prompt_of_a_list_is_counted() -> None:
    one = the("0.32.0-completions-batch2prompts")

    batch = the_batch(decode(one.line(), DEFAULTS, LIMITS))

    assert batch.columns["prompt_chars"].tolist() == [len(text) for text in one.request["prompt"]]
    assert "prompt_tokens" not in batch.columns  # usage counts both together


def test_a_prompt_of_token_ids_has_a_length_and_nothing_else() -> None:
    line = a_line({"prompt": [5, 6, 7]})

    batch = the_batch(decode(line, DEFAULTS, LIMITS))

    assert batch.columns["prompt_tokens"].tolist() == [3.0]
    assert not [
        name for name in batch.columns if name.startswith("prompt_") and name != "prompt_tokens"
    ]


def test_message_parts_are_joined() -> None:
    parts = [{"type": "text", "text": "ab"}, {"type": "image_url", "image_url": {"url": "x"}}]
    messages = [{"role": "system", "content": "xyz"}, {"role": "user", "content": parts}]

    batch = the_batch(decode(a_line({"prompt": None, "messages": messages}), DEFAULTS, LIMITS))

    assert batch.columns["prompt_chars"].tolist() == [len("xyz\nab")]


def test_an_answer_without_logprobs_is_taken_in_part() -> None:
    decoded = decode(the("0.32.0-chat-nologprobs").line(), DEFAULTS, LIMITS)

    batch = the_batch(decoded)
    assert decoded.partial == {Missing.NO_LOGPROBS: 1}
    assert {"prompt_chars", "output_tokens"} <= set(batch.columns)
    assert not {"output_entropy_nats", "output_surprisal_mean_nats", "output_looping"} & set(
        batch.columns
    )


def test_null_and_clamped_logprobs_are_missing_not_unlikely() -> None:
    line = json.loads(a_line())
    line["response"]["choices"][0]["logprobs"]["token_logprobs"] = [-0.5, -9999.0]
    other = json.loads(a_line())
    other["response"]["choices"][0]["logprobs"]["token_logprobs"] = [-0.5, None]
    third = json.loads(a_line())
    third["response"]["choices"][0]["logprobs"]["token_logprobs"] = [-0.5, -1000.0]

    decoded = decode(json.dumps([line, other, third]).encode(), DEFAULTS, LIMITS)

    batch = the_batch(decoded)
    assert batch.columns["output_surprisal_mean_nats"].tolist() == [0.5, 0.5, 0.5]
    assert batch.columns["output_unlikely_ratio"].tolist() == [0.0, 0.0, 0.0]
    assert decoded.partial == {Missing.MISSING_LOGPROBS: 3}


@pytest.mark.parametrize("where", ["sampled", "listed"])
def test_logits_are_refused_and_nothing_of_their_line_is_counted(where: str) -> None:
    line = json.loads(a_line())
    logprobs = line["response"]["choices"][0]["logprobs"]
    if where == "sampled":
        logprobs["token_logprobs"][1] = 7.25
    else:
        logprobs["top_logprobs"][1]["d"] = 7.25

    decoded = decode(a_line() + b"\n" + json.dumps(line).encode(), DEFAULTS, LIMITS)

    assert (decoded.accepted, decoded.generations) == (1, 1)
    assert [(p.line, p.reason) for p in decoded.rejected] == [(2, Reason.LOGITS)]
    assert "--logprobs-mode" in decoded.rejected[0].message


def test_prompt_logits_are_refused_too() -> None:
    one = the("0.32.0-completions-prompt-logprobs3")
    response = one.response
    next(iter(response["choices"][0]["prompt_logprobs"][3].values()))["logprob"] = 3.5
    line = json.dumps({"request": one.request, "response": response}).encode()

    assert decode(line, DEFAULTS, LIMITS).refused == {"logits": 1}


@pytest.mark.parametrize("literal", [b"NaN", b"Infinity", b"-Infinity", b"1e999"])
def test_a_number_that_is_no_json_is_malformed(literal: bytes) -> None:
    decoded = decode(a_line().replace(b"-1.5]", literal + b"]"), DEFAULTS, LIMITS)

    assert decoded.refused == {"malformed": 1}


def test_a_bad_latency_is_left_out_and_milliseconds_are_understood() -> None:
    body = b"\n".join([a_line(latency_seconds=-1), a_line(ms=1500), a_line(latency_seconds=0.25)])

    decoded = decode(body, DEFAULTS, LIMITS)

    seconds = the_batch(decoded).columns["request_seconds"]
    assert math.isnan(seconds[0])
    assert seconds[1:].tolist() == [1.5, 0.25]
    assert decoded.partial == {Missing.BAD_LATENCY: 1}


def test_the_variant_tells_apart_what_gives_logprobs_their_meaning() -> None:
    def variant(line: bytes) -> str:
        return the_batch(decode(line, DEFAULTS, LIMITS)).variant

    same = {
        variant(a_line(engine="vllm-0.32.0")),
        variant(a_line(engine="vllm-0.32.7-abcdef")),
        variant(a_line({"temperature": 0.3}, engine="0.32")),
    }
    others = {
        variant(a_line(engine="vllm-0.31.0")),
        variant(a_line({"model": "n"}, engine="vllm-0.32.0")),
        variant(a_line(engine="vllm-0.32.0", logprobs_mode="processed_logprobs")),
        variant(a_line({"logprobs": 1}, engine="vllm-0.32.0")),
        variant(a_line()),
    }

    assert len(same) == 1
    assert len(same | others) == 6


CANARIES = ("zebra-canary-prompt", "quokka-canary-answer", "ocelot-canary-error")


@pytest.mark.parametrize("broken", [False, True])
def test_no_text_of_users_comes_out(*, broken: bool) -> None:
    line = json.loads(a_line({"prompt": CANARIES[0]}, id=CANARIES[0]))
    choice = line["response"]["choices"][0]
    choice["text"] = CANARIES[1]
    choice["logprobs"]["tokens"] = [CANARIES[1], "x"]
    choice["logprobs"]["top_logprobs"][0] = {CANARIES[1]: -0.5, "y": -1.0}
    error = {"request": {"prompt": CANARIES[0]}, "response": {"error": {"message": CANARIES[2]}}}
    wrong = {"request": {"prompt": {CANARIES[0]: CANARIES[0]}}, "response": CANARIES[1]}
    unplaced = {"request": {}, "response": line["response"], "tier": CANARIES[0]}
    if broken:
        choice["logprobs"]["top_logprobs"][0] = {CANARIES[1]: CANARIES[1]}
    lines = [json.dumps(one).encode() for one in (line, error, wrong, unplaced)]
    lines.append(lines[0][:-40] + CANARIES[1].encode())

    decoded = decode(b"\n".join(lines), DEFAULTS, LIMITS)

    assert decoded.accepted == (0 if broken else 1)
    assert decoded.lines == 5
    told = repr(decoded) + pickle.dumps(decoded).decode("latin-1")
    assert "canary" not in told


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_no_mutation_of_real_lines_raises_and_every_line_has_a_fate(data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.sampled_from(LINES), min_size=1, max_size=3))
    mutated = []
    for line in chosen:
        body = bytearray(line)
        for _ in range(data.draw(st.integers(0, 3))):
            place = data.draw(st.integers(0, len(body) - 1))
            body[place : place + data.draw(st.integers(0, 4))] = data.draw(SNIPPETS)
        mutated.append(bytes(body).replace(b"\n", b" "))
    # A first line that opens an array, or holds nothing, changes what a line is.
    whole = [b'{"request": {}, "response": {}}', *(one for one in mutated if one.strip())]

    decoded = decode(b"\n".join(whole), DEFAULTS, LIMITS)

    assert decoded.lines == len(whole)
    assert decoded.accepted + sum(decoded.refused.values()) == len(whole)
    for batch in decoded.batches:
        assert all(len(column) == batch.size for column in batch.columns.values())


LINES = [one.line() for one in recorded()]
SNIPPETS = st.one_of(
    st.binary(max_size=4),
    st.sampled_from(
        [b"null", b"-1e308", b"[]", b"{}", b'"', b"-9999.0", b"1e5", b"true", b"\\u00e9"]
    ),
)


def test_the_corpus_shows_what_is_known_of_it() -> None:
    means = {
        name: {
            signal: float(np.nanmean(column))
            for signal, column in the_batch(
                decode(corpus(name), replayed(), LIMITS)
            ).columns.items()
        }
        for name in ("a-baseline", "c-temp1.5", "b-json")
    }

    surprisal = {name: found["output_surprisal_mean_nats"] for name, found in means.items()}
    entropy = {name: found["output_entropy_nats"] for name, found in means.items()}
    assert surprisal["a-baseline"] == pytest.approx(4.3, abs=0.3)
    assert surprisal["c-temp1.5"] == pytest.approx(6.6, abs=0.3)
    assert entropy["a-baseline"] == pytest.approx(surprisal["a-baseline"], abs=0.25)
    assert means["b-json"]["prompt_json_ratio"] > 10 * means["a-baseline"]["prompt_json_ratio"]


def test_loops_are_found_in_the_corpus_and_not_where_there_are_none() -> None:
    loops = the_batch(decode(corpus("e-loops"), replayed(), LIMITS))
    plain = the_batch(decode(corpus("a-baseline"), replayed(), LIMITS))

    assert loops.columns["output_looping"].sum() == 36
    assert plain.columns["output_looping"].sum() == 0


def test_a_body_decoded_elsewhere_comes_back_the_same() -> None:
    decoded = decode(corpus("b-json"), replayed(), LIMITS)

    copy = pickle.loads(pickle.dumps(decoded))

    assert copy.accepted == decoded.accepted == 120
    np.testing.assert_array_equal(
        copy.batches[0].columns["prompt_chars"], decoded.batches[0].columns["prompt_chars"]
    )


def test_the_decoder_names_the_end_of_an_element_as_lines_expects() -> None:
    with pytest.raises(msgspec.DecodeError, match=r"trailing characters \(byte 10\)$"):
        msgspec.json.decode(b'{"a": 1} ,', type=msgspec.Raw)
