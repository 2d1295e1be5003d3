"""What was noticed about targets: marks for graphs, and what was known at the last stop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from collector.store.models import AnnotationRow


@dataclass(frozen=True, slots=True)
class Annotation:
    """Something noticed about a target.

    `what`, `before`, `after` and `first` as in `detectors.records.Noticed`; `times` is how many
    changes within a short while the row stands for, `before` then being that of the first and
    `after` that of the last. `finding` says in words what a person should know of it.
    """

    at: datetime
    tier: str
    target: str
    what: str
    before: str = ""
    after: str = ""
    first: bool = False
    times: int = 1
    finding: str = ""
    id: int = 0  # of its row, once it has one


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which annotations to read; what is empty or None does not restrict."""

    tier: str = ""
    target: str = ""
    since: datetime | None = None

    def conditions(self) -> list[ColumnElement[bool]]:
        """Return the conditions on rows."""
        names = ((AnnotationRow.tier, self.tier), (AnnotationRow.target, self.target))
        wanted = [column == name for column, name in names if name]
        if self.since is not None:
            wanted.append(AnnotationRow.at >= self.since)
        return wanted


def record(session: Session, annotations: Sequence[Annotation]) -> None:
    """Add annotations."""
    session.add_all([_row(it) for it in annotations])
    session.flush()


def history(
    session: Session, chosen: Chosen, *, before: int = 0, limit: int = 100
) -> list[Annotation]:
    """Return annotations, newest first; the next page is `before` the last one's id."""
    wanted = select(AnnotationRow).where(*chosen.conditions())
    if before:
        wanted = wanted.where(AnnotationRow.id < before)
    rows = session.scalars(wanted.order_by(AnnotationRow.id.desc()).limit(limit))
    return [_annotation(row) for row in rows]


def latest(session: Session, *, limit: int = 20_000) -> list[Annotation]:
    """Return the newest annotation of each (tier, target, what), newest first."""
    newest = select(func.max(AnnotationRow.id)).group_by(
        AnnotationRow.tier, AnnotationRow.target, AnnotationRow.what
    )
    wanted = select(AnnotationRow).where(AnnotationRow.id.in_(newest))
    rows = session.scalars(wanted.order_by(AnnotationRow.id.desc()).limit(limit))
    return [_annotation(row) for row in rows]


def _row(annotation: Annotation) -> AnnotationRow:
    return AnnotationRow(
        at=annotation.at,
        tier=annotation.tier,
        target=annotation.target,
        what=annotation.what,
        before=annotation.before,
        after=annotation.after,
        first=annotation.first,
        times=annotation.times,
        finding=annotation.finding,
    )


def _annotation(row: AnnotationRow) -> Annotation:
    return Annotation(
        at=row.at,
        tier=row.tier,
        target=row.target,
        what=row.what,
        before=row.before,
        after=row.after,
        first=row.first,
        times=row.times,
        finding=row.finding,
        id=row.id,
    )
