"""A journal in memory: the whole contract without a database, for tests.

Journals opened on one `Disk` see the same rows, as processes on one database do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
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
    """The rows that survive; `full` makes every call fail, as a full disk does.

    `in_doubt` is how many of the next writes go through and are reported as failed, as a
    connection that is lost in the commit does; `writes` counts those that were tried.
    """

    epoch: int = 0
    breakers: dict[Key, Breaker] = field(default_factory=dict)
    transitions: list[Transition] = field(default_factory=list)
    deliveries: dict[str, Delivery] = field(default_factory=dict)
    asked: dict[Key, Override | None] = field(default_factory=dict)
    full: bool = False
    in_doubt: int = 0
    writes: int = 0


class MemoryJournal:
    """A `Journal` over a `Disk`."""

    def __init__(self, disk: Disk | None = None) -> None:
        self.disk = disk or Disk()

    async def load(self) -> Loaded:
        self._check("load")
        self.disk.epoch += 1
        return Loaded(self.disk.epoch, tuple(self.disk.breakers.values()))

    async def record(self, entries: Sequence[Entry]) -> None:
        self.disk.writes += 1
        self._check("record")
        self._check_order(entries)
        for entry in entries:
            self.disk.breakers[entry.breaker.key] = entry.breaker
            if entry.transition is not None and entry.transition not in self.disk.transitions:
                self.disk.transitions.append(entry.transition)
            for delivery in entry.deliveries:
                if delivery.id not in self.disk.deliveries:
                    self._supersede(delivery)
                    self.disk.deliveries[delivery.id] = delivery
        if self.disk.in_doubt:
            self.disk.in_doubt -= 1
            msg = "journal: record failed: the connection was lost"
            raise JournalError(msg)

    def _check_order(self, entries: Sequence[Entry]) -> None:
        known = {key: (row.epoch, row.seq) for key, row in self.disk.breakers.items()}
        for entry in entries:
            key, numbers = entry.breaker.key, (entry.breaker.epoch, entry.breaker.seq)
            if numbers < known.get(key, (0, 0)):
                msg = f"journal: record failed: breaker {key}: {numbers} came, which is older"
                raise JournalError(msg)
            known[key] = numbers

    def _supersede(self, newer: Delivery) -> None:
        for row in list(self.disk.deliveries.values()):
            same = (row.endpoint, row.key) == (newer.endpoint, newer.key)
            older = (row.epoch, row.seq) <= (newer.epoch, newer.seq)
            if same and older and row.status in _OPEN:
                superseded = replace(row, status=DeliveryStatus.SUPERSEDED)
                self.disk.deliveries[row.id] = superseded

    async def overrides(self) -> dict[Key, Override | None]:
        self._check("overrides")
        asked = dict(self.disk.asked)
        self.disk.asked.clear()
        return asked

    async def claim(
        self,
        *,
        now: datetime,
        limit: int,
        hold_seconds: float,
        per_endpoint: int | None = None,
        busy: Collection[tuple[str, Key]] = (),
    ) -> list[Delivery]:
        self._check("claim")
        rows = self.disk.deliveries.values()
        taken = {(row.endpoint, row.key) for row in rows if _held(row, now)} | set(busy)
        counts = Counter(endpoint for endpoint, _ in busy)
        claimed: list[Delivery] = []
        for row in sorted(rows, key=lambda row: (row.due_at, row.epoch, row.seq, row.id)):
            place = (row.endpoint, row.key)
            room = per_endpoint is None or counts[row.endpoint] < per_endpoint
            if len(claimed) < limit and room and place not in taken and _due(row, now):
                taken.add(place)
                counts[row.endpoint] += 1
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
    until = row.claimed_until
    return row.status is DeliveryStatus.CLAIMED and until is not None and _ahead(until, now)


def _due(row: Delivery, now: datetime) -> bool:
    return row.status in _OPEN and not _ahead(row.due_at, now) and not _held(row, now)


def _ahead(moment: datetime, now: datetime) -> bool:
    """Return whether a moment lies ahead; one too far ahead was before the clock was set back."""
    return now < moment <= now + timedelta(seconds=60)
