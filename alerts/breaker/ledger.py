"""Journal first: what is decided is durable before it is in force.

When the journal cannot be written, nothing new is withheld. What lets traffic back may go ahead in
memory and is written later; if the process dies before, the journal still holds the older, stricter
state, and its lease and open time have the last word on restart.

A write that failed may have gone through all the same (a connection lost in the commit). So what
is written again are the same rows, which a journal keeps once, and a breaker whose write failed
uses up the number: what is in force is written again under a higher one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from alerts.breaker.journal import Journal, JournalError
from alerts.breaker.records import Entry, Key

UNWRITTEN_MOST = 256


class Ledger:
    """Writes entries through a journal and keeps those that could not be written.

    Kept are the newest state of each breaker, with its deliveries, and of the audit at most
    `UNWRITTEN_MOST` rows; `dropped` counts the rows that were too many.
    """

    def __init__(self, journal: Journal) -> None:
        self.writable = True
        self.failures = 0
        self.dropped = 0
        self._journal = journal
        self._states: dict[Key, Entry] = {}
        self._rows: list[Entry] = []

    async def write(self, entries: Sequence[Entry], *, anyway: bool = False) -> None:
        """Write `entries`, and before them what is still unwritten.

        While the journal cannot be written only `retry` tries, once a tick, and who asks for it by
        `anyway`: each try may take as long as the database's own patience.

        Raises:
            JournalError: If the journal could not, or was not tried.
        """
        if not (self.writable or anyway):
            msg = "journal: it could not be written lately; it is tried again on every tick"
            raise JournalError(msg)
        try:
            await self._journal.record(self._batch(entries))
        except JournalError:
            self.writable = False
            self.failures += 1
            raise
        self._states.clear()
        self._rows.clear()
        self.writable = True

    def defer(self, entry: Entry) -> None:
        """Keep an entry until the journal can be written: a state and perhaps its audit row."""
        self._states[entry.breaker.key] = replace(entry, transition=None)
        self.defer_row(entry)

    def defer_row(self, entry: Entry) -> None:
        """Keep the audit row of an entry that changed no breaker."""
        if entry.transition is None:
            return
        self._states.setdefault(entry.breaker.key, replace(entry, transition=None))
        self._rows.append(entry)
        surplus = len(self._rows) - UNWRITTEN_MOST
        if surplus > 0:
            self.dropped += surplus
            del self._rows[:surplus]

    async def retry(self) -> None:
        """Try to write what is unwritten; after a failure with nothing unwritten, nothing."""
        if self.writable and not self._states:
            return
        try:
            await self.write((), anyway=True)
        except JournalError:
            return

    async def doubt(self) -> None:
        """Something else of the journal failed: find out whether it can be written."""
        self.failures += 1
        self.writable = False
        await self.retry()

    def _batch(self, entries: Sequence[Entry]) -> list[Entry]:
        """Return what is to be written: each breaker in its newest state only."""
        newest = self._states | {entry.breaker.key: entry for entry in entries}
        new = {entry.breaker.key for entry in entries}
        rows = [Entry(newest[row.breaker.key].breaker, row.transition) for row in self._rows]
        states = [entry for key, entry in self._states.items() if key not in new]
        return [*rows, *states, *entries]
