"""People's hands on breakers: overrides and releases, asked for now or left by commands."""

from __future__ import annotations

import logging
from datetime import datetime

from alerts.breaker.book import Book
from alerts.breaker.events import Force, Release
from alerts.breaker.journal import Journal, JournalError
from alerts.breaker.overrides import OverrideError, bounded, check_force, check_known
from alerts.breaker.records import Breaker, Key, Override, Transition

_LOG = logging.getLogger(__name__)


class Hands:
    """Takes releases, and what commands left; callers hold the controller's lock."""

    def __init__(self, book: Book, journal: Journal) -> None:
        self._book = book
        self._journal = journal
        self._asked: dict[Key, Override | None] = {}

    async def release(self, key: Key, release: Release, now: datetime) -> bool:
        """Release a breaker; return whether there was anything to release.

        Raises:
            OverrideError: If the breaker is unknown or no reason is given.
            JournalError: If it is not in force.
        """
        check_known(self._book, key, release.reason)
        move = self._book.decided(key, release, now)
        if move is not None and not await self._book.commit([move]):
            msg = (
                f"breaker {str(key)!r}: not released: that would withhold more, so it must be "
                "written first, and the journal cannot be written; try again when it can"
            )
            raise JournalError(msg)
        return move is not None

    async def take_over(self, now: datetime) -> None:
        """Honour requests that commands left in the journal while nobody answered them."""
        ledger = self._book.ledger
        if ledger.writable:
            try:
                self._asked.update(await self._journal.overrides())
            except JournalError:
                await ledger.doubt()
        for key, asked in list(self._asked.items()):
            try:
                await self._honour(key, asked, now)
            except OverrideError as error:
                _LOG.warning("override request refused", extra={"problem": str(error)})
                await self._answer(key, f"request refused: {error}", now)
            except JournalError:
                continue  # kept, and tried again on the next tick
            del self._asked[key]

    async def _honour(self, key: Key, asked: Override | None, now: datetime) -> None:
        if asked is None:
            released = await self.release(key, Release("command", "released by command"), now)
            if not released:
                await self._answer(key, "nothing to release", now)
            return
        override = bounded(self._book, key, asked, now)
        seconds = (override.expires_at - now).total_seconds()
        check_force(self._book, key, reason=override.reason, seconds=seconds)
        if not self._book.ledger.writable:
            msg = "journal: it could not be written on this tick; the request waits"
            raise JournalError(msg)
        await self._book.apply(key, Force(override), now, must_be_durable=True)

    async def _answer(self, key: Key, reason: str, now: datetime) -> None:
        """Audit that a request changed nothing, so that no later start honours it anew."""
        breaker = self._book.machines.get(key, Breaker(key, epoch=self._book.epoch))
        done = Transition(key, "override_ended", now, "command", breaker, breaker, reason[:400])
        await self._book.note(done)
