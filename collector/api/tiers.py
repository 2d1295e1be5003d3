"""Routes about tiers: targets with their signals, verdicts, baselines."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, HTTPException, Query
from pydantic import BaseModel, ConfigDict, Field

from collector.api.parts import MayChange, PartsDep
from collector.api.shapes import (
    BaselineOut,
    BaselineProgressOut,
    TierOut,
    VerdictOut,
    baseline_out,
    target_out,
    verdict_out,
)
from collector.parts import Parts
from collector.store import baselines as stored_baselines
from collector.store import verdicts as stored_verdicts
from detectors.baseline import Stage
from detectors.records import Level

router = APIRouter(prefix="/v1", tags=["tiers"])
Limit = Annotated[int, Query(ge=1, le=1000, description="Most rows to return.")]


class Promotion(BaseModel):
    """Who accepts a baseline, and why."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    author: str = Field(min_length=1, max_length=128)
    reason: str = Field(min_length=1, max_length=1000)


@router.get("/tiers")
async def list_tiers(parts: PartsDep) -> list[TierOut]:
    """Return every tier: its targets with signals and their age, its baselines or progress."""
    return [tier_out(parts, tier) for tier in parts.tiers]


def tier_out(parts: Parts, tier: str) -> TierOut:
    """Return one tier as it is now."""
    facts, now = parts.tiers[tier], parts.now()
    readings = parts.state.readings
    return TierOut(
        tier=tier,
        role=facts.role,
        mode=facts.mode,
        targets=[
            target_out(target=target, url=url, reading=readings.get((tier, target)), now=now)
            for target, url in facts.targets.items()
        ],
        neighbours=[
            target_out(target=name, url="", reading=readings.get((tier, name)), now=now)
            for name in facts.neighbours
        ],
        baselines=_progress(parts, tier),
    )


def _progress(parts: Parts, tier: str) -> list[BaselineProgressOut]:
    lanes = {lane for lane in parts.state.lanes if lane[0] == tier}
    lanes |= {lane for lane in parts.state.baselines if lane[0] == tier}
    needed = parts.tiers[tier].baseline_requests
    found = []
    for lane in sorted(lanes):
        baseline = parts.state.baselines.get(lane)
        requests = baseline.requests if baseline else parts.state.progress(lane)
        found.append(
            BaselineProgressOut(
                scope=str(lane[1]),
                variant=lane[2],
                baseline=baseline.id if baseline else None,
                stage=str(baseline.stage) if baseline else "collecting",
                requests=requests,
                needed=needed,
                progress_ratio=1.0 if baseline else min(requests / needed, 1.0),
                made_at=baseline.made_at if baseline else None,
            )
        )
    return found


@router.get("/verdicts")
async def list_verdicts(
    parts: PartsDep,
    tier: str = "",
    at_least: Level = Level.UNKNOWN,
    limit: Limit = 100,
    *,
    history: Annotated[
        bool, Query(description="Stored changes instead of what holds now.")
    ] = False,
) -> list[VerdictOut]:
    """Return what holds now, worst first; with `history` the stored changes, newest first."""
    if not history:
        found = parts.newest.listed(tier=tier, at_least=at_least, limit=limit)
        return [verdict_out(verdict) for verdict in found]
    chosen = stored_verdicts.Chosen(tier=tier)
    rows = await parts.store.read(stored_verdicts.history, chosen, limit=limit)
    return [verdict_out(kept.verdict) for kept in rows]


@router.get("/baselines")
async def list_baselines(parts: PartsDep, tier: str = "") -> list[BaselineOut]:
    """Return every baseline that is kept, newest first, without its counts."""
    rows = await parts.store.read(stored_baselines.listed, tier=tier)
    return [baseline_out(baseline) for baseline in rows]


@router.post("/baselines/{baseline}/promote", dependencies=[MayChange])
async def promote_baseline(baseline: str, promotion: Promotion, parts: PartsDep) -> BaselineOut:
    """Let a baseline page and trip; every other one of its lane retires."""
    rows = await parts.store.read(stored_baselines.listed)
    found = next((row for row in rows if row.id == baseline), None)
    if found is None:
        raise HTTPException(404, detail=f"no baseline {baseline!r}; see GET /v1/baselines")
    if found.stage is Stage.ACTIVE:
        raise HTTPException(409, detail=f"baseline {baseline!r} is active already")
    await parts.store.control(
        stored_baselines.promote,
        baseline,
        author=promotion.author,
        reason=promotion.reason,
        now=parts.now(),
    )
    await parts.keeper.adopt()
    rows = await parts.store.read(stored_baselines.listed)
    return next(baseline_out(row) for row in rows if row.id == baseline)
