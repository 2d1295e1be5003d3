"""The audit chain holds, and shows every change and every missing row."""

from __future__ import annotations

import hashlib
import json
from datetime import timedelta

import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session

from alerts.breaker.records import Breaker, Cause, Key, Transition
from collector.store import audit
from collector.store.models import TransitionRow
from collector.store.retention import Ages, sweep
from collector.store.session import StoreError
from collector.store.store import Store
from tests.builders import START

pytestmark = pytest.mark.anyio


KEY = Key("chat", "a")


def a_transition(number: int, *, key: Key = KEY) -> Transition:
    """Return a transition `number` minutes after START, with a value that JSON lacks."""
    cause = Cause(
        "engine_stalled", "hard", "no token for 30 s", {"e2e_seconds": {"v": float("inf")}}
    )
    after = Breaker(key, seq=number, cause=cause)
    at = START + timedelta(minutes=number)
    return Transition(key, "open", at, "auto", Breaker(key, seq=number - 1), after, "stalled")


@pytest.fixture
async def chain(store: Store) -> Store:
    """A store with ten transitions, three of them written in one call."""
    await store.write(audit.append, [a_transition(1), a_transition(2), a_transition(3)])
    for number in range(4, 11):
        await store.write(audit.append, [a_transition(number)])
    return store


def execute(session: Session, statement: str) -> None:
    session.execute(text(statement))


async def test_an_empty_chain_holds(store: Store) -> None:
    report = await store.read(audit.verify)

    assert (report.holds, report.rows) == (True, 0)


async def test_a_chain_of_ten_holds(chain: Store) -> None:
    report = await chain.read(audit.verify)

    assert (report.problem, report.rows, report.first, report.last) == ("", 10, 1, 10)


async def test_a_chain_of_several_chunks_holds(
    chain: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "_CHUNK", 4)

    report = await chain.read(audit.verify)

    assert (report.problem, report.rows) == ("", 10)
    assert len(await chain.read(audit.export, after=1)) == 9


async def test_nothing_to_add_adds_nothing(chain: Store) -> None:
    await chain.write(audit.append, [])

    assert (await chain.read(audit.verify)).rows == 10


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        (
            "UPDATE transition SET content = replace(content, 'stalled', 'nothing') WHERE number=4",
            "row 4 was changed: its hash does not match its content",
        ),
        ("UPDATE transition SET tier = 'code' WHERE number = 5", "row 5 was changed: its columns"),
        ("UPDATE transition SET kind = 'closed' WHERE number = 5", "row 5 was changed: its colu"),
        ("DELETE FROM transition WHERE number = 6", "row 6 is missing (row 7 follows row 5)"),
        ("DELETE FROM transition WHERE number <= 2", "row 3 does not follow its checkpoint"),
        ("DELETE FROM transition WHERE number = 10", "the chain ends at row 9, the head says 10"),
        ("DELETE FROM transition", "the chain ends at row 10, the head says 10"),
        (
            "UPDATE transition SET number = 11 WHERE number = 10",
            "the chain ends at row 9, the head says 10",
        ),
        (
            "UPDATE controller SET audit_number = 9",
            "the chain ends at row 9, the head says 9: rows at the end are missing or changed",
        ),
    ],
)
async def test_tampering_is_found(chain: Store, statement: str, problem: str) -> None:
    await chain.write(execute, statement)

    report = await chain.read(audit.verify)

    assert report.problem.startswith(problem)


async def test_a_row_rewritten_with_its_own_hash_breaks_the_next(chain: Store) -> None:
    def forge(session: Session) -> None:
        row = session.get_one(TransitionRow, 7)
        row.content = row.content.replace("stalled", "nothing")
        row.hash = audit.chained(7, row.previous_hash, row.content)

    await chain.write(forge)

    report = await chain.read(audit.verify)

    assert report.problem.startswith("row 8 does not follow row 7")


async def test_content_that_is_no_transition_is_found(chain: Store) -> None:
    def forge(session: Session) -> None:
        row = session.get_one(TransitionRow, 10)
        row.content = "{}"
        row.hash = audit.chained(10, row.previous_hash, row.content)

    await chain.write(forge)

    assert (await chain.read(audit.verify)).problem.startswith("row 10 cannot be read")


async def test_history_comes_back_whole_newest_first_in_pages(chain: Store) -> None:
    other = a_transition(11, key=Key("code"))
    await chain.write(audit.append, [other])

    first = await chain.read(audit.history, limit=3)
    second = await chain.read(audit.history, before=first[-1].number, limit=3)
    of_tier = await chain.read(audit.history, tier="code")
    of_key = await chain.read(audit.history, key=Key("chat", "a"), limit=1)

    assert [entry.number for entry in first + second] == [11, 10, 9, 8, 7, 6]
    assert [entry.transition for entry in of_tier] == [other]
    assert [entry.transition for entry in of_key] == [a_transition(10)]


async def test_an_export_can_be_checked_without_the_store(chain: Store) -> None:
    lines = await chain.read(audit.export, after=2, limit=5)

    previous = json.loads(lines[0])["previous_hash"]
    for line in lines:
        row = json.loads(line)
        content = line.split('"transition":', 1)[1][:-1]
        hashed = f"{row['number']}\n{previous}\n{content}".encode()
        assert (row["previous_hash"], row["hash"]) == (
            previous,
            hashlib.sha256(hashed).hexdigest(),
        )
        previous = row["hash"]
    assert [json.loads(line)["number"] for line in lines] == [3, 4, 5, 6, 7]


async def test_retention_cuts_nothing_that_was_not_exported(chain: Store) -> None:
    swept = await sweep(chain, Ages(), now=START + timedelta(days=4000))

    assert swept.transitions == 0
    assert (await chain.read(audit.verify)).rows == 10


async def test_retention_cuts_up_to_an_exported_checkpoint(chain: Store) -> None:
    for number in (4, 7):
        await chain.write(audit.checkpoint, number=number, place="audit.jsonl", now=START)

    swept = await sweep(chain, Ages(), now=START + timedelta(days=4000))

    report = await chain.read(audit.verify)
    assert (swept.transitions, report.problem, report.first, report.last) == (7, "", 8, 10)
    newest = await chain.read(audit.newest_checkpoint)
    assert newest is not None
    assert newest.number == 7


async def test_retention_keeps_a_span_that_holds_a_young_row(chain: Store) -> None:
    for number in (4, 7):
        await chain.write(audit.checkpoint, number=number, place="audit.jsonl", now=START)
    age = Ages(transitions=60 * 60)

    swept = await sweep(chain, age, now=START + timedelta(hours=1, minutes=6, seconds=1))

    assert swept.transitions == 4  # rows 5 and 6 are old too, but 7 is not
    assert (await chain.read(audit.verify)).problem == ""


async def test_a_chain_that_was_cut_whole_goes_on(chain: Store) -> None:
    await chain.write(audit.checkpoint, number=10, place="audit.jsonl", now=START)
    await sweep(chain, Ages(), now=START + timedelta(days=4000))
    emptied = await chain.read(audit.verify)

    await chain.write(audit.append, [a_transition(11)])

    report = await chain.read(audit.verify)
    assert (emptied.problem, emptied.rows) == ("", 0)
    assert (report.problem, report.first, report.last) == ("", 11, 11)


async def test_a_checkpoint_needs_its_row(chain: Store) -> None:
    with pytest.raises(StoreError, match="row 99 is not in the store"):
        await chain.write(audit.checkpoint, number=99, place="x", now=START)


async def test_a_store_without_a_checkpoint_says_none(chain: Store) -> None:
    assert await chain.read(audit.newest_checkpoint) is None


async def test_a_lost_controller_row_is_said(chain: Store) -> None:
    await chain.write(execute, "DELETE FROM controller")

    with pytest.raises(StoreError, match="table controller has lost its row"):
        await chain.write(audit.append, [a_transition(11)])
