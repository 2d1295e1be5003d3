"""The journal in the store: the contract on both databases, and what a database adds to it."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from random import Random

import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session

from alerts.breaker.book import TierSetup
from alerts.breaker.controller import Controller
from alerts.breaker.payload import Route
from alerts.breaker.records import (
    Breaker,
    Delivery,
    DeliveryStatus,
    Entry,
    Key,
    Override,
    Transition,
)
from alerts.journal import JournalError
from collector.store import audit, deliveries, overrides
from collector.store.journal import StoreJournal
from collector.store.session import StoreError
from collector.store.store import Store
from tests.collector.store.conftest import Clock
from tests.collector.store.postgres import Server
from tests.contracts.journal_bench import (
    AT,
    KEY,
    Bench,
    Check,
    a_delivery,
    a_full_breaker,
    an_entry,
    an_override,
)
from tests.contracts.journal_contract import CHECKS

pytestmark = pytest.mark.anyio


@pytest.fixture
def bench(store: Store, clock: Clock) -> Bench:
    async def ask(key: Key, override: Override | None) -> None:
        if override is None:
            await store.write(overrides.leave_release, key, actor="ana", reason="done", now=clock())
        else:
            await store.write(overrides.leave, key, override)

    async def transitions() -> list[Transition]:
        entries = await store.read(audit.history)
        return [entry.transition for entry in reversed(entries)]

    return Bench(lambda: StoreJournal(store, now=clock), ask, transitions)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_the_store_keeps_the_journal_contract(check: Check, bench: Bench) -> None:
    await check(bench)


def a_transition(seq: int, kind: str = "open") -> Transition:
    before, after = Breaker(KEY, epoch=1, seq=seq - 1), Breaker(KEY, epoch=1, seq=seq)
    return Transition(KEY, kind, AT, "auto", before, after, "0.98, trip at 0.95")


def a_whole_entry(seq: int) -> Entry:
    delivery = a_delivery(f"d{seq}", seq=seq)
    return Entry(Breaker(KEY, epoch=1, seq=seq), a_transition(seq), (delivery,))


async def everything(store: Store) -> tuple[int, int, int]:
    """Return the breaker's seq, and how many transitions and deliveries are kept."""
    entries = await store.read(audit.history, limit=10_000)
    kept = await store.read(deliveries.with_status, limit=10_000)
    known = (await store.journal.load()).breakers
    return (known[0].seq if known else 0), len(entries), len(kept)


async def test_an_entry_that_fails_takes_the_whole_call_back(store: Store) -> None:
    await store.journal.load()
    await store.journal.record([a_whole_entry(1)])

    with pytest.raises(JournalError, match="journal: record failed"):
        await store.journal.record([a_whole_entry(3), a_whole_entry(2)])

    assert await everything(store) == (1, 1, 1)


async def test_a_stale_writer_is_refused(store: Store) -> None:
    await store.journal.load()
    await store.journal.record([a_whole_entry(5)])

    with pytest.raises(JournalError, match=r"\(1, 5\), \(1, 4\) came, which is older"):
        await store.journal.record([a_whole_entry(4)])


async def test_a_controller_that_was_replaced_cannot_write(store: Store, clock: Clock) -> None:
    replaced, present = (StoreJournal(store, now=clock) for _ in range(2))
    await replaced.load()
    await present.load()

    with pytest.raises(JournalError, match="epoch 2 is in force, this controller is of epoch 1"):
        await replaced.record([a_whole_entry(1)])

    await present.record([a_whole_entry(1)])
    assert await everything(store) == (1, 1, 1)


async def test_a_problem_is_shown_until_a_call_goes_well(store: Store) -> None:
    await store.journal.load()
    await store.journal.record([a_whole_entry(5)])
    with pytest.raises(JournalError):
        await store.journal.record([a_whole_entry(4)])
    broken = (store.journal.problem.startswith("journal: record failed"), store.journal.failures)

    await store.journal.probe()

    assert broken == (True, 1)
    assert (store.journal.problem, store.journal.failures) == ("", 1)


async def test_an_override_request_survives_a_crash_before_it_is_recorded(bench: Bench) -> None:
    crashed, restarted = bench.open(), bench.open()
    await crashed.load()
    await bench.ask(KEY, an_override())
    await crashed.overrides()

    await restarted.load()

    assert await restarted.overrides() == {KEY: an_override()}


async def test_an_override_request_that_was_recorded_never_comes_again(bench: Bench) -> None:
    journal, restarted = bench.open(), bench.open()
    await journal.load()
    await bench.ask(KEY, an_override())
    await journal.overrides()

    await journal.record([an_entry()])  # a renewal in between answers nothing
    await journal.record([Entry(a_full_breaker())])
    await restarted.load()

    assert await restarted.overrides() == {}


async def test_a_renewal_does_not_answer_a_request(bench: Bench) -> None:
    journal, restarted = bench.open(), bench.open()
    await journal.load()
    await bench.ask(KEY, an_override())
    await journal.overrides()

    await journal.record([an_entry()])
    await restarted.load()

    assert await restarted.overrides() == {KEY: an_override()}


async def test_a_later_hand_answers_an_earlier_request(bench: Bench) -> None:
    journal, restarted = bench.open(), bench.open()
    await journal.load()
    await bench.ask(KEY, an_override())
    await journal.overrides()
    ended = Entry(Breaker(KEY, epoch=1, seq=2), a_transition(2, kind="override_ended"))

    await journal.record([ended])
    await restarted.load()

    assert await restarted.overrides() == {}


async def test_a_recorded_release_answers_a_request_to_release(bench: Bench) -> None:
    journal, restarted = bench.open(), bench.open()
    await journal.load()
    await bench.ask(KEY, None)
    await journal.overrides()

    await journal.record([an_entry()])
    await restarted.load()

    assert await restarted.overrides() == {}


@pytest.fixture
async def full_store(sqlite_store: Store) -> Store:
    await sqlite_store.journal.load()
    await sqlite_store.journal.record([a_whole_entry(1)])
    return sqlite_store


async def set_most_pages(store: Store, pages: int) -> int:
    def limit(session: Session) -> int:
        return int(session.scalar(text(f"PRAGMA max_page_count={pages}")) or 0)

    return await store.control(limit)


async def test_a_full_disk_is_an_error_and_heals(full_store: Store) -> None:
    pages = await set_most_pages(full_store, 1)  # SQLite answers with what it has already
    large = replace(
        a_whole_entry(2), deliveries=(replace(a_delivery("x", seq=2), body=b"x" * 99_999),)
    )

    with pytest.raises(JournalError, match=r"record failed: .*database or disk is full"):
        await full_store.journal.record([large])
    during = await everything_but_load(full_store)
    await set_most_pages(full_store, pages + 1000)
    await full_store.journal.record([large])

    assert during == (1, 1)
    assert await everything(full_store) == (2, 2, 2)


async def everything_but_load(store: Store) -> tuple[int, int]:
    entries = await store.read(audit.history)
    return len(entries), len(await store.read(deliveries.with_status))


async def test_a_locked_database_is_an_error_and_heals(
    sqlite_store: Store, sqlite_url: str
) -> None:
    await sqlite_store.control(Session.execute, text("PRAGMA busy_timeout=1"))  # not 5 s
    other = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    with pytest.raises(JournalError, match="database is locked"):
        await sqlite_store.journal.record([a_whole_entry(1)])
    other.execute("ROLLBACK")
    other.close()
    await sqlite_store.journal.record([a_whole_entry(1)])

    assert await everything(sqlite_store) == (1, 1, 1)


@pytest.mark.slow
async def test_a_lost_connection_is_an_error_and_heals(
    postgres: Server, postgres_url: str, clock: Clock
) -> None:
    store = await Store.open(postgres_url, now=clock)
    await store.journal.load()

    def cut_off(session: Session) -> None:
        mine = session.scalar(text("SELECT pg_backend_pid()"))
        postgres.execute(f"SELECT pg_terminate_backend({mine})")
        session.execute(text("SELECT 1"))

    broken = StoreJournal(_CutOff(store, cut_off), now=clock)
    with pytest.raises(JournalError, match="record failed"):
        await broken.record([a_whole_entry(1)])
    await store.journal.record([a_whole_entry(1)])

    assert await everything(store) == (1, 1, 1)
    await store.close()


class _CutOff:
    """A writer whose connection the server ends in the middle of each transaction."""

    def __init__(self, store: Store, cut_off: Callable[[Session], None]) -> None:
        self._store = store
        self._cut_off = cut_off

    async def control(self, work, *args, **kwargs):
        def then_work(session: Session) -> object:
            result = work(session, *args, **kwargs)
            self._cut_off(session)
            return result

        return await self._store.control(then_work)


class _Unsaid:
    """A writer whose next transactions are committed and then reported as failed."""

    def __init__(self, store: Store) -> None:
        self.times = 0
        self._store = store

    async def control(self, work, *args, **kwargs):
        result = await self._store.control(work, *args, **kwargs)
        if self.times > 0:
            self.times -= 1
            msg = "store: the connection was lost in the commit"
            raise StoreError(msg)
        return result


async def test_a_commit_that_was_reported_as_failed_is_written_again_without_a_trace(
    store: Store, clock: Clock
) -> None:
    writer = _Unsaid(store)
    journal = StoreJournal(writer, now=clock)
    await journal.load()
    writer.times = 1

    with pytest.raises(JournalError, match="lost in the commit"):
        await journal.record([a_whole_entry(1)])
    await journal.record([a_whole_entry(1), a_whole_entry(2)])

    assert await everything(store) == (2, 2, 2)
    assert (await store.read(audit.verify)).holds


async def test_commits_in_doubt_block_no_controller(store: Store, clock: Clock) -> None:
    writer = _Unsaid(store)
    setup = TierSetup({"a": "10.0.0.1:80", "b": "10.0.0.2:80"}, "enforce")
    controller = Controller(
        StoreJournal(writer, now=clock),
        {"chat": setup},
        now=clock,
        rng=Random(1),
        endpoints=[Route("gw")],
    )
    await controller.start()
    await controller.override(KEY, "forced_open", actor="ana", reason="test", seconds=600)
    writer.times = 2
    await controller.release(KEY, actor="ana", reason="done")  # lets back: it is deferred

    for _ in range(3):
        clock.pass_(1)
        await controller.tick()
    other = Key("chat", "b")
    await controller.override(other, "forced_open", actor="ana", reason="test", seconds=60)

    assert controller.journal_writable
    assert controller.journal_failures == 2
    kinds = [entry.transition.kind for entry in await store.read(audit.history)]
    assert kinds == ["forced_open", "override_ended", "forced_open"]
    (newest,) = await store.journal.claim(now=clock(), limit=1, hold_seconds=5)
    assert (newest.key, newest.seq) == (KEY, controller.breakers[KEY].seq)


@pytest.mark.slow
async def test_claimers_at_once_never_claim_the_same(postgres_url: str, clock: Clock) -> None:
    stores = [await Store.open(postgres_url, now=clock) for _ in range(3)]
    rows = [a_delivery(f"d{number}", endpoint=f"gw{number}") for number in range(60)]
    await stores[0].journal.record([an_entry(*rows)])

    async def claim_until_empty(store: Store) -> list[Delivery]:
        claimed: list[Delivery] = []
        while more := await store.journal.claim(now=AT, limit=4, hold_seconds=60):
            claimed += more
        return claimed

    shares = await asyncio.gather(*(claim_until_empty(store) for store in stores))

    claimed = [row.id for share in shares for row in share]
    assert sorted(claimed) == sorted(row.id for row in rows)
    for store in stores:
        await store.close()


async def test_deliveries_are_listed_by_status_and_age(store: Store) -> None:
    journal = store.journal
    await journal.load()
    await journal.record([an_entry(a_delivery("old"), a_delivery("other", endpoint="gw2"))])
    newer = replace(a_delivery("new", seq=2), created_at=AT + timedelta(seconds=3))
    await journal.record([an_entry(newer, seq=2)])
    (first, *_) = await journal.claim(now=AT, limit=1, hold_seconds=9)
    await journal.settle(first.id, status=DeliveryStatus.DELIVERED, at=AT)

    superseded = await store.read(deliveries.with_status, DeliveryStatus.SUPERSEDED, endpoint="gw")
    pending = await store.read(deliveries.oldest_pending)
    unconfirmed = await store.read(deliveries.oldest_unconfirmed)

    assert [row.id for row in superseded] == ["old"]
    assert set(pending) | {first.endpoint} == {"gw", "gw2"}
    assert first.endpoint not in pending
    assert unconfirmed == {"gw": newer.created_at, "gw2": AT}
