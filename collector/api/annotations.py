"""Route about annotations: what was noticed about targets, for marks on graphs."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import AwareDatetime, BaseModel, ConfigDict

from collector.api.parts import PartsDep
from collector.store import annotations as stored
from collector.store.annotations import Annotation

router = APIRouter(prefix="/v1", tags=["annotations"])


class AnnotationOut(BaseModel):
    """One change of one target; `first` marks what was known for the first time.

    `times` is how many changes within a short while it stands for; `finding` says what a person
    should know of it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: int
    at: datetime
    tier: str
    target: str
    what: str
    before: str
    after: str
    first: bool
    times: int
    finding: str


@router.get("/annotations")
async def list_annotations(
    parts: PartsDep,
    tier: str = "",
    target: str = "",
    since: Annotated[
        AwareDatetime | None, Query(description="Only from this moment on, with its time zone.")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=1000, description="Most rows to return.")] = 100,
) -> list[AnnotationOut]:
    """Return what was noticed about targets, newest first."""
    chosen = stored.Chosen(tier=tier, target=target, since=since)
    rows = await parts.store.read(stored.history, chosen, limit=limit)
    return [_out(row) for row in rows]


def _out(row: Annotation) -> AnnotationOut:
    return AnnotationOut(
        id=row.id,
        at=row.at,
        tier=row.tier,
        target=row.target,
        what=row.what,
        before=row.before,
        after=row.after,
        first=row.first,
        times=row.times,
        finding=row.finding,
    )
