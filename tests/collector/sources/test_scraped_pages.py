"""Scrapes over real connections, one after another: quantiles, findings and reasons in readings."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import httpx2
import pytest

from collector.sources.other_pages import PageConfig
from collector.sources.protocols import Place, Tools
from collector.sources.scrape import ScrapeSource, ScrapeTarget
from detectors.records import Absence, Reading
from detectors.signals import SIGNALS
from tests.collector.sources.reading_pages import body, scrapes
from tests.collector.sources.servers import NOW, serving, text

pytestmark = pytest.mark.anyio


@pytest.fixture
async def client() -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient() as made:
        yield made


async def readings(client: httpx2.AsyncClient, pages: Sequence[bytes]) -> list[Reading]:
    """Return one reading of each page, five seconds apart by the source's clock."""
    clock = iter(range(0, 10_000_000, 1))

    async def in_turn(writer: asyncio.StreamWriter) -> None:
        await text(pages[len(server.requests) - 1])(writer)

    async with serving(in_turn) as server:
        source = ScrapeSource(
            ScrapeTarget("chat", "a", server.url),
            client=client,
            now=lambda: NOW,
            monotonic=lambda: 2.5 * next(clock),  # asked twice a scrape
        )
        return [await source.read() for _ in pages]


def codes(reading: Reading) -> set[str]:
    return {finding.code for finding in reading.findings}


async def test_a_recorded_run_has_quantiles_with_their_buckets(client: httpx2.AsyncClient) -> None:
    pages = [page.encode() for page in scrapes("0.32.0-load")]

    found = await readings(client, pages)

    assert found[0].absent["ttft_p99_seconds"] is Absence.NO_SAMPLE
    last = found[-1]
    for gauge in ("ttft_p50_seconds", "ttft_p99_seconds", "e2e_p99_seconds"):
        quantile = last.quantiles[gauge]
        assert last.values[gauge] == quantile.value
        assert quantile.lower <= quantile.value <= quantile.upper
        assert quantile.samples >= 20.0
        assert quantile.window_seconds <= 65.0
    assert last.quantiles.keys() <= SIGNALS.keys()


async def test_a_page_without_an_engine_is_up_with_a_finding(client: httpx2.AsyncClient) -> None:
    (reading,) = await readings(client, [b""])

    assert reading.up
    assert codes(reading) == {"no_engine_data"}
    assert reading.absent["requests_running"] is Absence.NO_DATA


async def test_what_a_version_never_had_says_so(client: httpx2.AsyncClient) -> None:
    pages = [body("vllm-0.9.2.post2-load.txt"), body("tgi-3.3-full-2025-09.txt")]

    old, tgi = await readings(client, pages)

    assert old.absent["requests_rejected_total"] is Absence.NOT_IN_VERSION
    assert old.absent["batch_tokens"] is Absence.NOT_IN_VERSION
    assert tgi.absent["ttft_p99_seconds"] is Absence.NOT_IN_VERSION
    assert tgi.absent["corrupted_requests_total"] is Absence.NOT_IN_VERSION


async def test_the_limits_learned_last_hold_and_configured_ones_win(
    client: httpx2.AsyncClient,
) -> None:
    page = text(body("tgi-1.4-loaded-then-idle-no-help.txt"))
    async with serving(page) as server:
        target = ScrapeTarget("chat", "a", server.url, request_slots=64)
        source = ScrapeSource(target, client=client, now=lambda: NOW, monotonic=lambda: 0.0)
        source.learn({"batch_token_budget": 32_000.0, "request_slots": 128.0})
        reading = await source.read()
        source.learn({"request_slots": 128.0})  # another server, that does not tell it
        later = await source.read()

    assert reading.values["request_slots"] == 64.0
    assert reading.values["batch_token_budget"] == 32_000.0
    assert reading.values["kv_cache_capacity_tokens"] == 32_000.0
    assert reading.values["kv_cache_usage_ratio"] == reading.values["batch_tokens"] / 32_000.0
    assert "kv_capacity_unknown" not in codes(reading)
    assert "batch_token_budget" not in later.values


async def test_a_page_that_is_no_engines_is_not_asked_for_one(client: httpx2.AsyncClient) -> None:
    config = PageConfig.model_validate(
        {"url": "http://127.0.0.1:1", "signals": {"client_queue_size": "queue_size"}}
    )
    async with serving(text(b"queue_size 3\n")) as server:
        config = config.model_copy(update={"url": server.url})
        tools = Tools(client=client, now=lambda: NOW, monotonic=lambda: 0.0)
        reading = await config.build(Place("chat", "b", neighbour=True), tools).read()

    assert reading.values["client_queue_size"] == 3.0
    assert reading.findings == ()
