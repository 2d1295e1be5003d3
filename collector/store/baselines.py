"""Baselines: kept whole, listed without their counts, one active for each lane."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import select, update
from sqlalchemy.orm import Session, load_only

from collector.store.models import BaselineRow
from collector.store.session import StoreError
from detectors.baseline import Baseline, Stage, from_bytes, promoted, to_bytes
from detectors.records import Scope


@dataclass(frozen=True, slots=True)
class BaselineInfo:
    """What a list shows of a baseline.

    `promoted_at`, `author` and `reason` are those of its promotion, also after it was retired;
    None and empty for a baseline that was never promoted.
    """

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
        _retire_others(session, baseline)
    if row is None:
        session.add(_row(baseline, now))
    elif baseline.stage not in (Stage.CANDIDATE, row.stage):
        row.stage, row.author, row.reason = baseline.stage, baseline.author, baseline.reason
        row.promoted_at = now if baseline.stage is Stage.ACTIVE else row.promoted_at
    session.flush()


def promote(
    session: Session, identity: str, *, author: str, reason: str, now: datetime
) -> Baseline:
    """Make a baseline the active one of its lane; every other of the lane is retired.

    Raises:
        StoreError: If there is no such baseline, or it is active already: who promoted it and
            why stays.
        ValueError: If author or reason are empty.
    """
    kept = get(session, identity)
    if kept.stage is Stage.ACTIVE:
        msg = (
            f"baseline {identity} is active already, promoted by {kept.author}: {kept.reason}; "
            "nothing was changed"
        )
        raise StoreError(msg)
    baseline = promoted(kept, author=author, reason=reason)
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


def _retire_others(session: Session, active: Baseline) -> None:
    """Retire what else is in the lane; who promoted it once, when and why stays as it is."""
    lane = (
        BaselineRow.tier == active.tier,
        BaselineRow.scope == str(active.scope),
        BaselineRow.variant == active.variant,
        BaselineRow.id != active.id,
        BaselineRow.stage != Stage.RETIRED,
    )
    session.execute(
        update(BaselineRow).where(*lane).values(stage=Stage.RETIRED),
        execution_options={"synchronize_session": "fetch"},
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
    except ValueError as error:
        msg = f"baseline {row.id}: {error}"
        raise StoreError(msg) from error
    signals = {name: replace(one, stage=row.stage) for name, one in baseline.signals.items()}
    author, reason = _promotion(row)
    return replace(baseline, stage=row.stage, signals=signals, author=author, reason=reason)


def _promotion(row: BaselineRow) -> tuple[str, str]:
    """Return author and reason of the promotion; an earlier build noted retirements there."""
    return (row.author, row.reason) if row.promoted_at else ("", "")


def _info(row: BaselineRow) -> BaselineInfo:
    author, reason = _promotion(row)
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
        author=author,
        reason=reason,
    )
