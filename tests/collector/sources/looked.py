"""Clocks and places for sources that look at this machine or at a cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import httpx2

from collector.sources.protocols import Place, Source, SourceSettings, Tools
from detectors.records import Absence, Reading
from detectors.remarks import Finding
from tests.collector.sources.servers import NOW

FIXTURES = Path(__file__).parents[2] / "fixtures"
PLACE = Place("chat", "a", "http://127.0.0.1:8000")


@dataclass
class Clock:
    """A clock of intervals that stands until it is moved."""

    seconds: float = 1000.0
    at: datetime = field(default=NOW)

    def __call__(self) -> float:
        return self.seconds


@asynccontextmanager
async def looking(
    settings: SourceSettings, clock: Clock | None = None, place: Place = PLACE
) -> AsyncIterator[Source]:
    """Build a source over a client of its own, and close both."""
    clock = clock or Clock()
    async with httpx2.AsyncClient() as client:
        tools = Tools(client, now=lambda: clock.at, monotonic=clock, timeout_seconds=5.0)
        source = settings.build(place, tools)
        try:
            yield source
        finally:
            await source.close()


def codes(reading: Reading) -> list[str]:
    """Return the codes of a reading's findings."""
    return [finding.code for finding in reading.findings]


def finding(reading: Reading, code: str) -> Finding:
    """Return the one finding with a code."""
    (found,) = [it for it in reading.findings if it.code == code]
    return found


def assert_all_offered_are_told(reading: Reading, offered: frozenset[str]) -> None:
    """Check that each offered signal has a value or a reason, and never both."""
    told = reading.values.keys() | reading.histograms.keys()
    assert offered <= told | reading.absent.keys()
    assert not told & reading.absent.keys()
    if not reading.up:
        assert set(reading.absent.values()) <= {Absence.SCRAPE_FAILED}
