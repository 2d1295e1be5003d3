"""What every source owes the pipeline: a reading for each read, whatever its target does.

Each kind of source joins `KINDS` with a way to make it over a target in a given state, and `OFFERS`
with the signals that it speaks of.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from time import monotonic
from typing import TypeAlias

import httpx2
import pytest

from collector.sources.engine.engines import ENGINES
from collector.sources.engine.understanding import offered
from collector.sources.protocols import Source
from collector.sources.stored.server import StoredServer
from collector.sources.stored.settings import PrometheusConfig
from detectors.records import Absence, Reading
from detectors.signals import SIGNALS, Kind
from tests.collector.sources.fake_prometheus import FakePrometheus, a_server, a_stored
from tests.collector.sources.reading_pages import body
from tests.collector.sources.servers import Answer, a_source, hanging_up, serving, text, zipped

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
Make: TypeAlias = Callable[[str], AbstractAsyncContextManager[Source]]

STATES: Mapping[str, Callable[[], Answer]] = {
    "load": lambda: text(body("vllm-0.32.0-load.txt")),
    "tgi": lambda: text(body("tgi-3.3-full-2025-09.txt")),
    "sglang": lambda: text(body("sglang-2025-docs-full.txt")),
    "triton": lambda: text(body("triton-trtllm-23.11-full.txt")),
    "llamacpp": lambda: text(body("llamacpp-2026.txt")),
    "summaries": lambda: text(body("tgi-0.4-summaries-expired-window.txt")),
    "idle v0": lambda: text(body("vllm-0.8.5.post2-idle.txt")),
    "empty": lambda: text(b""),
    "cut": lambda: text(body("vllm-0.2.3-aioprometheus-truncated.txt")),
    "nan": lambda: text(b"vllm:num_requests_running NaN\nvllm:prompt_tokens_total +Inf\n"),
    "gone": lambda: hanging_up,
    "failing": lambda: text(b"", status="500 Oops"),
    "html": lambda: text(b"<html></html>"),
    "broken": lambda: zipped(b"vllm:num_requests_running 1\n", keep=12),
}
BAD = {"gone", "failing", "html", "broken"}


@asynccontextmanager
async def scrape(state: str) -> AsyncIterator[Source]:
    async with serving(STATES[state]()) as server, httpx2.AsyncClient() as client:
        yield a_source(server.url, client)


@asynccontextmanager
async def stored(state: str) -> AsyncIterator[Source]:
    """Read the same page from a server that has scraped it; a bad answer is that server's."""
    fake, match = FakePrometheus(), {"instance": "a:8000"}
    if state in BAD:
        async with serving(STATES[state]()) as server, httpx2.AsyncClient() as client:
            config = PrometheusConfig(url=server.url)
            asked = StoredServer("main", config, client=client, monotonic=monotonic)
            yield a_stored(asked, monotonic, match=match, engine="auto")
        return
    async with serving(STATES[state]()) as server, httpx2.AsyncClient() as client:
        fake.hold_page((await client.get(server.url)).content, **match)
    yield a_stored(a_server(fake, monotonic), monotonic, match=match, engine="auto")


KINDS: Mapping[str, Make] = {"scrape": scrape, "prometheus": stored}
OFFERS: Mapping[str, frozenset[str]] = dict.fromkeys(
    KINDS, offered(ENGINES) | {"up", "scrape_seconds"}
)


@pytest.fixture(params=sorted(KINDS))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def make(kind: str) -> Make:
    return KINDS[kind]


def signals_with_values(reading: Reading) -> set[str]:
    return reading.values.keys() | reading.histograms.keys()


@pytest.mark.parametrize("state", STATES)
async def test_a_read_never_raises_and_says_who_and_when(make: Make, state: str) -> None:
    async with make(state) as source:
        reading = await source.read()

    assert (reading.tier, reading.target) == ("chat", "a")
    assert reading.source
    assert source.name.startswith(reading.source)
    assert reading.at.utcoffset() == timedelta(0)
    assert reading.scrape_seconds >= 0.0
    assert reading.values["scrape_seconds"] == reading.scrape_seconds


@pytest.mark.parametrize("state", STATES)
async def test_a_failed_read_is_down_with_a_problem_in_words(make: Make, state: str) -> None:
    async with make(state) as source:
        reading = await source.read()

    assert reading.up == (state not in BAD)
    assert reading.values["up"] == float(reading.up)
    if not reading.up:
        assert len(reading.problem.split()) > 2
        assert set(reading.absent.values()) == {Absence.SCRAPE_FAILED}
        assert signals_with_values(reading) == {"up", "scrape_seconds"}


@pytest.mark.parametrize("state", STATES)
async def test_every_signal_it_offers_has_a_value_or_a_reason(
    make: Make, kind: str, state: str
) -> None:
    async with make(state) as source:
        reading = await source.read()

    assert reading.known == OFFERS[kind] <= SIGNALS.keys()
    assert not signals_with_values(reading) & reading.absent.keys()


@pytest.mark.parametrize("state", STATES)
async def test_values_are_finite_and_of_the_kind_that_the_table_says(
    make: Make, state: str
) -> None:
    async with make(state) as source:
        reading = await source.read()

    assert all(math.isfinite(value) for value in reading.values.values())
    assert all(SIGNALS[name].kind is not Kind.HISTOGRAM for name in reading.values)
    assert all(SIGNALS[name].kind is Kind.HISTOGRAM for name in reading.histograms)
    for histogram in reading.histograms.values():
        assert list(histogram.bounds) == sorted(set(histogram.bounds))
        assert list(histogram.counts) == sorted(histogram.counts)
        assert len(histogram.counts) == len(histogram.bounds)
    for signal, parts in reading.parts.items():
        assert SIGNALS[signal].label
        assert math.fsum(parts.values()) == reading.values[signal]


@pytest.mark.parametrize("state", STATES)
async def test_findings_and_quantiles_are_complete(make: Make, state: str) -> None:
    async with make(state) as source:
        await source.read()
        reading = await source.read()

    assert reading.quantiles.keys() <= reading.values.keys()
    assert all(it.signal in SIGNALS and it.code and it.text for it in reading.findings)
    assert len({(it.code, it.signal) for it in reading.findings}) == len(reading.findings)


@pytest.mark.parametrize("state", ["load", "tgi", "sglang", "triton", "llamacpp"])
async def test_reading_twice_changes_no_counter_of_a_still_target(make: Make, state: str) -> None:
    async with make(state) as source:
        first = await source.read()
        second = await source.read()

    counters = {it for it in first.values if SIGNALS[it].kind is Kind.COUNTER}
    assert counters
    assert {it: second.values[it] for it in counters} == {it: first.values[it] for it in counters}
    assert second.histograms == first.histograms
    assert not second.restarted
    assert second.monotonic_seconds > first.monotonic_seconds
