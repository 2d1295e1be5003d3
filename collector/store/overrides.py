"""Requests that a command left while the service was down; the service takes each over once.

A request is handed out once for each epoch, and counts as taken in the very transaction that
records what became of it. So a crash between handing out and recording loses nothing: the next
controller, of a later epoch, is given it again.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Final, cast

from sqlalchemy import or_, select, update
from sqlalchemy.orm import Session

from alerts.breaker.records import Entry, Forced, Key, Override
from collector.store.columns import clean
from collector.store.control import controller
from collector.store.models import OverrideRow

MOST_REQUESTS: Final = 1000
_HANDS_ON = frozenset({"forced_open", "forced_closed", "override_ended"})


@dataclass(frozen=True, slots=True)
class Request:
    """One request: an override to set, or None to release the breaker."""

    id: int
    key: Key
    override: Override | None
    actor: str
    reason: str
    since: datetime


def leave(session: Session, key: Key, override: Override) -> None:
    """Leave a request to force a breaker until the override's end."""
    session.add(
        OverrideRow(
            tier=key.tier,
            target=key.target,
            forced=override.forced,
            actor=override.actor,
            reason=override.reason,
            since=override.since,
            expires_at=override.expires_at,
        )
    )


def leave_release(session: Session, key: Key, *, actor: str, reason: str, now: datetime) -> None:
    """Leave a request to end whatever override a breaker is under."""
    session.add(
        OverrideRow(
            tier=key.tier, target=key.target, forced="", actor=actor, reason=reason, since=now
        )
    )


def waiting(session: Session, *, limit: int = MOST_REQUESTS) -> list[Request]:
    """Return requests that are not taken yet, oldest first: of one key the last one counts."""
    rows = session.scalars(
        select(OverrideRow)
        .where(OverrideRow.taken_at.is_(None))
        .order_by(OverrideRow.id)
        .limit(limit)
    )
    return [_request(row) for row in rows]


def hand_out(session: Session) -> list[Request]:
    """Return requests that no controller of the present epoch has been given, and note that."""
    epoch = controller(session).epoch
    fresh = session.scalars(
        select(OverrideRow)
        .where(
            OverrideRow.taken_at.is_(None),
            or_(OverrideRow.handed_epoch.is_(None), OverrideRow.handed_epoch < epoch),
        )
        .order_by(OverrideRow.id)
        .limit(MOST_REQUESTS)
    ).all()
    for row in fresh:
        row.handed_epoch = epoch
    return [_request(row) for row in fresh]


def take(session: Session, requests: Collection[int], *, now: datetime) -> None:
    """Mark requests as taken."""
    if requests:
        session.execute(
            update(OverrideRow)
            .where(OverrideRow.id.in_(requests))
            .values(taken_at=now)
            .execution_options(synchronize_session=False)
        )


def answered(request: Request, entry: Entry) -> bool:
    """Whether `entry` is what became of `request`, or a later hand on the same breaker."""
    if entry.breaker.key != request.key:
        return False
    if entry.transition is not None and entry.transition.kind in _HANDS_ON:
        return True
    found, wanted = entry.breaker.override, request.override
    if found is None or wanted is None:
        return found is wanted
    return (found.forced, clean(found.actor)) == (wanted.forced, wanted.actor)


def _request(row: OverrideRow) -> Request:
    override = None
    if row.forced and row.expires_at is not None:
        forced = cast("Forced", row.forced)
        override = Override(forced, row.actor, row.reason, row.since, row.expires_at)
    return Request(row.id, Key(row.tier, row.target), override, row.actor, row.reason, row.since)
