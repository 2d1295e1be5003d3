"""GenAI spans and events over OTLP become generations like any other."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.util.types import AttributeValue

from collector.ingest.intake import open_and_decode_otlp
from collector.ingest.otlp import OtlpLines, otlp_lines
from collector.ingest.records import BodyError, Decoded, Defaults, Limits, Reason, TierNames
from detectors.records import FloatArray
from tests.collector.ingest.exports import CHAT, PLAIN, as_json, logs, spans

NOW = datetime(2026, 12, 1, tzinfo=UTC)
TARGETS = frozenset({"10.0.0.1:8000"})
DEFAULTS = Defaults(NOW, {"chat": TierNames(targets=TARGETS)}, tier="chat", live=False)
TOP = {"content": [{"token": "a", "logprob": -0.5, "top_logprobs": [{"logprob": -0.5}]}]}


def decoded(body: bytes, kind: str = "traces", form: str = "protobuf") -> Decoded:
    assert kind in {"traces", "logs"}
    assert form in {"protobuf", "json"}
    return open_and_decode_otlp(
        body,
        "",
        DEFAULTS,
        Limits(),
        kind="traces" if kind == "traces" else "logs",
        form="json" if form == "json" else "protobuf",
    )


def only_line(found: OtlpLines) -> dict[str, object]:
    assert found.lines == 1
    line: dict[str, object] = json.loads(found.body)
    return line


def column(found: Decoded, signal: str) -> FloatArray:
    (batch,) = found.batches
    return batch.columns[signal]


def test_a_span_of_the_sdk_tells_parameters_usage_reason_and_latency() -> None:
    found = decoded(spans(CHAT))

    assert (found.accepted, found.ignored) == (1, 0)
    assert column(found, "prompt_tokens") == [12.0]
    assert column(found, "output_tokens") == [3.0]
    assert column(found, "temperature") == [0.7]
    assert column(found, "max_tokens") == [64.0]
    assert column(found, "request_seconds") == [1.5]
    assert column(found, "output_length_capped") == [0.0]
    assert found.batches[0].newest_at == datetime(2026, 11, 29, 12, 0, tzinfo=UTC)


def test_messages_that_the_sender_opted_into_are_features_and_nothing_more() -> None:
    messages = [{"role": "user", "parts": [{"type": "text", "content": "one two"}]}]
    answer = [{"role": "assistant", "parts": [{"type": "text", "content": "three"}]}]
    attributes: dict[str, AttributeValue] = {
        **CHAT,
        "gen_ai.input.messages": json.dumps(messages),
        "gen_ai.output.messages": json.dumps(answer),
        "gen_ai.response.logprobs": json.dumps(TOP),
    }

    found = decoded(spans(attributes))

    assert column(found, "prompt_chars") == [7.0]
    assert np.allclose(column(found, "output_surprisal_mean_nats"), 0.5)


def test_names_of_older_conventions_are_read() -> None:
    older: dict[str, AttributeValue] = {
        "gen_ai.usage.prompt_tokens": 5,
        "gen_ai.usage.completion_tokens": 2,
        "gen_ai.prompt.0.content": "hello",
        "gen_ai.completion.0.content": "world",
        "gen_ai.completion.0.finish_reason": "length",
    }

    found = decoded(spans(older))

    assert column(found, "prompt_chars") == [5.0]
    assert column(found, "output_length_capped") == [1.0]


def test_what_is_no_finished_generation_is_passed_over_and_counted() -> None:
    database = {"db.system": "postgresql"}
    embedding = {**CHAT, "gen_ai.operation.name": "embeddings"}
    failed = {**CHAT, "error.type": "timeout"}

    found = decoded(spans(CHAT, database, embedding, failed))
    broken = decoded(spans(CHAT, failed=True))

    assert (found.accepted, found.ignored) == (1, 3)
    assert (broken.accepted, broken.ignored) == (0, 1)


@pytest.mark.parametrize(
    ("more", "target"),
    [
        ({"server.address": "10.0.0.1", "server.port": 8000}, "10.0.0.1:8000"),
        ({"server.address": "gateway", "server.port": 80}, None),
        ({"fusewire.target": "10.0.0.1:8000"}, "10.0.0.1:8000"),
    ],
    ids=["the server's address", "an address nobody knows", "said outright"],
)
def test_the_server_that_a_span_names_is_the_target_if_it_is_one(
    more: dict[str, str | int], target: str | None
) -> None:
    line = only_line(otlp_lines(spans({**CHAT, **more}), "traces", "protobuf", TARGETS))

    assert line.get("target") == target


@pytest.mark.parametrize("form", ["protobuf", "json"])
def test_the_event_with_all_details_is_read_in_both_encodings(form: str) -> None:
    export = logs(
        ("gen_ai.client.inference.operation.details", PLAIN, None),
        ("app.started", {}, "hello"),
    )

    found = decoded(export if form == "protobuf" else as_json(export), "logs", form)

    assert (found.accepted, found.ignored) == (1, 1)
    assert column(found, "prompt_tokens") == [12.0]


def test_events_a_message_are_put_together_by_their_span() -> None:
    export = logs(
        ("gen_ai.user.message", {"gen_ai.system": "vllm"}, {"content": "one two"}),
        (
            "gen_ai.choice",
            {},
            {"index": 0, "finish_reason": "length", "message": {"content": "three"}},
        ),
    )

    found = decoded(export, "logs")

    assert (found.accepted, found.ignored) == (1, 0)
    assert column(found, "prompt_chars") == [7.0]
    assert column(found, "output_length_capped") == [1.0]


def test_messages_without_a_choice_are_no_generation() -> None:
    export = logs(("gen_ai.user.message", {}, {"content": "one"}))

    assert decoded(export, "logs").ignored == 1


@pytest.mark.parametrize(
    ("body", "form"), [(b"\xff\xff\xff", "protobuf"), (b"{", "json"), (b"[" * 99_999, "json")]
)
def test_what_is_no_export_is_refused_with_a_remedy(body: bytes, form: str) -> None:
    with pytest.raises(BodyError, match="no OTLP export") as caught:
        decoded(body, "traces", form)

    assert caught.value.reason is Reason.MALFORMED


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)


@given(
    st.dictionaries(
        st.sampled_from(
            [
                "gen_ai.operation.name",
                "gen_ai.input.messages",
                "gen_ai.output.messages",
                "gen_ai.response.logprobs",
                "gen_ai.usage.output_tokens",
                "gen_ai.request.temperature",
                "gen_ai.response.finish_reasons",
                "gen_ai.prompt.0.content",
            ]
        ),
        JSON.map(lambda it: msgspec.json.encode(it).decode()),
    )
)
def test_no_attributes_raise_and_every_record_is_accounted_for(attributes: dict[str, str]) -> None:
    found = decoded(spans({"gen_ai.operation.name": "chat", **attributes}))

    assert found.accepted + sum(found.refused.values()) + found.ignored == 1


@pytest.mark.parametrize("identity", ["chatcmpl-6f1c9a0d41f24c1f", "chatcmpl-517", None])
def test_an_export_that_holds_a_span_twice_counts_it_once(identity: str | None) -> None:
    named = {"gen_ai.response.id": identity} if identity else {}
    plain = {key: value for key, value in PLAIN.items() if key != "gen_ai.response.id"}
    event = ("gen_ai.client.inference.operation.details", {**plain, **named}, None)

    found = decoded(logs(event, event), "logs")

    assert (found.accepted, found.generations) == (2, 1)
    assert dict(found.partial)["duplicate"] == 1


def test_two_spans_with_an_id_that_is_used_again_are_two() -> None:
    ollama = {**CHAT, "gen_ai.response.id": "chatcmpl-517"}

    assert decoded(spans(ollama, ollama)).generations == 2


def test_a_response_id_of_another_type_is_refused_by_none() -> None:
    assert decoded(spans({**CHAT, "gen_ai.response.id": 17})).accepted == 1
