"""History of verdicts: every change of level, and a thinned series between the changes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from collector.store.models import VerdictRow
from detectors.records import Scope, Stream, Verdict


@dataclass(frozen=True, slots=True)
class KeptVerdict:
    """A verdict worth a row; `changed` if its level differs from the one before."""

    verdict: Verdict
    changed: bool
    id: int = 0  # of its row, once it has one


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which verdicts to read; what is empty or None does not restrict."""

    tier: str = ""
    scope: Scope | None = None
    signal: str = ""
    detector: str = ""
    since: datetime | None = None
    until: datetime | None = None
    changes_only: bool = False

    def conditions(self) -> list[ColumnElement[bool]]:
        """Return the conditions on rows."""
        scope = "" if self.scope is None else str(self.scope)
        names = (
            (VerdictRow.tier, self.tier),
            (VerdictRow.scope, scope),
            (VerdictRow.signal, self.signal),
            (VerdictRow.detector, self.detector),
        )
        wanted = [column == name for column, name in names if name]
        if self.since is not None:
            wanted.append(VerdictRow.at >= self.since)
        if self.until is not None:
            wanted.append(VerdictRow.at < self.until)
        if self.changes_only:
            wanted.append(VerdictRow.changed.is_(True))
        return wanted


def record(session: Session, verdicts: Sequence[KeptVerdict]) -> None:
    """Add verdicts to the history."""
    session.add_all([_row(kept) for kept in verdicts])
    session.flush()


def history(
    session: Session, chosen: Chosen, *, before: int = 0, limit: int = 100
) -> list[KeptVerdict]:
    """Return verdicts, newest first; the next page is `before` the last one's id."""
    wanted = select(VerdictRow).where(*chosen.conditions())
    if before:
        wanted = wanted.where(VerdictRow.id < before)
    rows = session.scalars(wanted.order_by(VerdictRow.id.desc()).limit(limit))
    return [_kept(row) for row in rows]


def latest(session: Session, chosen: Chosen, *, limit: int = 10_000) -> list[KeptVerdict]:
    """Return the newest verdict of each (detector, stream), newest first.

    Give `since`: without it the whole history is looked through.
    """
    newest = (
        select(func.max(VerdictRow.id))
        .where(*chosen.conditions())
        .group_by(
            VerdictRow.tier,
            VerdictRow.scope,
            VerdictRow.signal,
            VerdictRow.variant,
            VerdictRow.detector,
        )
    )
    wanted = select(VerdictRow).where(VerdictRow.id.in_(newest))
    rows = session.scalars(wanted.order_by(VerdictRow.id.desc()).limit(limit))
    return [_kept(row) for row in rows]


def _row(kept: KeptVerdict) -> VerdictRow:
    verdict = kept.verdict
    return VerdictRow(
        at=verdict.at,
        tier=verdict.stream.tier,
        scope=str(verdict.stream.scope),
        signal=verdict.stream.signal,
        variant=verdict.stream.variant,
        detector=verdict.detector,
        level=verdict.level,
        changed=kept.changed,
        statistic=_known(verdict.statistic),
        effect=_known(verdict.effect),
        threshold=_known(verdict.threshold),
        evidence=_known(verdict.evidence),
        samples=int(verdict.samples),
        age_seconds=float(verdict.age_seconds),
        baseline=verdict.baseline,
        cause=verdict.cause,
        reason=verdict.reason,
        details=verdict.details,
    )


def _known(value: float | None) -> float | None:
    """Return a plain float; NaN, which SQLite cannot keep, is as unknown as None."""
    return None if value is None or math.isnan(value) else float(value)


def _kept(row: VerdictRow) -> KeptVerdict:
    verdict = Verdict(
        detector=row.detector,
        stream=Stream(row.tier, Scope.parse(row.scope), row.signal, row.variant),
        level=row.level,
        at=row.at,
        reason=row.reason,
        statistic=row.statistic,
        effect=row.effect,
        threshold=row.threshold,
        evidence=row.evidence,
        samples=row.samples,
        age_seconds=row.age_seconds,
        baseline=row.baseline,
        cause=row.cause,
        details=row.details,
    )
    return KeptVerdict(verdict, row.changed, row.id)
