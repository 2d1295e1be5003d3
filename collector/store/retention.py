"""Remove what is old, a bounded chunk at a time, so that control state never waits long.

Baselines and breakers are kept. The audit is cut at an exported checkpoint, never beyond.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, TypeVar

from sqlalchemy import ColumnElement, Delete, and_, delete, func, or_, select, tuple_
from sqlalchemy.orm import Session

from alerts.breaker.records import DeliveryStatus
from collector.store import ticks
from collector.store.models import (
    AnnotationRow,
    CheckpointRow,
    DeliveryRow,
    OverrideRow,
    TickRow,
    TransitionRow,
    VerdictRow,
)
from collector.store.store import Store

W = TypeVar("W")
CHUNK: Final = 500
_DAY: Final = 86_400.0
_OPEN: Final = (DeliveryStatus.PENDING, DeliveryStatus.CLAIMED)


@dataclass(frozen=True, slots=True)
class Ages:
    """How long rows are kept, in seconds; names as in the configuration."""

    ticks: float = _DAY  # as counted; older ones are merged to minutes
    minutes: float = 35 * _DAY
    verdicts: float = 35 * _DAY
    transitions: float = 400 * _DAY
    deliveries: float = 7 * _DAY  # settled ones
    dead_deliveries: float = 30 * _DAY
    overrides: float = 30 * _DAY
    annotations: float = 400 * _DAY


@dataclass(frozen=True, slots=True)
class Swept:
    """Rows that one sweep merged or removed."""

    merged_ticks: int = 0
    ticks: int = 0
    verdicts: int = 0
    transitions: int = 0
    deliveries: int = 0
    overrides: int = 0
    annotations: int = 0


async def sweep(store: Store, ages: Ages, *, now: datetime) -> Swept:
    """Merge and remove what is older than its age; each chunk is a transaction of its own.

    Raises:
        StoreError: If a chunk failed; what was done before it stays done.
    """

    def before(seconds: float) -> datetime:
        return now - timedelta(seconds=seconds)

    settled = and_(
        DeliveryRow.status.not_in((*_OPEN, DeliveryStatus.DEAD)),
        DeliveryRow.created_at < before(ages.deliveries),
    )
    dead = and_(
        DeliveryRow.status == DeliveryStatus.DEAD,
        DeliveryRow.created_at < before(ages.dead_deliveries),
    )
    return Swept(
        merged_ticks=await _until_done(store, _coarsen, before(ages.ticks)),
        ticks=await _until_done(store, _cut_ticks, TickRow.start < before(ages.minutes)),
        verdicts=await _until_done(store, _cut_verdicts, VerdictRow.at < before(ages.verdicts)),
        transitions=await _until_done(store, _cut_audit, before(ages.transitions)),
        deliveries=await _until_done(store, _cut_deliveries, or_(settled, dead)),
        overrides=await _until_done(
            store, _cut_overrides, OverrideRow.since < before(ages.overrides)
        ),
        annotations=await _until_done(
            store, _cut_annotations, AnnotationRow.at < before(ages.annotations)
        ),
    )


async def _until_done(store: Store, work: Callable[[Session, W], int], what: W) -> int:
    total = 0
    while done := await store.write(work, what):
        total += done
    return total


def _coarsen(session: Session, before: datetime) -> int:
    return ticks.coarsen(session, before=before)


def _cut_ticks(session: Session, old: ColumnElement[bool]) -> int:
    key = (TickRow.tier, TickRow.scope, TickRow.variant, TickRow.number)
    rows = select(*key).where(old).limit(CHUNK)
    return _cut(session, delete(TickRow).where(tuple_(*key).in_(rows)))


def _cut_verdicts(session: Session, old: ColumnElement[bool]) -> int:
    rows = select(VerdictRow.id).where(old).limit(CHUNK)
    return _cut(session, delete(VerdictRow).where(VerdictRow.id.in_(rows)))


def _cut_deliveries(session: Session, old: ColumnElement[bool]) -> int:
    rows = select(DeliveryRow.id).where(old).limit(CHUNK)
    return _cut(session, delete(DeliveryRow).where(DeliveryRow.id.in_(rows)))


def _cut_overrides(session: Session, old: ColumnElement[bool]) -> int:
    rows = select(OverrideRow.id).where(old).limit(CHUNK)
    return _cut(session, delete(OverrideRow).where(OverrideRow.id.in_(rows)))


def _cut_annotations(session: Session, old: ColumnElement[bool]) -> int:
    rows = select(AnnotationRow.id).where(old).limit(CHUNK)
    return _cut(session, delete(AnnotationRow).where(AnnotationRow.id.in_(rows)))


def _cut_audit(session: Session, before: datetime) -> int:
    """Cut from the start to the next exported checkpoint, if all rows up to it are old enough."""
    first = session.scalar(select(func.min(TransitionRow.number)))
    young = session.scalar(select(func.min(TransitionRow.number)).where(TransitionRow.at >= before))
    if first is None:
        return 0
    next_one = select(func.min(CheckpointRow.number)).where(CheckpointRow.number >= first)
    if young is not None:
        next_one = next_one.where(CheckpointRow.number < young)
    edge = session.scalar(next_one)
    if edge is None:
        return 0
    _cut(session, delete(CheckpointRow).where(CheckpointRow.number < edge))
    return _cut(session, delete(TransitionRow).where(TransitionRow.number <= edge))


def _cut(session: Session, statement: Delete) -> int:
    result = session.execute(statement.execution_options(synchronize_session=False))
    return int(result.rowcount)  # type: ignore[attr-defined]  # the result of a delete has one
