"""OpenTelemetry exporters may send here: GenAI spans and events over OTLP/HTTP.

An exporter is given `http://HOST:9731/v1/otlp/TIER` as its endpoint and adds `/v1/traces` or
`/v1/logs` itself.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Final, Literal

from fastapi import APIRouter, HTTPException, Path, Query, Request, Response
from google.protobuf import json_format
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from collector.api.ingest import defaults_of, take_body
from collector.api.parts import MayChange, PartsDep
from collector.ingest.intake import open_and_decode_otlp
from collector.ingest.records import Decoded, Defaults
from collector.parts import Parts
from exporters.catalog import OTLP_IGNORED

router = APIRouter(prefix="/v1/otlp", tags=["ingest"])
Tier = Annotated[str, Path(max_length=128)]
Name = Annotated[str, Query(max_length=128)]
SOURCE: Final = "otlp"
_FORMS: Final[dict[str, Literal["protobuf", "json"]]] = {
    "application/x-protobuf": "protobuf",
    "application/json": "json",
}


@router.post("/{tier}/v1/traces", dependencies=[MayChange])
async def take_traces(
    request: Request, parts: PartsDep, tier: Tier, target: Name = "", segment: Name = ""
) -> Response:
    """Take an OTLP export of spans; those of finished generations count, others are passed over."""
    defaults = defaults_of(parts, tier=tier, target=target, segment=segment)
    decoded = await _taken(request, parts, defaults, "traces")
    answer = ExportTraceServiceResponse()
    answer.partial_success.rejected_spans = sum(decoded.refused.values())
    answer.partial_success.error_message = _problem(decoded)
    return _response(answer, _form(request))


@router.post("/{tier}/v1/logs", dependencies=[MayChange])
async def take_logs(
    request: Request, parts: PartsDep, tier: Tier, target: Name = "", segment: Name = ""
) -> Response:
    """Take an OTLP export of log records; GenAI events count, other records are passed over."""
    defaults = defaults_of(parts, tier=tier, target=target, segment=segment)
    decoded = await _taken(request, parts, defaults, "logs")
    answer = ExportLogsServiceResponse()
    answer.partial_success.rejected_log_records = sum(decoded.refused.values())
    answer.partial_success.error_message = _problem(decoded)
    return _response(answer, _form(request))


async def _taken(
    request: Request, parts: Parts, defaults: Defaults, kind: Literal["traces", "logs"]
) -> Decoded:
    """Take an export in, and count what of it is no generation."""
    work = partial(open_and_decode_otlp, kind=kind, form=_form(request))
    decoded = await take_body(request, parts, defaults, SOURCE, work)
    parts.page.add(OTLP_IGNORED, {"tier": defaults.tier, "source": kind}, decoded.ignored)
    return decoded


def _form(request: Request) -> Literal["protobuf", "json"]:
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    form = _FORMS.get(content_type)
    if form is None:
        raise HTTPException(
            415,
            detail=f"content type {content_type[:64]!r}; expected application/x-protobuf or "
            "application/json: set the exporter's protocol to http/protobuf or http/json",
        )
    return form


def _problem(decoded: Decoded) -> str:
    if not decoded.rejected:
        return ""
    first = decoded.rejected[0]
    return f"{sum(decoded.refused.values())} refused; the first: {first.reason}: {first.message}"


def _response(
    answer: ExportTraceServiceResponse | ExportLogsServiceResponse,
    form: Literal["protobuf", "json"],
) -> Response:
    """Answer in the form of the request, as OTLP asks; a whole success says nothing."""
    if not answer.partial_success.error_message:
        answer.ClearField("partial_success")
    if form == "json":
        return Response(json_format.MessageToJson(answer), media_type="application/json")
    return Response(answer.SerializeToString(), media_type="application/x-protobuf")
