"""GET /v1/annotations over running parts."""

from __future__ import annotations

from datetime import timedelta

import pytest

from collector.store import annotations as stored
from collector.store.annotations import Annotation
from tests.builders import START
from tests.collector.api.conftest import Asked

pytestmark = pytest.mark.anyio


async def test_annotations_are_listed_newest_first_and_can_be_narrowed(asked: Asked) -> None:
    rows = [
        Annotation(START + timedelta(hours=n), "chat", target, "version", str(n), str(n + 1))
        for n, target in enumerate(["a", "b", "a"])
    ]
    await asked.service.parts.store.write(stored.record, rows)

    every = (await asked.client.get("/v1/annotations")).json()
    of_a = (await asked.client.get("/v1/annotations?tier=chat&target=a&limit=1")).json()
    since = (START + timedelta(hours=1)).isoformat()
    lately = (await asked.client.get("/v1/annotations", params={"since": since})).json()

    assert [it["after"] for it in every] == ["3", "2", "1"]
    assert [(it["target"], it["before"], it["after"]) for it in of_a] == [("a", "2", "3")]
    assert [it["after"] for it in lately] == ["3", "2"]
    assert set(every[0]) == {
        *("id", "at", "tier", "target", "what", "before", "after", "first", "times", "finding")
    }


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "since=2026-11-29T12:00:00", "since=x"])
async def test_a_bad_question_is_refused(asked: Asked, query: str) -> None:
    assert (await asked.client.get(f"/v1/annotations?{query}")).status_code == 422
