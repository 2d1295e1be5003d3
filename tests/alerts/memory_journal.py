"""A journal in memory: the whole contract without a database, for tests.

Journals opened on one `Disk` see the same rows, as processes on one database do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from alerts.breaker.records import (
    Breaker,
    Delivery,
    DeliveryStatus,
    Entry,
    Key,
    Override,
    Transition,
)
from alerts.journal import JournalError, Loaded

_OPEN = (DeliveryStatus.PENDING, DeliveryStatus.CLAIMED)


@dataclass
class Disk:
    """The rows that survive; `full` makes every call fail, as a full disk does."""

    epoch: int = 0
    breakers: dict[Key, Breaker] = field(default_factory=dict)
    transitions: list[Transition] = field(default_factory=list)
    deliveries: dict[str, Delivery] = field(default_factory=dict)
    asked: dict[Key, Override | None] = field(default_factory=dict)
    full: bool = False


class MemoryJournal:
    """A `Journal` over a `Disk`."""

    def __init__(self, disk: Disk | None = None) -> None:
        self.disk = disk or Disk()

    async def load(self) -> Loaded:
        self._check("load")
        self.disk.epoch += 1
        return Loaded(self.disk.epoch, tuple(self.disk.breakers.values()))

    async def record(self, entries: Sequence[Entry]) -> None:
        self._check("record")
        for entry in entries:
            self.disk.breakers[entry.breaker.key] = entry.breaker
            if entry.transition is not None:
                self.disk.transitions.append(entry.transition)
            for delivery in entry.deliveries:
                self._supersede(delivery)
                self.disk.deliveries[delivery.id] = delivery

    def _supersede(self, newer: Delivery) -> None:
        for row in list(self.disk.deliveries.values()):
            same = (row.endpoint, row.key) == (newer.endpoint, newer.key)
            older = (row.epoch, row.seq) < (newer.epoch, newer.seq)
            if same and older and row.status in _OPEN:
                superseded = replace(row, status=DeliveryStatus.SUPERSEDED)
                self.disk.deliveries[row.id] = superseded

    async def overrides(self) -> dict[Key, Override | None]:
        self._check("overrides")
        asked = dict(self.disk.asked)
        self.disk.asked.clear()
        return asked

    async def claim(self, *, now: datetime, limit: int, hold_seconds: float) -> list[Delivery]:
        self._check("claim")
        rows = self.disk.deliveries.values()
        busy = {(row.endpoint, row.key) for row in rows if _held(row, now)}
        claimed: list[Delivery] = []
        for row in sorted(rows, key=lambda row: (row.due_at, row.epoch, row.seq)):
            place = (row.endpoint, row.key)
            if len(claimed) < limit and place not in busy and _due(row, now):
                busy.add(place)
                until = now + timedelta(seconds=hold_seconds)
                claimed.append(
                    replace(
                        row,
                        status=DeliveryStatus.CLAIMED,
                        claimed_until=until,
                        attempts=row.attempts + 1,
                    )
                )
        self.disk.deliveries.update({row.id: row for row in claimed})
        return claimed

    async def settle(
        self,
        delivery: str,
        *,
        status: DeliveryStatus,
        at: datetime,
        problem: str = "",
        due_at: datetime | None = None,
    ) -> None:
        self._check("settle")
        row = self.disk.deliveries.get(delivery)
        if row is None or row.status is DeliveryStatus.SUPERSEDED:
            return
        self.disk.deliveries[delivery] = replace(
            row, status=status, problem=problem, due_at=due_at or row.due_at, claimed_until=None
        )

    def _check(self, what: str) -> None:
        if self.disk.full:
            msg = f"journal: {what} failed: the disk is full; free space and it is tried again"
            raise JournalError(msg)


def _held(row: Delivery, now: datetime) -> bool:
    claimed = row.status is DeliveryStatus.CLAIMED and row.claimed_until is not None
    return claimed and row.claimed_until > now  # type: ignore[operator]  # not None: just checked


def _due(row: Delivery, now: datetime) -> bool:
    return row.status in _OPEN and row.due_at <= now and not _held(row, now)
