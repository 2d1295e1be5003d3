"""What the service needs from a source, and what a source is built from; nothing inherits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

import httpx2

from collector.sources.page.keys import SeriesPools
from detectors.records import Reading


@dataclass(frozen=True, slots=True)
class ScrapeStats:
    """Counts of one source since its start, for the exporter.

    `outcomes` counts reads by what came of them (`fetch.Outcome`), `skipped` the lines and values
    not used, `resets` the reads that showed a restart. `aliases` says which families fed each
    signal of the last page.
    """

    outcomes: Mapping[str, int] = field(default_factory=dict)
    skipped: Mapping[str, int] = field(default_factory=dict)
    resets: int = 0
    aliases: Mapping[str, str] = field(default_factory=dict)
    series: int = 0
    series_refused: int = 0


class Readable(Protocol):
    """Anything that yields a reading when asked; trouble of what it reads is in the reading."""

    @property
    def name(self) -> str: ...

    async def read(self) -> Reading: ...


class Source(Readable, Protocol):
    """What the service reads: it also tells what came of its reads, and can be closed."""

    def stats(self) -> ScrapeStats: ...

    async def close(self) -> None:
        """Let go of what is held open; the source is not read again."""
        ...


@dataclass(frozen=True, slots=True)
class Place:
    """What a source speaks of: a target of a tier, or a neighbour under its own id.

    `url` is the target's address, empty for a neighbour; `headers` are what its server wants with
    every request (credentials), as for its page.
    """

    tier: str
    target: str
    url: str = ""
    neighbour: bool = False
    headers: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)


@dataclass(frozen=True, slots=True)
class Tools:
    """What every source is given: one shared client, the clocks, the bound of one read.

    `pools` is what sources of like pages know together.
    """

    client: httpx2.AsyncClient
    now: Callable[[], datetime]
    monotonic: Callable[[], float]
    timeout_seconds: float = 10.0
    pools: SeriesPools = field(default_factory=SeriesPools)


class SourceSettings(Protocol):
    """The configuration of one source, beside its code; `build` opens nothing."""

    @property
    def kind(self) -> str: ...

    @property
    def interval(self) -> float:
        """Time between two reads in seconds."""
        ...

    def build(self, place: Place, tools: Tools) -> Source: ...
