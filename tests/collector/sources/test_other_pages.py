"""Anybody's page: the configuration names the families, the rest is as for an engine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from time import monotonic

import httpx2
import pytest
from pydantic import ValidationError

from collector.sources.other_pages import PageConfig
from collector.sources.protocols import Place, Tools
from detectors.records import Absence
from tests.collector.sources.servers import NOW, serving, text

pytestmark = pytest.mark.anyio

PAGE = b"""\
# TYPE shop_queue_depth gauge
shop_queue_depth{queue="chat"} 12
shop_queue_depth{queue="other"} 400
# TYPE shop_sent counter
shop_sent_total{queue="chat"} 1000
# TYPE mem gauge
mem{device="0",queue="chat"} 5
mem{device="1",queue="chat"} 7
"""


@pytest.fixture
async def tools(anyio_backend: str) -> AsyncIterator[Tools]:
    async with httpx2.AsyncClient(trust_env=False) as client:
        yield Tools(client, lambda: NOW, monotonic)


async def test_families_that_are_named_become_signals_of_the_series_that_match(
    tools: Tools,
) -> None:
    async with serving(text(PAGE)) as server:
        config = PageConfig(
            url=server.url,
            signals={
                "client_queue_size": "shop_queue_depth",
                "client_requests_total": "shop_sent_total",
                "gpu_memory_used_bytes": "mem",
                "client_retries_total": "shop_again_total",
            },
            match={"queue": "chat"},
        )
        source = config.build(Place("chat", "shop", neighbour=True), tools)
        reading = await source.read()

    assert reading.neighbour
    assert (reading.source, reading.target) == ("page", "shop")
    assert reading.values["client_queue_size"] == 12.0
    assert reading.values["client_requests_total"] == 1000.0
    assert reading.values["gpu_memory_used_bytes"] == 12.0
    assert reading.parts == {"gpu_memory_used_bytes": {"0": 5.0, "1": 7.0}}
    assert reading.absent == {"client_retries_total": Absence.NO_FAMILY}


async def test_a_page_that_is_not_there_is_a_reading_with_a_problem(tools: Tools) -> None:
    async with serving(text(b"gone", status="404 Not Found")) as server:
        config = PageConfig(url=server.url, signals={"client_queue_size": "depth"})
        reading = await config.build(Place("chat", "shop", neighbour=True), tools).read()

    assert not reading.up
    assert reading.neighbour
    assert reading.absent == {"client_queue_size": Absence.SCRAPE_FAILED}


def test_a_signal_that_is_none_is_refused() -> None:
    with pytest.raises(ValidationError, match="'queue_depth' is none of them"):
        PageConfig(url="http://127.0.0.1:1", signals={"queue_depth": "x"})
