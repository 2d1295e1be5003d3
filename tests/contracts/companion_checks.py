"""What the contract tests of companions share: sources over a case, and what a reading owes."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Final

import httpx2
import pytest

from collector.sources.page.series import MAX_PARTS
from collector.sources.protocols import Place, Source, SourceSettings, Tools
from detectors.records import Absence, Reading
from detectors.signals import READING_SIGNALS, SIGNALS, Kind
from tests.collector.sources.engine_server import a_scrape
from tests.collector.sources.servers import NOW
from tests.contracts.companions import CASES, Case, Where, World, nothing, world

OWN: Final = frozenset({"up", "scrape_seconds"})
STATED: Final = frozenset(  # what a server may have said of itself, in its log too
    {"request_slots", "kv_cache_capacity_tokens", "batch_token_budget", "context_tokens"}
)
TICK: Final = 2.0**-10  # exact in binary, so that equal spans are equal
every_case = pytest.mark.parametrize("case", CASES, ids=str)


@dataclass
class Clock:
    """Intervals that go on by one tick with every look at the clock."""

    seconds: float = 1000.0

    def __call__(self) -> float:
        self.seconds += TICK
        return self.seconds


def place(where: Where, beside: bool) -> Place:
    return Place("chat", "a", "" if beside else where.url, neighbour=beside)


@asynccontextmanager
async def built(
    config: SourceSettings, where: Where, *, beside: bool = False, within: float = 5.0
) -> AsyncIterator[Source]:
    """Build a source that has heard of a calm engine, and close it twice at the end."""
    async with httpx2.AsyncClient(trust_env=False, verify=False) as client:  # loading CAs is slow
        tools = Tools(client, lambda: NOW, Clock(), within)
        source = config.build(place(where, beside), tools)
        hear = getattr(source, "notice", None)
        if hear is not None:
            hear(a_scrape())
        try:
            yield source
        finally:
            await source.close()
            await source.close()


@asynccontextmanager
async def standing(
    case: Case, *, beside: bool = False, within: float = 5.0
) -> AsyncIterator[tuple[World, Source]]:
    """Put up what a case reads, and its source."""
    async with world(case) as found:
        config = case.settings(found.where)
        async with built(config, found.where, beside=beside, within=within) as source:
            yield found, source


def check(reading: Reading, kind: str, offered: frozenset[str], *, beside: bool) -> None:
    """Assert what any reading owes; limits may come on top, where a server has stated them."""
    assert (reading.source, reading.tier, reading.target) == (kind, "chat", "a")
    assert reading.neighbour is beside
    assert (reading.at, reading.scrape_seconds >= 0.0) == (NOW, True)
    assert reading.values["up"] == float(reading.up)
    assert (reading.known - OWN) | STATED == offered | STATED
    assert offered <= reading.known <= {row.name for row in READING_SIGNALS}
    told = reading.values.keys() | reading.histograms.keys()
    assert not told & reading.absent.keys()
    assert all(isinstance(it, Absence) for it in reading.absent.values())
    assert all(SIGNALS[it].kind is not Kind.HISTOGRAM for it in reading.values)
    assert all(SIGNALS[it].kind is Kind.HISTOGRAM for it in reading.histograms)
    check_numbers(reading)
    assert all(it.code and it.text and it.signal in {*SIGNALS, ""} for it in reading.findings)
    assert len({(it.code, it.signal) for it in reading.findings}) == len(reading.findings)


def check_numbers(reading: Reading) -> None:
    assert all(math.isfinite(value) for value in reading.values.values())
    for signal, parts in reading.parts.items():
        assert SIGNALS[signal].label
        assert signal in reading.values
        assert len(parts) <= MAX_PARTS
        assert all(math.isfinite(value) for value in parts.values())
    for histogram in reading.histograms.values():
        assert list(histogram.counts) == sorted(histogram.counts)
        assert all(map(math.isfinite, (*histogram.counts, histogram.total, histogram.sum)))


async def read_of_nothing(case: Case, *, beside: bool = False) -> Reading:
    with nothing(case) as where:
        async with built(case.settings(where), where, beside=beside) as source:
            return await source.read()


def counted(reading: Reading) -> dict[str, float]:
    """Return what must never fall: counters, each of their parts, and totals of histograms."""
    names = [it for it in reading.values if SIGNALS[it].kind is Kind.COUNTER]
    found = {it: reading.values[it] for it in names}
    for name in names:
        parts = reading.parts.get(name, {})
        found |= {f"{name}/{part}": value for part, value in parts.items()}
    return found | {it: value.total for it, value in reading.histograms.items()}


def plain(reading: Reading) -> Reading:
    """Return a reading without its times."""
    values = {it: value for it, value in reading.values.items() if it not in OWN}
    return replace(reading, values=values, monotonic_seconds=0.0, scrape_seconds=0.0, noticed=())
