"""OTLP exports as the OpenTelemetry SDK makes them, and log records by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias, cast

from google.protobuf import json_format
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Status, StatusCode
from opentelemetry.util.types import AttributeValue

Plain: TypeAlias = "str | int | float | bool | Sequence[Plain] | Mapping[str, Plain]"

PLAIN: Mapping[str, Plain] = {
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "vllm",
    "gen_ai.request.model": "tiny",
    "gen_ai.request.temperature": 0.7,
    "gen_ai.request.max_tokens": 64,
    "gen_ai.response.id": "chatcmpl-1",
    "gen_ai.response.model": "tiny",
    "gen_ai.response.finish_reasons": ["stop"],
    "gen_ai.usage.input_tokens": 12,
    "gen_ai.usage.output_tokens": 3,
}
CHAT = cast("Mapping[str, AttributeValue]", PLAIN)


def spans(*attributes: Mapping[str, AttributeValue], failed: bool = False) -> bytes:
    """Return an export of one span each, encoded by the SDK, begun at 2026-11-29 for 1.5 s."""
    memory = InMemorySpanExporter()
    provider = TracerProvider(resource=Resource.create({"service.name": "shop"}))
    provider.add_span_processor(SimpleSpanProcessor(memory))
    tracer = provider.get_tracer("test")
    start = 1_795_953_600_000_000_000
    for one in attributes:
        span = tracer.start_span("chat tiny", attributes=dict(one), start_time=start)
        if failed:
            span.set_status(Status(StatusCode.ERROR))
        span.end(end_time=start + 1_500_000_000)
    return encode_spans(memory.get_finished_spans()).SerializeToString()


def logs(*records: tuple[str, Mapping[str, Plain], Plain | None]) -> bytes:
    """Return an export of log records: event name, attributes, body; all of one span."""
    export = ExportLogsServiceRequest()
    into = export.resource_logs.add().scope_logs.add().log_records
    for name, attributes, body in records:
        record = LogRecord(
            event_name=name,
            time_unix_nano=1_795_953_600_000_000_000,
            attributes=[KeyValue(key=key, value=any_value(it)) for key, it in attributes.items()],
            trace_id=b"t" * 16,
            span_id=b"s" * 8,
        )
        if body is not None:
            record.body.CopyFrom(any_value(body))
        into.append(record)
    return export.SerializeToString()


def as_json(export: bytes) -> bytes:
    """Return an export of log records in OTLP's JSON."""
    return json_format.MessageToJson(ExportLogsServiceRequest.FromString(export)).encode()


def any_value(value: Plain) -> AnyValue:
    """Return a plain value as OTLP has it."""
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, str):
        return AnyValue(string_value=value)
    if isinstance(value, int):
        return AnyValue(int_value=value)
    if isinstance(value, float):
        return AnyValue(double_value=value)
    made = AnyValue()
    if isinstance(value, Mapping):
        for key, one in value.items():
            made.kvlist_value.values.add(key=key).value.CopyFrom(any_value(one))
        return made
    for one in value:
        made.array_value.values.add().CopyFrom(any_value(one))
    return made
