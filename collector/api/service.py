"""Routes about the service itself: its metrics, whether it lives, whether it is ready, reload."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, PlainTextResponse, StreamingResponse

from collector.api.parts import MayChange, PartsDep

router = APIRouter(tags=["service"])


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(request: Request, parts: PartsDep) -> StreamingResponse:
    """Return every metric; the page is made piece by piece so that nothing else waits."""
    accept = request.headers.get("accept", "")

    async def pieces() -> AsyncIterator[bytes]:
        for piece in parts.page.render_families(accept):
            yield piece
            await asyncio.sleep(0)

    return StreamingResponse(pieces(), media_type=parts.page.content_type(accept))


@router.get("/-/healthy", response_class=PlainTextResponse)
async def healthy() -> str:
    """Answer that the process lives."""
    return "Fusewire is alive.\n"


@router.get("/-/ready", response_class=PlainTextResponse)
async def ready(parts: PartsDep) -> PlainTextResponse:
    """Answer 200 once every part has started, else 503 with what is missing."""
    if parts.missing:
        return PlainTextResponse(f"not ready: {'; '.join(parts.missing)}\n", status_code=503)
    return PlainTextResponse("Fusewire is ready.\n")


@router.post("/-/reload", dependencies=[MayChange])
async def reload(parts: PartsDep) -> JSONResponse:
    """Read the configuration again; swap it whole, or keep the old one and say every problem."""
    outcome = await parts.reload()
    if outcome.ok:
        return JSONResponse({"reloaded": True})
    return JSONResponse({"reloaded": False, "problems": list(outcome.problems)}, status_code=422)
