"""OTLP exporters send to the service as to any collector."""

from __future__ import annotations

import gzip

import pytest
from google.protobuf import json_format
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from tests.collector.api.conftest import Asked
from tests.collector.ingest.exports import CHAT, as_json, logs, spans

pytestmark = pytest.mark.anyio
TRACES, LOGS = "/v1/otlp/chat/v1/traces", "/v1/otlp/chat/v1/logs"
PROTOBUF = {"content-type": "application/x-protobuf"}


@pytest.mark.slow
async def test_spans_are_counted_for_the_tier_and_the_answer_is_an_empty_success(
    asked: Asked,
) -> None:
    body = gzip.compress(spans(CHAT, {"db.system": "redis"}))

    answer = await asked.client.post(
        f"{TRACES}?segment=search", content=body, headers={**PROTOBUF, "content-encoding": "gzip"}
    )

    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/x-protobuf"
    told = ExportTraceServiceResponse.FromString(answer.content)
    assert told == ExportTraceServiceResponse()
    scopes = {str(scope) for _, scope, _ in asked.service.parts.state.lanes}
    assert scopes == {"tier", "segment:search"}
    page = asked.service.parts.page.render()[0].decode()
    assert 'fusewire_otlp_ignored_total{source="traces",tier="chat"} 1.0' in page


@pytest.mark.slow
async def test_refused_records_are_a_partial_success_in_the_form_of_the_request(
    asked: Asked,
) -> None:
    bad = ("gen_ai.client.inference.operation.details", {"gen_ai.usage.output_tokens": "x"}, None)

    answer = await asked.client.post(
        LOGS, content=as_json(logs(bad)), headers={"content-type": "application/json"}
    )

    told = json_format.Parse(answer.content, ExportLogsServiceResponse())
    assert answer.status_code == 200
    assert told.partial_success.rejected_log_records == 1
    assert "malformed" in told.partial_success.error_message


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "headers", "status", "words"),
    [
        (TRACES, {"content-type": "text/plain"}, 415, "http/protobuf"),
        ("/v1/otlp/nobody/v1/traces", PROTOBUF, 404, "known: chat"),
        (TRACES, PROTOBUF, 400, "no OTLP export"),
    ],
    ids=["content type", "tier", "body"],
)
async def test_what_cannot_be_taken_is_refused_in_words(
    asked: Asked, path: str, headers: dict[str, str], status: int, words: str
) -> None:
    answer = await asked.client.post(path, content=b"\xff\xff", headers=headers)

    assert answer.status_code == status
    assert words in answer.json()["detail"]
