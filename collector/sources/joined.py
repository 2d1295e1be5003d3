"""One target, several sources: what is known of it beside its engine's page joins each scrape.

A target's other sources (its GPUs, its allocator, its container, its logs) are read on schedules of
their own. Their newest values join the next scrape of the engine's page, so that a detector sees
one reading a scrape with everything in it, and an evaluation stays a completed scrape.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol, runtime_checkable

from collector.sources.protocols import ScrapeStats, Source
from collector.sources.server.changes import another_server
from detectors.records import Absence, Identity, Reading
from detectors.remarks import Finding, Noticed

LIMITS: Final = frozenset({"request_slots", "kv_cache_capacity_tokens", "batch_token_budget"})
_OWN: Final = frozenset({"up", "scrape_seconds"})
FACTS: Final = "facts"  # the kind of the source that asks the server about itself
MOST_UNSAID: Final = 100
STALE_INTERVALS: Final = 3.0  # reads missed before a value is no longer said


class MainSource(Source, Protocol):
    """The source whose scrapes are the evaluations of a target."""

    def learn(self, limits: Mapping[str, float]) -> None:
        """Take the limits that other sources of the target know now, none if there are none."""
        ...


@runtime_checkable
class Noticing(Protocol):
    """A source that wants to see every joined reading: to ask anew, or to spare a busy engine."""

    def notice(self, reading: Reading) -> None: ...


@dataclass(frozen=True, slots=True)
class Companion:
    """Another source of the same target, and how often it is read."""

    source: Source
    interval_seconds: float


class JoinedSource:
    """A target's engine page together with the newest reading of each of its companions."""

    def __init__(
        self,
        main: MainSource,
        companions: Sequence[Companion],
        *,
        monotonic: Callable[[], float],
    ) -> None:
        self.name = main.name
        self.companions = tuple(companions)
        self._noticing = [it.source for it in companions if isinstance(it.source, Noticing)]
        self._main = main
        self._monotonic = monotonic
        self._limits: Mapping[str, float] = {}
        self._newest: dict[int, Reading] = {}  # by the companion's place
        self._unsaid: dict[int, tuple[Noticed, ...]] = {}  # changes that no scrape has carried yet

    async def read(self) -> Reading:
        """Scrape the engine's page, and join what the companions know."""
        reading = self._join(await self._main.read())
        for source in self._noticing:
            source.notice(reading)
        return reading

    async def keep(self, place: int, reading: Reading) -> None:
        """Take the reading of `companions[place]`; it is said with the next scrape."""
        self._newest[place] = reading
        self._unsaid[place] = (*self._unsaid.get(place, ()), *reading.noticed)[-MOST_UNSAID:]
        told = [kept.values.items() for _, kept in sorted(self._newest.items(), reverse=True)]
        limits = {it: value for values in told for it, value in values if it in LIMITS}
        if limits != self._limits:  # of several the first in the configuration counts
            self._limits = limits
            self._main.learn(limits)

    def stats(self) -> ScrapeStats:
        return self._main.stats()

    async def close(self) -> None:
        await self._main.close()
        for companion in self.companions:
            await companion.source.close()

    def _join(self, main: Reading) -> Reading:
        whole = _Whole(main)
        moment = self._monotonic()
        for place, reading in sorted(self._newest.items()):
            whole.noticed += self._unsaid.pop(place, ())
            age = reading.age_seconds + moment - reading.monotonic_seconds
            if age > STALE_INTERVALS * self.companions[place].interval_seconds:
                whole.miss(reading)
            else:
                whole.add(reading, age)
        return whole.reading()


class _Whole:
    """A reading that others are added to; what it says itself is never overruled."""

    def __init__(self, main: Reading) -> None:
        self._main = main
        self._values, self._parts = dict(main.values), dict(main.parts)
        self._histograms, self._absent = dict(main.histograms), dict(main.absent)
        self._ages = dict(main.ages)
        self._findings, self._processes = list(main.findings), list(main.processes)
        self._identity = main.identity
        self.noticed = [*main.noticed, *([Noticed("restart")] if main.restarted else ())]

    def add(self, reading: Reading, age: float) -> None:
        """Add what `reading`, `age` seconds old, knows beyond what is known."""
        self._findings += (*reading.findings, *_trouble(reading))
        self._processes += reading.processes
        if reading.source == FACTS:
            self._identify(reading.identity)
        for signal in self._new(reading):
            if signal in reading.absent:
                self._excuse(signal, reading.absent[signal])
                continue
            self._absent.pop(signal, None)
            self._ages[signal] = age
            if signal in reading.histograms:
                self._histograms[signal] = reading.histograms[signal]
                continue
            self._values[signal] = reading.values[signal]
            if signal in reading.parts:
                self._parts[signal] = reading.parts[signal]

    def _identify(self, told: Identity) -> None:
        """Take what the server says of itself: that is exact, a page's version is a span.

        A page of another engine or version is of a server that has not been asked yet.
        """
        page = self._identity
        if another_server(replace(page, model=""), told):
            return
        self._identity = Identity(
            told.engine or page.engine, told.version or page.version, told.model or page.model
        )

    def _excuse(self, signal: str, why: Absence) -> None:
        """Say why a signal has no value; that a source does not know it is the weakest reason."""
        if why is not Absence.NO_FAMILY or signal not in self._absent:
            self._absent[signal] = why

    def miss(self, reading: Reading) -> None:
        """Say of what `reading` told that nobody has told it lately."""
        for signal in self._new(reading):
            self._absent[signal] = Absence.STALE

    def _new(self, reading: Reading) -> frozenset[str]:
        return reading.known - _OWN - self._values.keys() - self._histograms.keys()

    def reading(self) -> Reading:
        return replace(
            self._main,
            values=self._values,
            parts=self._parts,
            histograms=self._histograms,
            absent=self._absent,
            ages=self._ages,
            findings=tuple(self._findings),
            noticed=tuple(self.noticed),
            processes=tuple(self._processes),
            identity=self._identity,
        )


def _trouble(reading: Reading) -> tuple[Finding, ...]:
    """Return the finding that a companion could not be read, with its reason.

    None about what every target is asked, wanted or not: many pages have no server behind them.
    """
    if reading.up or reading.source == FACTS:
        return ()
    signal = min(reading.known - _OWN, default="up")
    text = f"its source {reading.source!r} cannot be read: {reading.problem}"
    return (Finding("source_failed", signal, text),)
