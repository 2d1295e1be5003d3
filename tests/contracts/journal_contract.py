"""What every journal must do: one function a promise, run over each implementation.

An implementation's test makes a `Bench` and runs each of `CHECKS`:

    @pytest.mark.anyio
    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    async def test_the_store_keeps_the_journal_contract(check, bench): await check(bench)
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

import pytest

from alerts.breaker.records import (
    Breaker,
    Cause,
    Delivery,
    DeliveryStatus,
    Entry,
    Key,
    Override,
    State,
    Transition,
)
from alerts.journal import Journal, JournalError

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


async def each_load_raises_the_epoch(bench: Bench) -> None:
    first = await bench.open().load()
    second = await bench.open().load()

    assert second.epoch == first.epoch + 1


async def a_breaker_comes_back_with_every_field(bench: Bench) -> None:
    breaker = a_full_breaker()
    journal = bench.open()
    await journal.load()

    await journal.record([Entry(breaker)])

    assert (await bench.open().load()).breakers == (breaker,)


async def a_later_record_replaces_the_breaker(bench: Bench) -> None:
    journal = bench.open()
    await journal.load()

    await journal.record([Entry(a_full_breaker())])
    await journal.record([Entry(Breaker(KEY, epoch=1, seq=8))])

    assert (await bench.open().load()).breakers == (Breaker(KEY, epoch=1, seq=8),)


async def a_transition_is_audited_with_its_breaker(bench: Bench) -> None:
    before, after = Breaker(KEY, epoch=1, seq=6), a_full_breaker()
    transition = Transition(KEY, "open", AT, "auto", before, after, "0.98, trip at 0.95")
    journal = bench.open()
    await journal.load()

    await journal.record([Entry(after, transition)])

    assert await bench.transitions() == [transition]


async def what_is_not_due_is_not_claimed(bench: Bench) -> None:
    journal = bench.open()
    await journal.load()
    later = replace(a_delivery("later"), due_at=AT + timedelta(seconds=5))
    await journal.record([an_entry(later)])

    assert await claim_all(journal) == []
    assert [row.id for row in await claim_all(journal, AT + timedelta(seconds=5))] == ["later"]


async def the_oldest_due_are_claimed_first_up_to_the_limit(bench: Bench) -> None:
    journal = bench.open()
    await journal.load()
    due = {"third": 0, "first": 20, "second": 10}
    for name, seconds_before in due.items():
        row = replace(
            a_delivery(name, endpoint=name), due_at=AT - timedelta(seconds=seconds_before)
        )
        await journal.record([an_entry(row)])

    claimed = await journal.claim(now=AT, limit=2, hold_seconds=10)

    assert [row.id for row in claimed] == ["first", "second"]


async def a_claim_returns_the_row_and_counts_the_attempt(bench: Bench) -> None:
    journal = bench.open()
    await journal.load()
    row = a_delivery("one")
    await journal.record([an_entry(row)])

    (claimed,) = await claim_all(journal)

    assert claimed == replace(
        row,
        status=DeliveryStatus.CLAIMED,
        attempts=1,
        claimed_until=AT + timedelta(seconds=10),
    )


async def one_endpoint_and_breaker_has_one_claim_at_a_time(bench: Bench) -> None:
    journal = bench.open()
    await journal.load()
    other = Key("chat", "b")
    await journal.record([an_entry(a_delivery("one")), an_entry(a_delivery("two", key=other))])
    await journal.record([an_entry(a_delivery("three", endpoint="gw2"))])

    claimed = {row.id for row in await claim_all(journal)}
    again = await claim_all(bench.open(), AT + timedelta(seconds=9))

    assert claimed == {"one", "two", "three"}
    assert again == []


async def an_unsettled_claim_is_due_again_after_its_hold(bench: Bench) -> None:
    journal = bench.open()
    await journal.load()
    await journal.record([an_entry(a_delivery("one"))])
    await claim_all(journal)

    (again,) = await claim_all(bench.open(), AT + timedelta(seconds=11))

    assert (again.id, again.attempts) == ("one", 2)


async def a_newer_state_supersedes_what_is_pending(bench: Bench) -> None:
    journal = bench.open()
    await journal.load()
    other = Key("chat", "b")
    await journal.record([an_entry(a_delivery("old"), a_delivery("elsewhere", endpoint="gw2"))])
    await journal.record([an_entry(a_delivery("other", key=other), key=other)])

    await journal.record([an_entry(a_delivery("new", seq=2), seq=2)])

    assert {row.id for row in await claim_all(journal)} == {"new", "elsewhere", "other"}


async def a_later_entry_of_one_call_supersedes_an_earlier(bench: Bench) -> None:
    journal = bench.open()
    await journal.load()
    old, new = an_entry(a_delivery("old")), an_entry(a_delivery("new", seq=2), seq=2)

    await journal.record([old, new])

    assert [row.id for row in await claim_all(journal)] == ["new"]


async def a_higher_epoch_supersedes_a_higher_seq(bench: Bench) -> None:
    journal = bench.open()
    await journal.load()
    await journal.record([an_entry(a_delivery("old", seq=99), seq=99)])

    newer = replace(a_delivery("new", seq=1), epoch=2)
    await journal.record([Entry(Breaker(KEY, epoch=2, seq=1), None, (newer,))])

    assert [row.id for row in await claim_all(journal)] == ["new"]


async def what_comes_again_is_kept_once(bench: Bench) -> None:
    before, after = Breaker(KEY, epoch=1, seq=6), a_full_breaker()
    opened = Transition(KEY, "open", AT, "auto", before, after, "0.98, trip at 0.95")
    entry = Entry(after, opened, (a_delivery("one", seq=7),))
    journal = bench.open()
    await journal.load()

    await journal.record([entry])
    await journal.record([entry, Entry(replace(after, seq=8))])

    assert await bench.transitions() == [opened]
    assert [row.attempts for row in await claim_all(journal)] == [1]
    await journal.settle("one", status=DeliveryStatus.CONFIRMED, at=AT)
    await journal.record([Entry(replace(after, seq=8), opened, entry.deliveries)])
    assert await claim_all(journal, AT + timedelta(seconds=30)) == []
    assert (await bench.open().load()).breakers == (replace(after, seq=8),)


async def transitions_that_differ_in_anything_are_all_kept(bench: Bench) -> None:
    breaker = a_full_breaker()
    reasons = ("pool_guard: 1 of 3", "velocity: 1 trips")
    notes = [
        Transition(KEY, "suppressed", AT, "auto", breaker, breaker, reason) for reason in reasons
    ]
    journal = bench.open()
    await journal.load()

    await journal.record([Entry(breaker, note) for note in notes])

    assert await bench.transitions() == notes


async def an_older_breaker_is_refused(bench: Bench) -> None:
    journal = bench.open()
    await journal.load()
    await journal.record([an_entry(seq=5)])

    with pytest.raises(JournalError, match="older"):
        await journal.record([an_entry(seq=4)])
    await journal.record([an_entry(seq=5)])

    assert [row.seq for row in (await bench.open().load()).breakers] == [5]


async def an_empty_write_is_a_write(bench: Bench) -> None:
    journal = bench.open()
    await journal.load()

    await journal.record([])

    assert await bench.transitions() == []


async def other_bytes_under_the_same_numbers_take_the_place_of_the_first(bench: Bench) -> None:
    journal = bench.open()
    await journal.load()
    await journal.record([an_entry(a_delivery("first"))])

    await journal.record([an_entry(a_delivery("second"))])

    assert [row.id for row in await claim_all(journal)] == ["second"]


async def an_endpoint_has_no_more_in_flight_than_it_may(bench: Bench) -> None:
    journal = bench.open()
    await journal.load()
    keys = [Key("chat", name) for name in "abcde"]
    for key in keys:
        row = a_delivery(key.target, key=key)
        await journal.record([an_entry(row, key=key)])
    late = replace(a_delivery("z", endpoint="gw2"), due_at=AT + timedelta(seconds=1))
    await journal.record([an_entry(late)])
    on_the_wire = [("gw", keys[0])]

    claimed = await journal.claim(
        now=AT + timedelta(seconds=1), limit=4, hold_seconds=10, per_endpoint=3, busy=on_the_wire
    )

    assert [row.id for row in claimed] == ["b", "c", "z"]


async def what_is_on_the_wire_is_not_claimed_and_keeps_its_attempts(bench: Bench) -> None:
    journal = bench.open()
    await journal.load()
    await journal.record([an_entry(a_delivery("old"))])
    await claim_all(journal)
    await journal.record([an_entry(a_delivery("new", seq=2), seq=2)])

    on_the_wire = [("gw", KEY)]
    none = await journal.claim(now=AT, limit=9, hold_seconds=10, busy=on_the_wire)
    (new,) = await claim_all(journal)

    assert none == []
    assert (new.id, new.attempts) == ("new", 1)


async def a_clock_that_is_set_back_blocks_no_delivery(bench: Bench) -> None:
    journal = bench.open()
    await journal.load()
    other = Key("chat", "b")
    await journal.record([an_entry(a_delivery("held"))])
    await journal.record([an_entry(a_delivery("put off", key=other), key=other)])
    await claim_all(journal)
    due = AT + timedelta(seconds=15)
    await journal.settle("put off", status=DeliveryStatus.PENDING, at=AT, due_at=due)

    claimed = await claim_all(journal, AT - timedelta(days=1))

    assert {row.id for row in claimed} == {"held", "put off"}


async def a_superseded_claim_cannot_be_put_back(bench: Bench) -> None:
    journal = bench.open()
    await journal.load()
    await journal.record([an_entry(a_delivery("old"))])
    await claim_all(journal)
    await journal.record([an_entry(a_delivery("new", seq=2), seq=2)])

    await journal.settle("old", status=DeliveryStatus.PENDING, at=AT, due_at=AT)

    assert [row.id for row in await claim_all(journal)] == ["new"]
    assert await claim_all(journal, AT + timedelta(seconds=9)) == []


async def a_settled_delivery_is_not_claimed_again(bench: Bench) -> None:
    journal = bench.open()
    await journal.load()
    done = (DeliveryStatus.CONFIRMED, DeliveryStatus.DELIVERED, DeliveryStatus.DEAD)
    rows = [a_delivery(status, endpoint=status) for status in done]
    await journal.record([an_entry(*rows)])
    await claim_all(journal)

    for status in done:
        await journal.settle(status, status=status, at=AT)

    assert await claim_all(bench.open(), AT + timedelta(hours=1)) == []


async def a_failed_attempt_is_due_again_when_told(bench: Bench) -> None:
    journal = bench.open()
    await journal.load()
    await journal.record([an_entry(a_delivery("one"))])
    await claim_all(journal)

    due = AT + timedelta(seconds=0.5)
    await journal.settle(
        "one", status=DeliveryStatus.PENDING, at=AT, problem="answered 500", due_at=due
    )

    assert await claim_all(journal) == []
    (again,) = await claim_all(journal, due)
    assert (again.id, again.attempts, again.problem) == ("one", 2, "answered 500")


async def settling_an_unknown_delivery_is_ignored(bench: Bench) -> None:
    journal = bench.open()
    await journal.load()

    await journal.settle("nobody", status=DeliveryStatus.CONFIRMED, at=AT)

    assert await claim_all(journal) == []


async def override_requests_are_handed_over_once(bench: Bench) -> None:
    journal = bench.open()
    await journal.load()
    override = an_override()
    await bench.ask(KEY, override)
    await bench.ask(Key("code"), None)

    assert await journal.overrides() == {KEY: override, Key("code"): None}
    assert await bench.open().overrides() == {}


async def the_newest_override_request_of_a_breaker_wins(bench: Bench) -> None:
    journal = bench.open()
    await journal.load()
    await bench.ask(KEY, an_override())
    await bench.ask(KEY, None)

    assert await journal.overrides() == {KEY: None}


CHECKS: tuple[Check, ...] = (
    each_load_raises_the_epoch,
    a_breaker_comes_back_with_every_field,
    a_later_record_replaces_the_breaker,
    a_transition_is_audited_with_its_breaker,
    what_is_not_due_is_not_claimed,
    the_oldest_due_are_claimed_first_up_to_the_limit,
    a_claim_returns_the_row_and_counts_the_attempt,
    one_endpoint_and_breaker_has_one_claim_at_a_time,
    an_unsettled_claim_is_due_again_after_its_hold,
    a_newer_state_supersedes_what_is_pending,
    a_later_entry_of_one_call_supersedes_an_earlier,
    a_higher_epoch_supersedes_a_higher_seq,
    what_comes_again_is_kept_once,
    transitions_that_differ_in_anything_are_all_kept,
    an_older_breaker_is_refused,
    an_empty_write_is_a_write,
    other_bytes_under_the_same_numbers_take_the_place_of_the_first,
    an_endpoint_has_no_more_in_flight_than_it_may,
    what_is_on_the_wire_is_not_claimed_and_keeps_its_attempts,
    a_clock_that_is_set_back_blocks_no_delivery,
    a_superseded_claim_cannot_be_put_back,
    a_settled_delivery_is_not_claimed_again,
    a_failed_attempt_is_due_again_when_told,
    settling_an_unknown_delivery_is_ignored,
    override_requests_are_handed_over_once,
    the_newest_override_request_of_a_breaker_wins,
)
