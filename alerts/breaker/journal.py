"""The journal as the breaker needs it; everyone else imports it from `alerts.journal`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from alerts.breaker.records import Breaker, Delivery, DeliveryStatus, Entry, Key, Override


class JournalError(Exception):
    """The journal could not be written or read; the message says where and why.

    Whoever decides must then not trip anything new and not renew past `open_until`.
    """


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a controller starts from: its new epoch (already raised) and every known breaker."""

    epoch: int
    breakers: tuple[Breaker, ...]


class Journal(Protocol):
    """Durable control state. Every method raises `JournalError` when it cannot do its work."""

    async def load(self) -> Loaded:
        """Raise the epoch by one, durably, and return it with all breakers."""
        ...

    async def record(self, entries: Sequence[Entry]) -> None:
        """Write all entries, in their order, in one transaction, durable when this returns.

        A delivery makes every pending or claimed one of the same (endpoint, key) with no higher
        (epoch, seq) superseded, also one of an earlier entry of the same call. After an error the
        write may have gone through all the same: transitions and deliveries that come again are
        kept once. A breaker older than what is kept is an error. Without entries this finds out
        whether the journal can be written.
        """
        ...

    async def overrides(self) -> dict[Key, Override | None]:
        """Return override requests left by others since the last call; None releases.

        A command that finds the service down leaves its request as a row; the running service
        takes them over (once) through this.
        """
        ...

    async def claim(
        self,
        *,
        now: datetime,
        limit: int,
        hold_seconds: float,
        per_endpoint: int | None = None,
        busy: Collection[tuple[str, Key]] = (),
    ) -> list[Delivery]:
        """Claim due deliveries, oldest first, at most one for each (endpoint, key).

        `busy` is what the claimer has on the wire: nothing of that is claimed, and it counts
        among the `per_endpoint` that one endpoint may have. What was put off further than a
        minute was so before the clock was set back, and is due.

        A claim that is not settled within `hold_seconds` is due again; until then nothing else of
        its (endpoint, key) is claimed. Each claim counts as an attempt, and `attempts` of what is
        returned includes it.
        """
        ...

    async def settle(
        self,
        delivery: str,
        *,
        status: DeliveryStatus,
        at: datetime,
        problem: str = "",
        due_at: datetime | None = None,
    ) -> None:
        """Record the outcome of an attempt; PENDING with `due_at` means: try again then.

        A delivery that was superseded meanwhile stays so; an unknown id is ignored.
        """
        ...
