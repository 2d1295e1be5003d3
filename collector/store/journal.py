"""The journal of control state on the store: `alerts.journal.Journal`, durable and fenced."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from sqlalchemy.orm import Session

from alerts.breaker.records import Delivery, DeliveryStatus, Entry, Key, Override
from alerts.journal import JournalError, Loaded
from collector.store import audit, breakers, deliveries, overrides
from collector.store.control import check_epoch, raise_epoch, touch
from collector.store.overrides import Request
from collector.store.session import StoreError

P = ParamSpec("P")
T = TypeVar("T")


class Writer(Protocol):
    """The one writer thread of the store: runs a function in one transaction."""

    async def control(
        self, work: Callable[Concatenate[Session, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T: ...


class StoreJournal:
    """A `Journal` in the store's tables. Every call is one transaction of the one writer.

    `problem` is empty while the last call went well; `failures` counts those that did not. After
    `load` this journal is fenced: when another controller loads, every later write of this one
    fails.
    """

    def __init__(self, writer: Writer, *, now: Callable[[], datetime]) -> None:
        self.problem = ""
        self.failures = 0
        self._writer = writer
        self._now = now
        self._epoch: int | None = None
        self._handed_out: dict[int, Request] = {}

    async def load(self) -> Loaded:
        loaded = await self._run("load", _load)
        self._epoch = loaded.epoch
        return loaded

    async def record(self, entries: Sequence[Entry]) -> None:
        taken = {
            request.id
            for request in self._handed_out.values()
            if any(overrides.answered(request, entry) for entry in entries)
        }
        await self._run(
            "record", _record, tuple(entries), epoch=self._epoch, taken=taken, now=self._now()
        )
        for number in taken:
            self._handed_out.pop(number, None)

    async def overrides(self) -> dict[Key, Override | None]:
        fresh = await self._run("overrides", overrides.hand_out)
        self._handed_out.update({request.id: request for request in fresh})
        for oldest in list(self._handed_out)[: -overrides.MOST_REQUESTS]:
            del self._handed_out[oldest]  # unanswered ones are left to the next epoch
        return {request.key: request.override for request in fresh}

    async def claim(
        self,
        *,
        now: datetime,
        limit: int,
        hold_seconds: float,
        per_endpoint: int | None = None,
        busy: Collection[tuple[str, Key]] = (),
    ) -> list[Delivery]:
        return await self._run(
            "claim",
            deliveries.claim,
            now=now,
            limit=limit,
            hold_seconds=hold_seconds,
            per_endpoint=per_endpoint,
            busy=tuple(busy),
        )

    async def settle(
        self,
        delivery: str,
        *,
        status: DeliveryStatus,
        at: datetime,
        problem: str = "",
        due_at: datetime | None = None,
    ) -> None:
        await self._run(
            "settle",
            deliveries.settle,
            delivery,
            status=status,
            at=at,
            problem=problem,
            due_at=due_at,
        )

    async def probe(self) -> None:
        """Write one row for nothing: whether the journal works again after a failure.

        Raises:
            JournalError: If it does not.
        """
        await self._run("probe", _probe)

    async def _run(
        self,
        what: str,
        work: Callable[Concatenate[Session, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        try:
            result = await self._writer.control(work, *args, **kwargs)
        except StoreError as error:
            self.failures += 1
            self.problem = f"journal: {what} failed: {error}"
            raise JournalError(self.problem) from error
        self.problem = ""
        return result


def _load(session: Session) -> Loaded:
    return Loaded(raise_epoch(session), tuple(breakers.known(session)))


def _record(
    session: Session,
    entries: Sequence[Entry],
    *,
    epoch: int | None,
    taken: set[int],
    now: datetime,
) -> None:
    if epoch is not None:
        check_epoch(session, epoch)
    if not entries:
        touch(session)  # asked whether the journal can be written: only a write can tell
    for entry in entries:
        breakers.put(session, entry.breaker)
        for delivery in entry.deliveries:
            deliveries.add(session, delivery)
    audit.append(session, [entry.transition for entry in entries if entry.transition is not None])
    overrides.take(session, taken, now=now)


def _probe(session: Session) -> None:
    touch(session)
