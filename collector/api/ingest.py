"""Intake of logged generations over HTTP."""

from __future__ import annotations

import math
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, HTTPException, Query, Request
from fastapi.responses import JSONResponse

from collector.api.parts import MayChange, PartsDep
from collector.ingest.intake import IntakeBusy, IntakeError, Work, open_and_decode
from collector.ingest.records import BodyError, Decoded, Defaults, Reason, TierNames
from collector.parts import Parts
from exporters.catalog import GENERATIONS_REJECTED, INGEST_QUEUE

router = APIRouter(prefix="/v1/ingest", tags=["ingest"])
Name = Annotated[str, Query(max_length=128)]
SOURCE = "http"
CONTENT_TYPES = frozenset(
    {
        "application/json",
        "application/x-ndjson",
        "application/ndjson",
        "application/jsonl",
        "application/octet-stream",
        "text/plain",
        "",
    }
)
_STATUS = {
    Reason.TOO_LARGE: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    Reason.BOMB: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    Reason.UNKNOWN_ENCODING: HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    Reason.BAD_COMPRESSION: HTTPStatus.BAD_REQUEST,
}


@router.post("/generations", dependencies=[MayChange])
async def take_generations(
    request: Request, parts: PartsDep, tier: Name = "", target: Name = "", segment: Name = ""
) -> JSONResponse:
    """Take logged generations: one object, an array of them, or NDJSON; plain, gzip or zstd.

    Query values hold for lines that do not say it themselves. Answers 200 when any line was
    accepted and 422 when none was; text is turned into numbers and dropped.
    """
    _check_content_type(request)
    defaults = defaults_of(parts, tier=tier, target=target, segment=segment)
    return _answer(await take_body(request, parts, defaults, SOURCE))


async def take_body(
    request: Request, parts: Parts, defaults: Defaults, source: str, work: Work = open_and_decode
) -> Decoded:
    """Take a body in and count it; nothing of it is taken if this raises.

    Raises:
        HTTPException: 404 for an unknown tier, 413 and 400 for a body that cannot be read, 429 with
            `Retry-After` while there is no room, 503 if the worker died over it.
    """
    if defaults.tier and defaults.tier not in parts.tiers:
        known = ", ".join(sorted(parts.tiers))
        raise HTTPException(404, detail=f"no tier {defaults.tier!r}; known: {known}")
    body = await _read(request, parts)
    encoding = request.headers.get("content-encoding", "")
    try:
        decoded = await parts.intake.submit(body, defaults, encoding=encoding, work=work)
    except IntakeBusy as error:
        after = str(math.ceil(error.retry_after_seconds))
        raise HTTPException(429, detail=str(error), headers={"retry-after": after}) from error
    except IntakeError as error:
        raise HTTPException(503, detail=str(error)) from error
    except BodyError as error:
        raise _refused(parts, error.reason, error.message) from error
    finally:
        parts.page.set(INGEST_QUEUE, {"source": SOURCE}, parts.intake.waiting)
    return await parts.counting.take(decoded, source=source, take_batch=parts.take_batch)


def defaults_of(parts: Parts, *, tier: str = "", target: str = "", segment: str = "") -> Defaults:
    """Return what holds for lines that do not say it, and the names that they may use."""
    return Defaults(
        arrival=parts.now(),
        tiers={
            name: TierNames(
                targets=frozenset(facts.targets),
                segments=frozenset(facts.segments),
                vocabulary_tokens=facts.vocabulary_tokens,
            )
            for name, facts in parts.tiers.items()
        },
        tier=tier,
        target=target,
        segment=segment,
    )


def _check_content_type(request: Request) -> None:
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type not in CONTENT_TYPES:
        raise HTTPException(
            415,
            detail=f"content type {content_type[:64]!r}; expected application/json or "
            "application/x-ndjson (with curl: -H 'content-type: application/x-ndjson')",
        )


async def _read(request: Request, parts: Parts) -> bytes:
    """Read the body as it comes, and no more of it than may be."""
    most = parts.max_body_bytes
    pieces: list[bytes] = []
    size = 0
    declared = request.headers.get("content-length", "")
    if declared.isascii() and declared.isdigit() and int(declared) > most:
        raise _refused(parts, Reason.TOO_LARGE, f"a body of {declared} bytes, at most {most}")
    async for piece in request.stream():
        size += len(piece)
        if size > most:
            raise _refused(parts, Reason.TOO_LARGE, f"a body of over {most} bytes, at most {most}")
        pieces.append(piece)
    return b"".join(pieces)


def _refused(parts: Parts, reason: Reason, message: str) -> HTTPException:
    parts.page.add(GENERATIONS_REJECTED, {"source": SOURCE, "reason": str(reason)})
    return HTTPException(_STATUS.get(reason, HTTPStatus.BAD_REQUEST), detail=message)


def _answer(decoded: Decoded) -> JSONResponse:
    listed = [
        {"line": row.line, "reason": f"{row.reason}: {row.message}"} for row in decoded.rejected
    ]
    answer: dict[str, object] = {"accepted": decoded.accepted, "rejected": listed}
    more = sum(decoded.refused.values()) - len(listed)
    if more > 0:
        answer["rejected_more"] = more
    if decoded.partial:
        answer["partial"] = {str(missing): n for missing, n in decoded.partial.items()}
    if not decoded.lines:
        answer["rejected"] = [{"line": 0, "reason": "no_lines: the body holds no line"}]
    return JSONResponse(answer, status_code=200 if decoded.accepted else 422)
