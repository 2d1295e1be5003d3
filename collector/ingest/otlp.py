"""OpenTelemetry's GenAI spans and events as lines of logged generations.

OTLP over HTTP, protobuf or JSON. What a span or event tells (parameters, usage, finish reasons,
messages where the sender opted in) goes through the same decoding as any other line. The
conventions have no log-probabilities; `gen_ai.response.logprobs` is read where a sender adds it, in
OpenAI's form. Everything that is not a finished generation is passed over and counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import msgspec
from google.protobuf import json_format
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from collector.ingest.identity import is_unique
from collector.ingest.records import BodyError, Reason

Kind: TypeAlias = Literal["traces", "logs"]
Format: TypeAlias = Literal["protobuf", "json"]
Value: TypeAlias = "str | bool | int | float | bytes | list[Value] | dict[str, Value] | None"

_DETAILS: Final = "gen_ai.client.inference.operation.details"
_CHOICE: Final = "gen_ai.choice"
_MESSAGES: Final = frozenset(
    {"gen_ai.system.message", "gen_ai.user.message", "gen_ai.assistant.message",
     "gen_ai.tool.message"}
)  # fmt: skip
_GENERATING: Final = frozenset({"chat", "text_completion", "generate_content", "completion"})
_NANOSECONDS: Final = 1e9
_DEEPEST: Final = 16


@dataclass(frozen=True, slots=True)
class OtlpLines:
    """NDJSON lines made of one export, and how many of its records were something else."""

    body: bytes
    lines: int
    ignored: int


def otlp_lines(payload: bytes, kind: Kind, form: Format, targets: frozenset[str]) -> OtlpLines:
    """Return the generations in one OTLP export as NDJSON.

    Args:
        payload: The plain body.
        kind: Which of the two signals it carries.
        form: How it is encoded.
        targets: Names that `server.address:server.port` may stand for.

    Raises:
        BodyError: If it is not what it says.
    """
    found: list[dict[str, Value]] = []
    ignored = 0
    records = _spans(payload, form) if kind == "traces" else _events(payload, form)
    for line in records:
        if line is None:
            ignored += 1
        else:
            found.append(_placed(line, targets))
    return OtlpLines(b"\n".join(map(msgspec.json.encode, found)), len(found), ignored)


def _spans(payload: bytes, form: Format) -> Iterator[dict[str, Value] | None]:
    export = ExportTraceServiceRequest()
    _parse(export, payload, form)
    for resource in export.resource_spans:
        shared = _attributes(resource.resource.attributes)
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield _of_span(span, shared)


def _events(payload: bytes, form: Format) -> Iterator[dict[str, Value] | None]:
    export = ExportLogsServiceRequest()
    _parse(export, payload, form)
    for resource in export.resource_logs:
        shared = _attributes(resource.resource.attributes)
        older: dict[tuple[bytes, bytes], list[LogRecord]] = {}
        for scope in resource.scope_logs:
            for record in scope.log_records:
                name = record.event_name or _attributes(record.attributes).get("event.name")
                if name == _DETAILS:
                    yield _of_details(record, shared)
                elif name == _CHOICE or name in _MESSAGES:
                    older.setdefault((record.trace_id, record.span_id), []).append(record)
                else:
                    yield None
        for group in older.values():
            yield from _of_older(group, shared)


def _parse(
    export: ExportTraceServiceRequest | ExportLogsServiceRequest, payload: bytes, form: Format
) -> None:
    try:
        if form == "json":
            json_format.Parse(payload, export, ignore_unknown_fields=True)
        else:
            export.ParseFromString(payload)
    except (json_format.ParseError, DecodeError, UnicodeDecodeError, RecursionError) as error:
        msg = f"the body is no OTLP export in {form}; check the exporter's protocol setting"
        raise BodyError(Reason.MALFORMED, msg) from error


def _value(any_value: AnyValue, depth: int = 0) -> Value:
    """Return a value as plain Python; what is nested too deeply is left out."""
    kind = any_value.WhichOneof("value")
    if kind is None or depth > _DEEPEST:
        return None
    if kind == "array_value":
        return [_value(it, depth + 1) for it in any_value.array_value.values]
    if kind == "kvlist_value":
        return {it.key: _value(it.value, depth + 1) for it in any_value.kvlist_value.values}
    value: Value = getattr(any_value, kind)
    return value


def _attributes(pairs: Sequence[KeyValue]) -> dict[str, Value]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _of_span(span: Span, shared: Mapping[str, Value]) -> dict[str, Value] | None:
    known = {**shared, **_attributes(span.attributes)}
    for event in span.events:  # prompts and completions of older conventions
        for key, value in _attributes(event.attributes).items():
            known.setdefault(key, value)
    if span.status.code == Status.STATUS_CODE_ERROR or not _generates(known):
        return None
    seconds = (span.end_time_unix_nano - span.start_time_unix_nano) / _NANOSECONDS
    latency = seconds if span.end_time_unix_nano and seconds >= 0 else None
    return _named(_line(known, span.start_time_unix_nano, latency), span)


def _of_details(record: LogRecord, shared: Mapping[str, Value]) -> dict[str, Value] | None:
    known = {**shared, **_attributes(record.attributes)}
    if not _generates(known):
        return None
    line = _line(known, record.time_unix_nano or record.observed_time_unix_nano, None)
    return _named(line, record)


def _of_older(
    group: Sequence[LogRecord], shared: Mapping[str, Value]
) -> Iterator[dict[str, Value] | None]:
    """Yield the generation that events of one span tell together, if its choices are there."""
    messages: list[Value] = []
    choices: list[Value] = []
    known = dict(shared)
    for record in group:
        attributes, body = _attributes(record.attributes), _value(record.body)
        known.update(attributes)
        name = record.event_name or attributes.get("event.name")
        inner: dict[str, Value] = body if isinstance(body, dict) else {"content": body}
        if name == _CHOICE:
            message = inner.get("message")
            content = message if isinstance(message, dict) else {"content": message}
            choices.append({**inner, "message": _message(content)})
        else:
            messages.append(_message(inner))
    if not choices:
        yield from [None] * len(group)
        return
    line = _line(known, group[0].time_unix_nano or group[0].observed_time_unix_nano, None)
    line["request"] = {**_mapping(line["request"]), "messages": messages}
    line["response"] = {**_mapping(line["response"]), "choices": choices}
    yield _named(line, group[0])


def _named(line: dict[str, Value], record: Span | LogRecord) -> dict[str, Value]:
    """Return the line, with its span's id if the response has none, so that it counts once."""
    response = _mapping(line["response"]).get("id")
    if not record.span_id or is_unique(msgspec.json.encode(response)):
        return line
    return {**line, "id": f"{record.trace_id.hex()}-{record.span_id.hex()}"}


def _generates(known: Mapping[str, Value]) -> bool:
    """Whether attributes are those of a finished generation."""
    if known.get("error.type"):
        return False
    operation = known.get("gen_ai.operation.name")
    if operation is not None:
        return operation in _GENERATING
    return _first(known, "gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens") is not None


def _line(known: Mapping[str, Value], nanoseconds: int, latency: float | None) -> dict[str, Value]:
    return {
        "at": nanoseconds / _NANOSECONDS if nanoseconds else None,
        "latency_seconds": latency,
        "tier": known.get("fusewire.tier"),
        "target": known.get("fusewire.target") or _server(known),
        "segment": known.get("fusewire.segment"),
        "request": _request(known),
        "response": _response(known),
    }


def _placed(line: dict[str, Value], targets: frozenset[str]) -> dict[str, Value]:
    """Return the line without members that say nothing, and without a target nobody knows."""
    if line["target"] not in targets:
        line = {**line, "target": None}
    return {key: value for key, value in line.items() if value is not None}


def _server(known: Mapping[str, Value]) -> str | None:
    host, port = known.get("server.address"), known.get("server.port")
    return f"{host}:{port}" if isinstance(host, str) and isinstance(port, int) else None


def _request(known: Mapping[str, Value]) -> dict[str, Value]:
    return {
        "model": known.get("gen_ai.request.model"),
        "temperature": known.get("gen_ai.request.temperature"),
        "max_tokens": known.get("gen_ai.request.max_tokens"),
        "n": known.get("gen_ai.request.choice.count"),
        "messages": _messages(known, "gen_ai.input.messages", "gen_ai.prompt"),
    }


def _response(known: Mapping[str, Value]) -> dict[str, Value]:
    messages = _messages(known, "gen_ai.output.messages", "gen_ai.completion")
    reasons = known.get("gen_ai.response.finish_reasons")
    finished = reasons if isinstance(reasons, list) else [reasons]
    logprobs = _read(known.get("gen_ai.response.logprobs"))
    listed = logprobs if isinstance(logprobs, list) else [logprobs]  # one a choice
    choices: list[Value] = []
    for index in range(max(len(messages), len(finished), 1)):
        choice: dict[str, Value] = {"index": index}
        if index < len(messages):
            choice["message"] = messages[index]
        reason = finished[index] if index < len(finished) else None
        choice["finish_reason"] = reason or _mapping(choice.get("message")).get("finish_reason")
        choice["logprobs"] = listed[index] if index < len(listed) else None
        choices.append(choice)
    usage = {
        "prompt_tokens": _first(known, "gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens"),
        "completion_tokens": _first(
            known, "gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens"
        ),
    }
    return {
        "id": known.get("gen_ai.response.id"),
        "model": known.get("gen_ai.response.model"),
        "choices": choices,
        "usage": {key: value for key, value in usage.items() if value is not None},
    }


def _messages(known: Mapping[str, Value], name: str, older: str) -> list[Value]:
    """Return the messages under `name` (text of JSON, or structured), else numbered older ones."""
    given = _read(known.get(name, known.get(older)))
    if isinstance(given, list):
        return [_message(_mapping(it) or {"content": it}) for it in given]
    if isinstance(given, str):
        return [{"content": given}]
    found: list[Value] = []
    while f"{older}.{len(found)}.content" in known:
        place = f"{older}.{len(found)}"
        reason = known.get(f"{place}.finish_reason")
        found.append({"content": known[f"{place}.content"], "finish_reason": reason})
    return found


def _message(given: Mapping[str, Value]) -> dict[str, Value]:
    """Return a message in OpenAI's form: text, or parts with text."""
    parts = given.get("parts")
    if not isinstance(parts, list):
        return {"content": given.get("content"), "finish_reason": given.get("finish_reason")}
    texts: list[Value] = [
        {"text": content}
        for part in map(_mapping, parts)
        if isinstance(content := part.get("content", part.get("text")), str)
    ]
    return {"content": texts, "finish_reason": given.get("finish_reason")}


def _read(value: Value) -> Value:
    """Return what is in a text of JSON; other values, and other texts, as they are."""
    if not isinstance(value, str) or not value.lstrip().startswith(("[", "{")):
        return value
    try:
        read: Value = msgspec.json.decode(value)
    except (msgspec.DecodeError, RecursionError):
        return value
    return read


def _first(known: Mapping[str, Value], *names: str) -> Value:
    return next((known[name] for name in names if known.get(name) is not None), None)


def _mapping(value: Value) -> dict[str, Value]:
    return value if isinstance(value, dict) else {}
