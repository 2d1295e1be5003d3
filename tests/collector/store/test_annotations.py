"""Annotations are added, listed newest first, and removed by age."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from collector.store import annotations as stored
from collector.store import retention
from collector.store.annotations import Annotation, Chosen
from collector.store.retention import Ages, Swept, sweep
from collector.store.session import StoreError
from collector.store.store import Store
from tests.builders import START

pytestmark = pytest.mark.anyio


def one(number: int, *, target: str = "a", what: str = "version") -> Annotation:
    return Annotation(
        at=START + timedelta(days=number),
        tier="chat",
        target=target,
        what=what,
        before=str(number - 1),
        after=str(number),
        first=number == 0,
        times=number + 1,
        finding="look" if number else "",
    )


async def test_what_is_written_is_read_back_newest_first_page_by_page(store: Store) -> None:
    written = [one(number) for number in range(5)]
    await store.write(stored.record, written)

    first = await store.read(stored.history, Chosen(), limit=3)
    rest = await store.read(stored.history, Chosen(), before=first[-1].id)

    assert [replace(it, id=0) for it in (*first, *rest)] == written[::-1]


async def test_they_can_be_narrowed(store: Store) -> None:
    await store.write(stored.record, [one(0), one(1, target="b"), one(2)])

    of_b = await store.read(stored.history, Chosen(tier="chat", target="b"))
    lately = await store.read(stored.history, Chosen(since=START + timedelta(days=1)))
    elsewhere = await store.read(stored.history, Chosen(tier="other"))

    assert [it.after for it in of_b] == ["1"]
    assert [it.after for it in lately] == ["2", "1"]
    assert elsewhere == []


async def test_the_latest_of_each_is_what_is_known(store: Store) -> None:
    rows = [one(0), one(1), one(2, target="b"), one(3, what="dtype")]
    await store.write(stored.record, rows)

    found = await store.read(stored.latest)

    assert [(it.target, it.what, it.after) for it in found] == [
        ("a", "dtype", "3"),
        ("b", "version", "2"),
        ("a", "version", "1"),
    ]


async def test_old_ones_go_chunk_by_chunk(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "CHUNK", 2)
    await store.write(stored.record, [one(number) for number in range(6)])

    ages = Ages(annotations=1.5 * 86_400)
    swept = await sweep(store, ages, now=START + timedelta(days=5))

    assert swept == Swept(annotations=4)
    assert len(await store.read(stored.history, Chosen())) == 2


async def test_long_words_are_cut_and_a_long_name_is_refused(store: Store) -> None:
    await store.write(stored.record, [replace(one(1), after="x" * 5000)])

    (row,) = await store.read(stored.history, Chosen())

    assert len(row.after) == 2000
    with pytest.raises(StoreError, match="at most 64 fit"):
        await store.write(stored.record, [replace(one(1), what="x" * 65)])
