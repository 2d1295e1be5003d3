"""The outbox: newest state wins, at most one in flight for each (endpoint, breaker)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import ColumnElement, and_, case, exists, func, or_, select, tuple_, update
from sqlalchemy.orm import Session, aliased

from alerts.breaker.records import Delivery, DeliveryStatus, Key
from collector.store.models import DeliveryRow

_OPEN = (DeliveryStatus.PENDING, DeliveryStatus.CLAIMED)
_ANY_OPEN = select(DeliveryRow.id).where(DeliveryRow.status.in_(_OPEN)).limit(1)
# No retry and no claim lies so far ahead: what does was written before the clock was set back.
FARTHEST: Final = timedelta(seconds=60)


def add(session: Session, delivery: Delivery) -> None:
    """Put a delivery into the outbox; open ones of its (endpoint, key) are superseded.

    One that is there already stays as it is: its writer was told that it failed, and it had not.
    """
    if session.get(DeliveryRow, delivery.id) is not None:
        return
    older = tuple_(DeliveryRow.epoch, DeliveryRow.seq) <= tuple_(delivery.epoch, delivery.seq)
    session.execute(
        update(DeliveryRow)
        .where(
            DeliveryRow.endpoint == delivery.endpoint,
            DeliveryRow.tier == delivery.key.tier,
            DeliveryRow.target == delivery.key.target,
            DeliveryRow.status.in_(_OPEN),
            older,
        )
        .values(status=DeliveryStatus.SUPERSEDED, settled_at=delivery.created_at)
        .execution_options(synchronize_session=False)
    )
    session.add(_row(delivery))
    session.flush()


def claim(
    session: Session,
    *,
    now: datetime,
    limit: int,
    hold_seconds: float,
    per_endpoint: int | None = None,
    busy: Collection[tuple[str, Key]] = (),
) -> list[Delivery]:
    """Claim due deliveries, oldest first, at most one for each (endpoint, key).

    A key of which something is in flight waits, and so does what is in `busy`. On PostgreSQL rows
    that another claimer has locked are skipped; on SQLite the write lock keeps claimers apart.
    """
    if session.scalar(_ANY_OPEN) is None:  # mostly: the query below costs fifty times as much
        return []
    order = (DeliveryRow.due_at, DeliveryRow.epoch, DeliveryRow.seq, DeliveryRow.id)
    farthest = now + max(FARTHEST, timedelta(seconds=hold_seconds))
    due = _due(now, farthest)
    place = func.row_number().over(partition_by=DeliveryRow.endpoint, order_by=order)
    eligible = (
        select(DeliveryRow.id, DeliveryRow.endpoint, place.label("place"))
        .where(due, ~_in_flight(now, farthest), ~_older_due(now, farthest), ~_among(busy))
        .subquery()
    )
    chosen = (
        select(DeliveryRow)
        .join(eligible, eligible.c.id == DeliveryRow.id)
        .where(due)
        .order_by(*order)
        .limit(limit)
        .with_for_update(skip_locked=True, of=DeliveryRow)
        .execution_options(populate_existing=True)
    )
    if per_endpoint is not None:
        taken = Counter(endpoint for endpoint, _ in busy)
        room = {endpoint: per_endpoint - count for endpoint, count in taken.items()}
        most = case(room, value=eligible.c.endpoint, else_=per_endpoint) if room else per_endpoint
        chosen = chosen.where(eligible.c.place <= most)
    candidates = session.scalars(chosen).all()
    for row in candidates:
        row.status = DeliveryStatus.CLAIMED
        row.claimed_until = now + timedelta(seconds=hold_seconds)
        row.attempts += 1
    session.flush()
    return [_delivery(row) for row in candidates]


def _due(
    now: datetime, farthest: datetime, row: type[DeliveryRow] = DeliveryRow
) -> ColumnElement[bool]:
    waiting = row.status == DeliveryStatus.PENDING
    held = and_(row.claimed_until > now, row.claimed_until <= farthest)
    lapsed = and_(row.status == DeliveryStatus.CLAIMED, ~held)
    return and_(or_(waiting, lapsed), or_(row.due_at <= now, row.due_at > farthest))


def _in_flight(now: datetime, farthest: datetime) -> ColumnElement[bool]:
    other = aliased(DeliveryRow)
    held = and_(other.claimed_until > now, other.claimed_until <= farthest)
    return exists().where(_same_key(other), other.status == DeliveryStatus.CLAIMED, held)


def _older_due(now: datetime, farthest: datetime) -> ColumnElement[bool]:
    """Whether another due row of the same key goes first: one row a key can be claimed."""
    other = aliased(DeliveryRow)
    theirs = tuple_(other.due_at, other.epoch, other.seq, other.id)
    ours = tuple_(DeliveryRow.due_at, DeliveryRow.epoch, DeliveryRow.seq, DeliveryRow.id)
    return exists().where(_same_key(other), _due(now, farthest, other), theirs < ours)


def _among(busy: Collection[tuple[str, Key]]) -> ColumnElement[bool]:
    places = [(endpoint, key.tier, key.target) for endpoint, key in busy]
    return tuple_(DeliveryRow.endpoint, DeliveryRow.tier, DeliveryRow.target).in_(places)


def _same_key(other: type[DeliveryRow]) -> ColumnElement[bool]:
    return and_(
        other.endpoint == DeliveryRow.endpoint,
        other.tier == DeliveryRow.tier,
        other.target == DeliveryRow.target,
    )


def settle(
    session: Session,
    delivery: str,
    *,
    status: DeliveryStatus,
    at: datetime,
    problem: str = "",
    due_at: datetime | None = None,
) -> None:
    """Record the outcome of an attempt; what was superseded meanwhile stays so."""
    row = session.get(DeliveryRow, delivery, with_for_update=True, populate_existing=True)
    if row is None or row.status is DeliveryStatus.SUPERSEDED:
        return
    row.status = status
    row.problem = problem
    row.due_at = due_at or row.due_at
    row.claimed_until = None
    row.settled_at = None if status in _OPEN else at


def with_status(
    session: Session, *statuses: DeliveryStatus, endpoint: str = "", limit: int = 100
) -> list[Delivery]:
    """Return deliveries of these statuses (of all if none is named), newest first."""
    wanted = select(DeliveryRow).order_by(DeliveryRow.created_at.desc(), DeliveryRow.id.desc())
    if statuses:
        wanted = wanted.where(DeliveryRow.status.in_(statuses))
    if endpoint:
        wanted = wanted.where(DeliveryRow.endpoint == endpoint)
    return [_delivery(row) for row in session.scalars(wanted.limit(limit))]


def oldest_pending(session: Session) -> Mapping[str, datetime]:
    """Return for each endpoint when its oldest open delivery was made; idle ones are absent."""
    return _oldest(session, DeliveryRow.status.in_(_OPEN))


def oldest_unconfirmed(session: Session) -> Mapping[str, datetime]:
    """Return for each endpoint the oldest state in force that it has not confirmed."""
    other = aliased(DeliveryRow)
    theirs = tuple_(other.epoch, other.seq)
    newer = exists().where(_same_key(other), theirs > tuple_(DeliveryRow.epoch, DeliveryRow.seq))
    unconfirmed = DeliveryRow.status.in_((*_OPEN, DeliveryStatus.DELIVERED))
    return _oldest(session, and_(unconfirmed, ~newer))


def _oldest(session: Session, which: ColumnElement[bool]) -> Mapping[str, datetime]:
    rows = session.execute(
        select(DeliveryRow.endpoint, func.min(DeliveryRow.created_at))
        .where(which)
        .group_by(DeliveryRow.endpoint)
    )
    return {row[0]: row[1] for row in rows}


def _row(delivery: Delivery) -> DeliveryRow:
    return DeliveryRow(
        id=delivery.id,
        endpoint=delivery.endpoint,
        tier=delivery.key.tier,
        target=delivery.key.target,
        epoch=delivery.epoch,
        seq=delivery.seq,
        body=delivery.body,
        created_at=delivery.created_at,
        due_at=delivery.due_at,
        expires_at=delivery.expires_at,
        status=delivery.status,
        attempts=delivery.attempts,
        claimed_until=delivery.claimed_until,
        problem=delivery.problem,
    )


def _delivery(row: DeliveryRow) -> Delivery:
    return Delivery(
        id=row.id,
        endpoint=row.endpoint,
        key=Key(row.tier, row.target),
        epoch=row.epoch,
        seq=row.seq,
        body=row.body,
        created_at=row.created_at,
        due_at=row.due_at,
        expires_at=row.expires_at,
        status=row.status,
        attempts=row.attempts,
        claimed_until=row.claimed_until,
        problem=row.problem,
    )
