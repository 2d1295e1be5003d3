"""Sources that have something to remember keep it; the rest, and rubbish, change nothing."""

from __future__ import annotations

import logging

import httpx2
import pytest

from collector.source_memories import restore, saved
from collector.sources.server.canary import CanaryConfig, CanarySource
from collector.sources.server.canary_answers import Reference
from collector.sources.server.facts import FactsConfig
from detectors.records import Identity
from tests.collector.sources.engine_server import place, tools

pytestmark = pytest.mark.anyio
REFERENCE = Reference("key", Identity(), ({"a": -0.1},), 0.0)


async def a_canary(client: httpx2.AsyncClient) -> CanarySource:
    return CanarySource(CanaryConfig(), place("http://127.0.0.1:9"), tools(client))


async def test_what_one_run_saved_the_next_takes_over() -> None:
    async with httpx2.AsyncClient() as client:
        before, after = await a_canary(client), await a_canary(client)
        facts = FactsConfig().build(place("http://127.0.0.1:9"), tools(client))
        before.reference = REFERENCE

        kept = saved([before, facts, await a_canary(client)])
        restore([after, facts], kept)

    assert list(kept) == ["source:canary:chat/a"]
    assert after.reference == REFERENCE


async def test_rubbish_is_logged_and_left_aside(caplog: pytest.LogCaptureFixture) -> None:
    async with httpx2.AsyncClient() as client:
        canary = await a_canary(client)
        canary.reference = REFERENCE
        with caplog.at_level(logging.WARNING):
            restore([canary], {"source:canary:chat/a": b"rubbish", "source:other": b""})

    assert canary.reference == REFERENCE
    assert [it.message for it in caplog.records] == ["memory of a source left aside"]
