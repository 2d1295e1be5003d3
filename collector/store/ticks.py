"""Counts over time: append closed ticks, read them in order, merge old ones to minutes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Final, TypeAlias

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from collector.store.models import TickRow
from collector.store.packing import pack, unpack
from detectors.records import IntArray, Scope, Tick

Lane: TypeAlias = tuple[str, Scope, str]  # (tier, scope, variant), as in collector/state.py
MINUTE: Final = 60
MOST_TICKS: Final = 4000  # of one load: 25 signals x 250 bins x 8 bytes each make 200 MB


def append(session: Session, ticks: Sequence[Tick]) -> None:
    """Keep closed ticks.

    A tick that is kept already (same start: written again after an unclear outcome) is left as it
    is; another part of the same number (a restart within one tick) is added to it.
    """
    kept = _kept(session, ticks)
    for tick in ticks:
        place = (tick.tier, str(tick.scope), tick.variant, tick.number)
        present = kept.get(place)
        if present is None:
            kept[place] = _row(tick)
            session.add(kept[place])
        elif present.start != tick.start:
            _take(present, _tick(present).plus(tick))
    session.flush()


def _kept(session: Session, ticks: Sequence[Tick]) -> dict[tuple[str, str, str, int], TickRow]:
    """Return the rows that ticks of these numbers have already."""
    if not ticks:
        return {}
    numbers = sorted({tick.number for tick in ticks})
    rows = session.scalars(select(TickRow).where(TickRow.number.in_(numbers)))
    return {(row.tier, row.scope, row.variant, row.number): row for row in rows}


def _take(row: TickRow, whole: Tick) -> None:
    """Let a row hold the counts of `whole`."""
    row.start = whole.start
    row.duration_seconds = whole.duration_seconds
    row.age_seconds = whole.age_seconds
    row.requests = whole.requests
    row.counts = pack(whole.counts)


def load(
    session: Session,
    lane: Lane,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    most: int = MOST_TICKS,
) -> list[Tick]:
    """Return the ticks of a lane that started in [since, until), in order of time.

    Args:
        session: A reading session.
        lane: Tier, scope, variant.
        since: Aware UTC; None reads from the first one kept.
        until: Aware UTC; None reads to the last one.
        most: Most ticks in memory; where there are more rows, neighbours are merged evenly.
    """
    tier, scope, variant = lane
    chosen = [TickRow.tier == tier, TickRow.scope == str(scope), TickRow.variant == variant]
    if since is not None:
        chosen.append(TickRow.start >= since)
    if until is not None:
        chosen.append(TickRow.start < until)
    rows = session.scalar(select(func.count()).select_from(TickRow).where(*chosen)) or 0
    together = max(1, -(-rows // most))
    wanted = select(TickRow).where(*chosen).order_by(TickRow.start, TickRow.number)
    stream = enumerate(session.scalars(wanted.execution_options(yield_per=256)))
    return [
        merged([_tick(row) for _, row in group])
        for _, group in groupby(stream, key=lambda pair: pair[0] // together)
    ]


def count_requests(session: Session) -> Mapping[Lane, int]:
    """Return how many requests are kept of each lane: the progress towards a first baseline."""
    rows = session.execute(
        select(TickRow.tier, TickRow.scope, TickRow.variant, func.sum(TickRow.requests)).group_by(
            TickRow.tier, TickRow.scope, TickRow.variant
        )
    )
    return {
        (tier, Scope.parse(scope), variant): int(requests)
        for tier, scope, variant, requests in rows
    }


def newest_end(session: Session) -> datetime | None:
    """Return when the newest kept tick ended; what lies between then and now is a gap."""
    wanted = select(TickRow).order_by(TickRow.start.desc()).limit(1)
    row = session.scalars(wanted).one_or_none()
    return None if row is None else row.start + timedelta(seconds=row.duration_seconds)


def coarsen(session: Session, *, before: datetime, limit: int = 100) -> int:
    """Merge ticks that started before a moment to one row a minute and lane.

    Args:
        session: A writing session.
        before: Aware UTC; cut to a whole minute, so that no minute is merged in parts.
        limit: Rows after which to stop (a lane's minute is always finished); call again until it
            returns 0.

    Returns:
        Number of rows looked at.
    """
    edge = before.astimezone(UTC).replace(second=0, microsecond=0)
    looked_at = 0
    while looked_at < limit:
        rows = _oldest_minute(session, edge)
        if not rows:
            break
        _merge(session, rows)
        looked_at += len(rows)
    return looked_at


def _oldest_minute(session: Session, edge: datetime) -> Sequence[TickRow]:
    """Return the rows of one lane in the oldest minute that is not merged yet."""
    fine = (TickRow.coarse.is_(False), TickRow.start < edge)
    oldest = session.scalars(select(TickRow).where(*fine).order_by(TickRow.start).limit(1)).first()
    if oldest is None:
        return ()
    minute = oldest.start.replace(second=0, microsecond=0)
    return session.scalars(
        select(TickRow)
        .where(
            *fine,
            TickRow.tier == oldest.tier,
            TickRow.scope == oldest.scope,
            TickRow.variant == oldest.variant,
            TickRow.start < minute + timedelta(seconds=MINUTE),
        )
        .order_by(TickRow.start, TickRow.number)
    ).all()


def _merge(session: Session, rows: Sequence[TickRow]) -> None:
    """Turn the first row into all of them."""
    _take(rows[0], merged([_tick(row) for row in rows]))
    rows[0].coarse = True
    for row in rows[1:]:
        session.delete(row)
    session.flush()


def merged(ticks: Sequence[Tick]) -> Tick:
    """Return the tick that counted what these neighbours of one lane counted, in order of time.

    Its number and start are the first one's; it lasts until the last one's end.
    """
    first, last = ticks[0], ticks[-1]
    if len(ticks) == 1:
        return first
    counts: dict[str, IntArray] = {}
    for tick in ticks:
        for signal, more in tick.counts.items():
            counts[signal] = counts[signal] + more if signal in counts else more
    span = (last.start - first.start).total_seconds() + last.duration_seconds
    return Tick(
        tier=first.tier,
        scope=first.scope,
        variant=first.variant,
        number=first.number,
        start=first.start,
        duration_seconds=span,
        age_seconds=last.age_seconds,
        requests=sum(tick.requests for tick in ticks),
        counts=counts,
    )


def _row(tick: Tick) -> TickRow:
    return TickRow(
        tier=tick.tier,
        scope=str(tick.scope),
        variant=tick.variant,
        number=tick.number,
        start=tick.start,
        duration_seconds=tick.duration_seconds,
        age_seconds=tick.age_seconds,
        requests=tick.requests,
        coarse=False,
        counts=pack(tick.counts),
    )


def _tick(row: TickRow) -> Tick:
    return Tick(
        tier=row.tier,
        scope=Scope.parse(row.scope),
        variant=row.variant,
        number=row.number,
        start=row.start,
        duration_seconds=row.duration_seconds,
        age_seconds=row.age_seconds,
        requests=row.requests,
        counts=unpack(row.counts),
    )
