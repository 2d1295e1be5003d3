"""Neighbours for tests: settings built over a server of the loopback, and the pages they read."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic

import httpx2

from collector.sources.protocols import Place, Source, SourceSettings, Tools
from detectors.records import Reading
from detectors.signals import READING_SIGNALS, SIGNALS, Kind
from tests.collector.sources.servers import NOW, Answer, serving, text

FOLDER = Path(__file__).parents[2] / "fixtures" / "neighbours"
PLACE = Place("chat", "beside", neighbour=True)
OWN = {"up", "scrape_seconds"}


def page(name: str) -> bytes:
    """Return a recorded or written page."""
    return (FOLDER / name).read_bytes()


def json_answer(body: bytes, *, status: str = "200 OK", headers: str = "") -> Answer:
    """Answer with JSON and other headers."""
    return text(body, status=status, headers=f"Content-Type: application/json\r\n{headers}")


@asynccontextmanager
async def built(settings: SourceSettings, *, within: float = 5.0) -> AsyncIterator[Source]:
    """Yield the source of some settings with a client of its own."""
    async with httpx2.AsyncClient() as client:
        yield settings.build(PLACE, Tools(client, lambda: NOW, monotonic, within))


async def read_once(settings: SourceSettings) -> Reading:
    """Read a neighbour once."""
    async with built(settings) as source:
        return await source.read()


@asynccontextmanager
async def at(answer: Answer) -> AsyncIterator[str]:
    """Yield the address of a server that answers so."""
    async with serving(answer) as server:
        yield server.url


def codes(reading: Reading) -> set[str]:
    """Return the codes of a reading's findings."""
    return {finding.code for finding in reading.findings}


def check_contract(reading: Reading, offered: set[str]) -> None:
    """Assert what every reading of a neighbour owes."""
    known = {signal.name for signal in READING_SIGNALS}
    assert (reading.tier, reading.target, reading.neighbour) == ("chat", "beside", True)
    assert reading.known <= known
    assert offered <= reading.known
    assert not (reading.values.keys() | reading.histograms.keys()) & reading.absent.keys()
    assert all(SIGNALS[it].kind is Kind.HISTOGRAM for it in reading.histograms)
    assert reading.values["up"] == float(reading.up)
    if not reading.up:
        assert reading.values.keys() == OWN
        assert len(reading.problem.split()) > 2
