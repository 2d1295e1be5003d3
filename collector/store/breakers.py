"""Rows of breakers: the present state, fenced by (epoch, seq)."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from alerts.breaker.records import Breaker, Cause, Key, Override
from collector.store.columns import from_json, to_json
from collector.store.models import BreakerRow
from collector.store.session import StoreError


def put(session: Session, breaker: Breaker) -> None:
    """Write the present state of a breaker.

    Raises:
        StoreError: If a later (epoch, seq) is kept already: a stale writer.
    """
    row = session.get(BreakerRow, (breaker.key.tier, breaker.key.target))
    if row is not None and (row.epoch, row.seq) > (breaker.epoch, breaker.seq):
        msg = (
            f"breaker {breaker.key}: the store has (epoch, seq) {(row.epoch, row.seq)}, "
            f"{(breaker.epoch, breaker.seq)} came, which is older; load before writing"
        )
        raise StoreError(msg)
    session.merge(_row(breaker))


def known(session: Session, *, tier: str = "") -> list[Breaker]:
    """Return every breaker that was ever written, of one tier or of all, in order of key."""
    wanted = select(BreakerRow).order_by(BreakerRow.tier, BreakerRow.target)
    if tier:
        wanted = wanted.where(BreakerRow.tier == tier)
    return [_breaker(row) for row in session.scalars(wanted)]


def _row(breaker: Breaker) -> BreakerRow:
    return BreakerRow(
        tier=breaker.key.tier,
        target=breaker.key.target,
        state=breaker.state,
        admit_ratio=breaker.admit_ratio,
        ramp_step=breaker.ramp_step,
        trip_level=breaker.trip_level,
        good_evaluations=breaker.good_evaluations,
        changed_at=breaker.changed_at,
        open_until=breaker.open_until,
        half_open_deadline=breaker.half_open_deadline,
        lease_expires_at=breaker.lease_expires_at,
        epoch=breaker.epoch,
        seq=breaker.seq,
        cause=None if breaker.cause is None else to_json(breaker.cause),
        override=None if breaker.override is None else to_json(breaker.override),
        level_since=breaker.level_since,
        recent_opens=to_json(breaker.recent_opens),
    )


def _breaker(row: BreakerRow) -> Breaker:
    return Breaker(
        key=Key(row.tier, row.target),
        state=row.state,
        admit_ratio=row.admit_ratio,
        ramp_step=row.ramp_step,
        trip_level=row.trip_level,
        good_evaluations=row.good_evaluations,
        changed_at=row.changed_at,
        open_until=row.open_until,
        half_open_deadline=row.half_open_deadline,
        lease_expires_at=row.lease_expires_at,
        epoch=row.epoch,
        seq=row.seq,
        cause=None if row.cause is None else from_json(row.cause, Cause),
        override=None if row.override is None else from_json(row.override, Override),
        level_since=row.level_since,
        recent_opens=from_json(row.recent_opens, tuple[datetime, ...]),
    )
