"""What every journal must do: one function a promise, run over each implementation.

An implementation's test makes a `Bench` and runs each of `CHECKS`:

    @pytest.mark.anyio
    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    async def test_the_store_keeps_the_journal_contract(check, bench): await check(bench)
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from alerts.breaker.records import Breaker, DeliveryStatus, Entry, Key, Transition
from alerts.journal import JournalError
from tests.contracts.journal_bench import (
    AT,
    KEY,
    Bench,
    Check,
    a_delivery,
    a_full_breaker,
    an_entry,
    an_override,
    claim_all,
)
from tests.contracts.outbox_contract import OUTBOX_CHECKS


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
    what_comes_again_is_kept_once,
    transitions_that_differ_in_anything_are_all_kept,
    an_older_breaker_is_refused,
    an_empty_write_is_a_write,
    override_requests_are_handed_over_once,
    the_newest_override_request_of_a_breaker_wins,
    *OUTBOX_CHECKS,
)
