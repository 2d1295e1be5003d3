"""What is old goes, what is open or young stays, in bounded chunks."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from alerts.breaker.records import DeliveryStatus, Key
from collector.store import deliveries, overrides, retention, verdicts
from collector.store.retention import Ages, Swept, sweep
from collector.store.store import Store
from collector.store.verdicts import Chosen, KeptVerdict
from tests.collector.store.test_verdicts import a_verdict
from tests.contracts.journal_bench import AT, a_delivery, an_override

pytestmark = pytest.mark.anyio

DAY = 86_400


async def test_an_empty_store_has_nothing_to_sweep(store: Store) -> None:
    assert await sweep(store, Ages(), now=AT) == Swept()


async def test_old_verdicts_go_chunk_by_chunk(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "CHUNK", 3)
    rows = [KeptVerdict(a_verdict(seconds=DAY * day), changed=True) for day in range(10)]
    await store.write(verdicts.record, rows)

    swept = await sweep(store, Ages(verdicts=2 * DAY), now=rows[-1].verdict.at)

    left = await store.read(verdicts.history, Chosen())
    assert swept == Swept(verdicts=7)
    assert [row.verdict.at for row in left] == [row.verdict.at for row in rows[:-4:-1]]


@pytest.mark.parametrize(
    ("days", "left"),
    [
        (6, {"pending", "confirmed", "superseded", "dead"}),
        (8, {"pending", "dead"}),
        (31, {"pending"}),
    ],
)
async def test_settled_deliveries_go_and_open_ones_stay(
    store: Store, days: int, left: set[str]
) -> None:
    for status in left | {"pending", "confirmed", "superseded", "dead"}:
        row = replace(a_delivery(status, endpoint=status), status=DeliveryStatus(status))
        await store.write(deliveries.add, row)

    await sweep(store, Ages(), now=AT + timedelta(days=days))

    assert {row.id for row in await store.read(deliveries.with_status)} == left


async def test_old_override_requests_go(store: Store) -> None:
    await store.write(overrides.leave, Key("chat"), an_override())
    await store.write(overrides.leave, Key("code"), an_override(since=AT + timedelta(days=29)))

    swept = await sweep(store, Ages(), now=AT + timedelta(days=31))

    assert swept == Swept(overrides=1)
    assert [row.key for row in await store.read(overrides.waiting)] == [Key("code")]
