"""Journal first: what is decided is durable before it is in force.

When the journal cannot be written, nothing new is withheld. What lets traffic back may go ahead in
memory and is written later; if the process dies before, the journal still holds the older, stricter
state, and its lease and open time have the last word on restart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from alerts.breaker.journal import Journal, JournalError
from alerts.breaker.records import Entry, Key

UNWRITTEN_MOST = 256


class Ledger:
    """Writes entries through a journal and keeps those that could not be written."""

    def __init__(self, journal: Journal) -> None:
        self.writable = True
        self.failures = 0
        self.dropped = 0
        self._journal = journal
        self._unwritten: list[Entry] = []

    async def write(self, entries: Sequence[Entry]) -> None:
        """Write `entries`, and before them what is still unwritten.

        Raises:
            JournalError: If the journal could not; nothing of `entries` is in force then.
        """
        try:
            await self._journal.record([*_newest_deliveries(self._unwritten), *entries])
        except JournalError:
            self.failed()
            raise
        self._unwritten.clear()
        self.writable = True

    def defer(self, entry: Entry) -> None:
        """Keep an entry that lets traffic back until the journal can be written again."""
        self._unwritten.append(entry)
        surplus = len(self._unwritten) - UNWRITTEN_MOST
        if surplus > 0:
            self.dropped += surplus
            del self._unwritten[:surplus]

    async def retry(self) -> None:
        """Try to write what is unwritten; with nothing unwritten, try an empty write."""
        if self.writable:
            return
        try:
            await self.write(())
        except JournalError:
            return

    def failed(self) -> None:
        """Note that the journal could not do its work."""
        self.writable = False
        self.failures += 1


def _newest_deliveries(entries: Sequence[Entry]) -> list[Entry]:
    """Keep the deliveries of the newest entry of each breaker only: older states are past."""
    newest: dict[Key, int] = {entry.breaker.key: index for index, entry in enumerate(entries)}
    return [
        entry if newest[entry.breaker.key] == index else replace(entry, deliveries=())
        for index, entry in enumerate(entries)
    ]
