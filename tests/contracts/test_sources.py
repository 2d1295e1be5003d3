"""What every source owes the pipeline: a reading for each read, whatever its target does.

Each kind of source joins `KINDS` with a way to make it over a target in a given state.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from typing import TypeAlias

import httpx2
import pytest

from collector.sources.protocols import Source
from detectors.records import Absence, Reading
from detectors.signals import READING_SIGNALS, SIGNALS, Kind
from tests.collector.sources.reading_pages import body
from tests.collector.sources.servers import Answer, a_source, hanging_up, serving, text, zipped

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
Make: TypeAlias = Callable[[str], AbstractAsyncContextManager[Source]]

STATES: Mapping[str, Callable[[], Answer]] = {
    "load": lambda: text(body("vllm-0.32.0-load.txt")),
    "tgi": lambda: text(body("tgi-3.3-full-2025-09.txt")),
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


KINDS: Mapping[str, Make] = {"scrape": scrape}


@pytest.fixture(params=sorted(KINDS))
def make(request: pytest.FixtureRequest) -> Make:
    return KINDS[request.param]


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
async def test_every_known_signal_has_a_value_or_a_reason(make: Make, state: str) -> None:
    async with make(state) as source:
        reading = await source.read()

    known = {signal.name for signal in READING_SIGNALS}
    assert signals_with_values(reading) | reading.absent.keys() == known
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


@pytest.mark.parametrize("state", ["load", "tgi"])
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
