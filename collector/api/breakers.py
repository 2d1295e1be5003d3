"""Routes of the breakers: their state, the state gateways pull, admission, overrides, the audit."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, HTTPException, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from alerts.breaker.admission import Admission
from alerts.breaker.overrides import OverrideError
from alerts.breaker.records import Forced, Key
from alerts.journal import JournalError
from collector.api.parts import KnownTier, MayChange, PartsDep
from collector.api.shapes import BreakerOut, TransitionOut, breaker_out, transition_out
from collector.parts import Parts
from collector.store import audit
from exporters.catalog import ADMISSIONS

router = APIRouter(prefix="/v1", tags=["breakers"])
Limit = Annotated[int, Query(ge=1, le=1000, description="Most rows to return.")]
METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
DENIES = frozenset({401, 403, 429, 503})


class OverrideIn(BaseModel):
    """A person's hand on a breaker; `forced` null takes it off."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    forced: Forced | None
    reason: str = Field(min_length=1, max_length=1000)
    actor: str = Field(min_length=1, max_length=128)
    seconds: float | None = Field(default=None, gt=0, description="How long; needed to force.")


@router.get("/breakers")
async def list_breakers(parts: PartsDep) -> list[BreakerOut]:
    """Return every breaker as gateways should see it; an empty target is the tier's own."""
    breakers = parts.controller.breakers
    return [breaker_out(breakers[key]) for key in sorted(breakers)]


@router.post("/breakers/{tier}/override", dependencies=[MayChange])
async def override_tier(tier: KnownTier, wanted: OverrideIn, parts: PartsDep) -> BreakerOut:
    """Force the breaker of a tier open or closed for a while, or release it."""
    return await _override(parts, Key(tier), wanted)


@router.post("/breakers/{tier}/{target}/override", dependencies=[MayChange])
async def override_target(
    tier: KnownTier, target: str, wanted: OverrideIn, parts: PartsDep
) -> BreakerOut:
    """Force the breaker of a target open or closed for a while, or release it."""
    return await _override(parts, Key(tier, target), wanted)


async def _override(parts: Parts, key: Key, wanted: OverrideIn) -> BreakerOut:
    if key not in parts.controller.breakers:
        known = ", ".join(parts.tiers[key.tier].targets)
        raise HTTPException(404, detail=f"no target {key.target!r} in {key.tier}; known: {known}")
    try:
        if wanted.forced is None:
            done = await parts.controller.release(key, actor=wanted.actor, reason=wanted.reason)
        else:
            done = await parts.controller.override(
                key,
                wanted.forced,
                actor=wanted.actor,
                reason=wanted.reason,
                seconds=wanted.seconds or 0.0,
            )
    except OverrideError as error:
        raise HTTPException(422, detail=str(error)) from error
    except JournalError as error:
        raise HTTPException(503, detail=f"nothing changed: {error}") from error
    return breaker_out(done)


@router.get("/state")
async def state(
    request: Request,
    parts: PartsDep,
    after: Annotated[int, Query(ge=0, description="Answer once the state differs from this.")] = 0,
    wait: Annotated[float, Query(ge=0, le=60, description="Longest wait, seconds.")] = 0,
) -> Response:
    """Return all that a gateway needs; with `after` and `wait` a long poll that answers 304."""
    known = after or _known_rev(request.headers.get("if-none-match", ""))
    if known and wait:
        document = await parts.controller.wait_for(known, wait)
    else:
        document = parts.controller.state_document()
    if document is None or document.rev == known:
        return Response(status_code=304, headers={"etag": f'"{known}"'})
    headers = {"etag": f'"{document.rev}"', "cache-control": "no-store"}
    return Response(document.encode(), media_type="application/json", headers=headers)


def _known_rev(etag: str) -> int:
    text = etag.strip().removeprefix("W/").strip('"')
    return int(text) if text.isascii() and text.isdigit() else 0


@router.api_route("/admit/{tier}", methods=METHODS, include_in_schema=False)
@router.api_route("/admit/{tier}/{rest:path}", methods=METHODS, include_in_schema=False)
async def admit(tier: str, request: Request, parts: PartsDep) -> Response:
    """Say whether one request is let in. Every method and any path below: gateways repeat theirs.

    Options come as query or header, as some gateways can only add headers: `target` or
    `x-fusewire-target`, `key` or `x-fusewire-key`, `deny` or `x-fusewire-deny` (the status of a
    refusal), `style` (`openai` or `empty`). Headers of callers are neither read nor logged.
    """
    query, headers = request.query_params, request.headers

    def option(name: str) -> str:
        return query.get(name) or headers.get(f"x-fusewire-{name}", "")

    admission = parts.controller.admit(tier, target=option("target"), key=option("key"))
    outcome = "allowed" if admission.allowed else "denied"
    if tier in parts.tiers:
        parts.page.add(ADMISSIONS, {"tier": tier, "reason": outcome})
    shown = {"x-fusewire-state": admission.state, "cache-control": "no-store"}
    if admission.allowed:
        return Response(status_code=200, headers=shown)
    return _denied(admission, shown, status=option("deny"), style=option("style"), parts=parts)


def _denied(
    admission: Admission, shown: dict[str, str], *, status: str, style: str, parts: Parts
) -> Response:
    asked = int(status) if status.isascii() and status.isdigit() else 0
    code = asked if asked in DENIES else parts.deny_status
    headers = shown | {"retry-after": str(admission.retry_after_seconds)}
    if style == "empty":
        return Response(status_code=code, headers=headers)
    body = {
        "error": {
            "message": f"overloaded: {admission.reason}; retry after "
            f"{admission.retry_after_seconds} s",
            "type": "overloaded_error",
            "code": "fusewire_breaker_open",
            "retry_after": admission.retry_after_seconds,
        }
    }
    return JSONResponse(body, status_code=code, headers=headers)


@router.get("/transitions")
async def list_transitions(
    parts: PartsDep, tier: str = "", limit: Limit = 100
) -> list[TransitionOut]:
    """Return the newest transitions of breakers, newest first."""
    rows = await parts.store.read(audit.history, tier=tier, limit=limit)
    return [transition_out(row.transition) for row in rows]


class AuditOut(BaseModel):
    """Rows of the audit chain; `holds` is null where its verification was not asked for."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    holds: bool | None
    problem: str
    rows: list[TransitionOut]


@router.get("/audit")
async def show_audit(
    parts: PartsDep,
    tier: str = "",
    limit: Limit = 100,
    *,
    verify: Annotated[bool, Query(description="Check the whole chain: reads every row.")] = False,
) -> AuditOut:
    """Return the newest rows of the audit; with `verify` also whether the whole chain holds."""
    report = await parts.store.read(audit.verify) if verify else None
    rows = await parts.store.read(audit.history, tier=tier, limit=limit)
    return AuditOut(
        holds=report.holds if report else None,
        problem=report.problem if report else "",
        rows=[transition_out(row.transition) for row in rows],
    )
