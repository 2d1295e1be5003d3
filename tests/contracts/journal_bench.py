"""What the checks of a journal are run on: a bench, and rows to put on it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from alerts.breaker.records import (
    Breaker,
    Cause,
    Delivery,
    Entry,
    Key,
    Override,
    State,
    Transition,
)
from alerts.journal import Journal

AT = datetime(2026, 11, 29, 15, 26, 40, 120_000, tzinfo=UTC)
KEY = Key("chat", "a")


@dataclass(frozen=True)
class Bench:
    """A journal under test.

    `open` opens it on the same rows each time, as a restarted process would; `ask` leaves an
    override request as a command beside the service does; `transitions` reads the audit, oldest
    first.
    """

    open: Callable[[], Journal]
    ask: Callable[[Key, Override | None], Awaitable[None]]
    transitions: Callable[[], Awaitable[list[Transition]]]


Check: TypeAlias = Callable[[Bench], Awaitable[None]]


def an_override(**changes: object) -> Override:
    """Return an override of an hour from `AT`."""
    override = Override("forced_open", "ana", "maintenance", AT, AT + timedelta(hours=1))
    return replace(override, **changes)  # type: ignore[arg-type]  # fields of Override


def a_full_breaker() -> Breaker:
    """Return a breaker with every field set."""
    signals = {"kv_cache_usage_ratio": {"value": 0.98, "threshold": 0.95}}
    return Breaker(
        key=KEY,
        state=State.OPEN,
        admit_ratio=0.25,
        ramp_step=1,
        trip_level=2,
        good_evaluations=1,
        changed_at=AT,
        open_until=AT + timedelta(seconds=30.5),
        half_open_deadline=AT + timedelta(seconds=120),
        lease_expires_at=AT + timedelta(seconds=60),
        epoch=1,
        seq=7,
        cause=Cause("kv_cache_saturated", "soft", "0.98, trip at 0.95", signals),
        override=an_override(),
        level_since=AT - timedelta(seconds=5),
        recent_opens=(AT - timedelta(minutes=3), AT),
    )


def a_delivery(name: str, *, seq: int = 1, endpoint: str = "gw", key: Key = KEY) -> Delivery:
    """Return a pending delivery due at `AT`."""
    until = AT + timedelta(seconds=60)
    return Delivery(name, endpoint, key, 1, seq, name.encode() + b"\x00\xff", AT, AT, until)


def an_entry(*deliveries: Delivery, seq: int = 1, key: Key = KEY) -> Entry:
    """Return an entry of a breaker without a transition."""
    return Entry(Breaker(key, epoch=1, seq=seq), None, deliveries)


async def claim_all(journal: Journal, at: datetime = AT) -> list[Delivery]:
    """Claim everything that is due at `at`."""
    return await journal.claim(now=at, limit=100, hold_seconds=10)
