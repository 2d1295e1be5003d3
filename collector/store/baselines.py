"""Baselines: kept whole, listed without their counts, one active for each lane."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select, update
from sqlalchemy.orm import Session, load_only

from collector.store.models import BaselineRow
from collector.store.session import StoreError
from detectors.baseline import Baseline, Stage, from_bytes, promoted, to_bytes
from detectors.records import Scope


@dataclass(frozen=True, slots=True)
class BaselineInfo:
    """What a list shows of a baseline."""

    id: str
    tier: str
    scope: Scope
    variant: str
    stage: Stage
    made_at: datetime
    promoted_at: datetime | None
    requests: int
    provenance: str
    author: str
    reason: str


def add(session: Session, baseline: Baseline, *, now: datetime) -> None:
    """Keep a baseline; an active one retires the others of its lane.

    The id is the hash of the content, so a baseline that is kept already stays; only a stage
    beyond `candidate` is taken over.
    """
    row = session.get(BaselineRow, baseline.id)
    if baseline.stage is Stage.ACTIVE:
        _retire_others(session, baseline, author=baseline.author)
    if row is None:
        session.add(_row(baseline, now))
    elif baseline.stage is not Stage.CANDIDATE:
        row.stage, row.author, row.reason = baseline.stage, baseline.author, baseline.reason
        row.promoted_at = now if baseline.stage is Stage.ACTIVE else row.promoted_at
    session.flush()


def promote(
    session: Session, identity: str, *, author: str, reason: str, now: datetime
) -> Baseline:
    """Make a baseline the active one of its lane; every other of the lane is retired.

    Raises:
        StoreError: If there is no such baseline.
        ValueError: If author or reason are empty.
    """
    baseline = promoted(get(session, identity), author=author, reason=reason)
    add(session, baseline, now=now)
    return baseline


def get(session: Session, identity: str) -> Baseline:
    """Return a baseline as kept.

    Raises:
        StoreError: If there is no such baseline, or its bytes are damaged.
    """
    row = session.get(BaselineRow, identity)
    if row is None:
        msg = f"baseline {identity!r} is not in the store; 'fusewire baseline list' shows what is"
        raise StoreError(msg)
    return _baseline(row)


def in_use(session: Session, *, tier: str = "") -> list[Baseline]:
    """Return candidates and active baselines, whole, oldest first."""
    wanted = (
        select(BaselineRow)
        .where(BaselineRow.stage != Stage.RETIRED)
        .order_by(BaselineRow.made_at, BaselineRow.id)
    )
    if tier:
        wanted = wanted.where(BaselineRow.tier == tier)
    return [_baseline(row) for row in session.scalars(wanted)]


def listed(session: Session, *, tier: str = "", limit: int = 1000) -> list[BaselineInfo]:
    """Return what is known of baselines of any stage, newest first, without their counts."""
    columns = [getattr(BaselineRow, name) for name in BaselineInfo.__slots__]
    wanted = select(BaselineRow).options(load_only(*columns))
    if tier:
        wanted = wanted.where(BaselineRow.tier == tier)
    wanted = wanted.order_by(BaselineRow.made_at.desc(), BaselineRow.id).limit(limit)
    return [_info(row) for row in session.scalars(wanted)]


def _retire_others(session: Session, active: Baseline, *, author: str) -> None:
    lane = (
        BaselineRow.tier == active.tier,
        BaselineRow.scope == str(active.scope),
        BaselineRow.variant == active.variant,
        BaselineRow.id != active.id,
        BaselineRow.stage != Stage.RETIRED,
    )
    silent = {"author": author, "reason": f"replaced by {active.id}"}
    fetch = {"synchronize_session": "fetch"}
    session.execute(
        update(BaselineRow).where(*lane, BaselineRow.author == "").values(silent),
        execution_options=fetch,
    )
    session.execute(
        update(BaselineRow).where(*lane).values(stage=Stage.RETIRED), execution_options=fetch
    )


def _row(baseline: Baseline, now: datetime) -> BaselineRow:
    return BaselineRow(
        id=baseline.id,
        tier=baseline.tier,
        scope=str(baseline.scope),
        variant=baseline.variant,
        stage=baseline.stage,
        made_at=baseline.made_at,
        promoted_at=now if baseline.stage is Stage.ACTIVE else None,
        requests=baseline.requests,
        provenance=baseline.provenance,
        author=baseline.author,
        reason=baseline.reason,
        body=to_bytes(baseline),
    )


def _baseline(row: BaselineRow) -> Baseline:
    try:
        baseline = from_bytes(row.body)
        if row.stage is baseline.stage:
            return baseline
        return promoted(baseline, author=row.author, reason=row.reason, stage=row.stage)
    except ValueError as error:
        msg = f"baseline {row.id}: {error}"
        raise StoreError(msg) from error


def _info(row: BaselineRow) -> BaselineInfo:
    return BaselineInfo(
        id=row.id,
        tier=row.tier,
        scope=Scope.parse(row.scope),
        variant=row.variant,
        stage=row.stage,
        made_at=row.made_at,
        promoted_at=row.promoted_at,
        requests=row.requests,
        provenance=row.provenance,
        author=row.author,
        reason=row.reason,
    )
