"""The audit: transitions in a hash chain that shows a changed, missing or added row.

Each row holds the hash of the one before and of its own content; numbers have no gaps; the head
of the chain is kept in the controller row. Whoever can write the whole database can also write a
consistent chain anew: what has been exported, with its checkpoint kept elsewhere, is the proof
against that. Retention cuts the chain at an exported checkpoint only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from alerts.breaker.records import Key, Transition
from collector.store.columns import from_json, to_json
from collector.store.control import controller
from collector.store.models import CheckpointRow, TransitionRow
from collector.store.session import StoreError

_CHUNK = 1000


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One kept transition with its place in the chain."""

    number: int
    hash: str
    transition: Transition


@dataclass(frozen=True, slots=True)
class AuditReport:
    """What a check of the chain found; `problem` is empty if the chain holds."""

    rows: int
    first: int
    last: int
    problem: str = ""

    @property
    def holds(self) -> bool:
        return not self.problem


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The chain up to and with `number` was exported to `place`."""

    number: int
    hash: str
    made_at: datetime
    place: str


def append(session: Session, transitions: Sequence[Transition]) -> None:
    """Add transitions to the chain, in their order; one that is in it already is left out.

    It comes again when its writer was told that the write failed, and it had not.
    """
    if not transitions:
        return
    end = controller(session, locked=True)
    number, previous = end.audit_number, end.audit_hash
    for transition in transitions:
        content = to_json(transition)
        if _kept(session, transition, content):
            continue
        number += 1
        this = chained(number, previous, content)
        session.add(_row(transition, number=number, content=content, previous=previous, this=this))
        previous = this
    end.audit_number, end.audit_hash = number, previous
    session.flush()


def _kept(session: Session, transition: Transition, content: str) -> bool:
    same = (
        TransitionRow.tier == transition.key.tier,
        TransitionRow.target == transition.key.target,
        TransitionRow.at == transition.at,
        TransitionRow.content == content,
    )
    return session.scalar(select(TransitionRow.number).where(*same).limit(1)) is not None


def chained(number: int, previous: str, content: str) -> str:
    """Return the hash of a row: sha256 over its number, the hash before and its content."""
    return hashlib.sha256(f"{number}\n{previous}\n{content}".encode()).hexdigest()


def _row(
    transition: Transition, *, number: int, content: str, previous: str, this: str
) -> TransitionRow:
    return TransitionRow(
        number=number,
        tier=transition.key.tier,
        target=transition.key.target,
        kind=transition.kind,
        at=transition.at,
        content=content,
        previous_hash=previous,
        hash=this,
    )


def history(
    session: Session, *, key: Key | None = None, tier: str = "", before: int = 0, limit: int = 100
) -> list[AuditEntry]:
    """Return the newest transitions, newest first.

    Args:
        session: A reading session.
        key: Only of this breaker.
        tier: Only of this tier and its targets.
        before: Only rows with a lower number, for the next page; 0 starts at the newest.
        limit: Most rows.
    """
    wanted = select(TransitionRow).order_by(TransitionRow.number.desc()).limit(limit)
    if key is not None:
        wanted = wanted.where(TransitionRow.tier == key.tier, TransitionRow.target == key.target)
    if tier:
        wanted = wanted.where(TransitionRow.tier == tier)
    if before:
        wanted = wanted.where(TransitionRow.number < before)
    return [
        AuditEntry(row.number, row.hash, from_json(row.content, Transition))
        for row in session.scalars(wanted)
    ]


def verify(session: Session) -> AuditReport:
    """Check the whole chain: numbers, hashes, the columns beside the content, and the head.

    The first row must be number 1 or follow an exported checkpoint.
    """
    end = controller(session)
    rows, first, last, previous = 0, 0, 0, ""
    for row in _rows(session, after=0, last=end.audit_number):
        if rows == 0:
            first, last = row.number, row.number - 1
            previous = _hash_before(session, row.number)
        problem = _problem(row, expected=last + 1, previous=previous)
        if problem:
            return AuditReport(rows, first, last, problem)
        rows, last, previous = rows + 1, row.number, row.hash
    if rows == 0:
        last, previous = end.audit_number, _hash_before(session, end.audit_number + 1)
    if (last, previous) != (end.audit_number, end.audit_hash):
        problem = (
            f"the chain ends at row {last}, the head says {end.audit_number}: "
            "rows at the end are missing or changed"
        )
        return AuditReport(rows, first, last, problem)
    return AuditReport(rows, first, last)


def _problem(row: TransitionRow, *, expected: int, previous: str) -> str:
    """Say what is wrong with a row, or nothing."""
    if row.number != expected:
        return f"row {expected} is missing (row {row.number} follows row {expected - 1})"
    if row.previous_hash != previous:
        where = "its checkpoint" if previous == "?" else f"row {row.number - 1}"
        return f"row {row.number} does not follow {where}: a row before it was changed or removed"
    if chained(row.number, row.previous_hash, row.content) != row.hash:
        return f"row {row.number} was changed: its hash does not match its content"
    try:
        transition = from_json(row.content, Transition)
    except msgspec.ValidationError as error:
        return f"row {row.number} cannot be read: {error}"
    beside = (row.tier, row.target, row.kind, row.at)
    within = (transition.key.tier, transition.key.target, transition.kind, transition.at)
    if beside != within:
        return f"row {row.number} was changed: its columns differ from its content"
    return ""


def _hash_before(session: Session, number: int) -> str:
    """Return the hash that row `number` must follow; `?` (never a hash) if nothing vouches."""
    if number == 1:
        return ""
    checkpoint = session.get(CheckpointRow, number - 1)
    return "?" if checkpoint is None else checkpoint.hash


def _rows(session: Session, *, after: int, last: int) -> Iterator[TransitionRow]:
    """Yield rows in order, a chunk in memory at a time."""
    while True:
        chunk = session.scalars(
            select(TransitionRow)
            .where(TransitionRow.number > after, TransitionRow.number <= last)
            .order_by(TransitionRow.number)
            .limit(_CHUNK)
        ).all()
        yield from chunk
        if len(chunk) < _CHUNK:
            return
        after = chunk[-1].number
        session.expunge_all()


def export(session: Session, *, after: int = 0, limit: int = 10_000) -> list[str]:
    """Return rows with a number above `after` as JSON lines, content as it was hashed.

    `hash` is the SHA-256 of number, newline, `previous_hash`, newline, and the exact bytes of
    `transition`; the next page starts after the last number.
    """
    rows = _rows(session, after=after, last=after + limit)
    return [
        f'{{"number":{row.number},"previous_hash":"{row.previous_hash}","hash":"{row.hash}",'
        f'"transition":{row.content}}}'
        for row in rows
    ]


def checkpoint(session: Session, *, number: int, place: str, now: datetime) -> Checkpoint:
    """Note that the chain up to `number` is exported: retention may cut up to here.

    Args:
        session: A writing session.
        number: Last exported row.
        place: Where the export lies, for people.
        now: Aware UTC.

    Raises:
        StoreError: If there is no such row.
    """
    row = session.get(TransitionRow, number)
    if row is None:
        msg = f"audit: row {number} is not in the store; a checkpoint needs an exported row"
        raise StoreError(msg)
    made = CheckpointRow(number=number, hash=row.hash, made_at=now, place=place)
    session.merge(made)
    session.flush()
    return Checkpoint(number, row.hash, now, place)


def newest_checkpoint(session: Session) -> Checkpoint | None:
    """Return the newest checkpoint: an export goes on after its number."""
    newest = select(func.max(CheckpointRow.number)).scalar_subquery()
    row = session.scalars(select(CheckpointRow).where(CheckpointRow.number == newest)).one_or_none()
    return None if row is None else Checkpoint(row.number, row.hash, row.made_at, row.place)
