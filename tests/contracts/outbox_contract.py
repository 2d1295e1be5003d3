"""What every journal must do with deliveries; `journal_contract` runs these checks too."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from alerts.breaker.records import Breaker, DeliveryStatus, Entry, Key
from tests.contracts.journal_bench import AT, KEY, Bench, Check, a_delivery, an_entry, claim_all


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


OUTBOX_CHECKS: tuple[Check, ...] = (
    what_is_not_due_is_not_claimed,
    the_oldest_due_are_claimed_first_up_to_the_limit,
    a_claim_returns_the_row_and_counts_the_attempt,
    one_endpoint_and_breaker_has_one_claim_at_a_time,
    an_unsettled_claim_is_due_again_after_its_hold,
    a_newer_state_supersedes_what_is_pending,
    a_later_entry_of_one_call_supersedes_an_earlier,
    a_higher_epoch_supersedes_a_higher_seq,
    other_bytes_under_the_same_numbers_take_the_place_of_the_first,
    an_endpoint_has_no_more_in_flight_than_it_may,
    what_is_on_the_wire_is_not_claimed_and_keeps_its_attempts,
    a_clock_that_is_set_back_blocks_no_delivery,
    a_superseded_claim_cannot_be_put_back,
    a_settled_delivery_is_not_claimed_again,
    a_failed_attempt_is_due_again_when_told,
    settling_an_unknown_delivery_is_ignored,
)
