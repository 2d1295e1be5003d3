"""The source of a target whose page another server scrapes and stores.

What comes back is made into the page again and goes the way of every page: same rows, same
counters and histograms, same reasons for what is absent.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Final

from collector.sources.engine.engines import engines_named
from collector.sources.engine.translation import Translation
from collector.sources.engine.understanding import Moment, Understanding, absences, offered
from collector.sources.fetch import FetchError, Outcome
from collector.sources.protocols import ScrapeStats
from collector.sources.scrape import ScrapeTarget
from collector.sources.stored.rebuilt import OriginMemory, Rebuilt, rebuilt
from collector.sources.stored.server import Selection, Share, StoredServer
from detectors.records import Absence, Identity, Reading

SOURCE: Final = "prometheus"
AGE_TOLERANCE_SECONDS: Final = 1.0
LARGE_SERIES: Final = 300  # about 3 ms of work
_OWN: Final = frozenset({"up", "scrape_seconds"})


class PromQLSource:
    """Reads one target from a server that stores its metrics; a `MainSource`."""

    def __init__(
        self,
        target: ScrapeTarget,
        server: StoredServer,
        *,
        match: Mapping[str, str],
        now: Callable[[], datetime],
        monotonic: Callable[[], float],
        wanted: frozenset[str] = frozenset(),
    ) -> None:
        """Make a source.

        Args:
            target: What is read; its `url` is only its address.
            server: Where it is read from, shared with other targets.
            match: Labels that all series of the target have there, and no others.
            now: The aware UTC clock.
            monotonic: The clock of intervals, s.
            wanted: Signals of the detectors beside the known ones, whose absence is to be told.

        Raises:
            ValueError: If the target names an engine that is not in the table.
        """
        self.name = f"{SOURCE}:{target.tier}/{target.id}"
        self.server = server
        self._target = target
        self._match = dict(match)
        self._now = now
        self._monotonic = monotonic
        self._engines = engines_named(target.engine)
        self._wanted = offered(self._engines) | (wanted - _OWN)
        self._member = server.join(Selection(self._match, self._engines))
        self._memory = OriginMemory()
        self._pages = Understanding(self._engines)
        self._moment: float | None = None  # of the newest page taken in
        self._cut = False
        self._found = Translation()
        self._learned: Mapping[str, float] = {}
        self._outcomes: Counter[str] = Counter()
        self._skipped: Counter[str] = Counter()

    def learn(self, limits: Mapping[str, float]) -> None:
        """Take limits that the engine told elsewhere (`/info`); the configured ones win."""
        self._learned = limits

    async def close(self) -> None:
        """Leave the server's rounds."""
        await self.server.leave(self._member)

    def stats(self) -> ScrapeStats:
        """Return the counts so far."""
        return ScrapeStats(
            outcomes=dict(self._outcomes),
            skipped={reason: n for reason, n in self._skipped.items() if n},
            resets=self._pages.ledger.resets,
            aliases=dict(self._found.aliases),
            series=self._pages.ledger.tracked,
            series_refused=self._pages.ledger.refused,
        )

    async def read(self) -> Reading:
        """Take the newest that the server has; trouble is in the reading, never raised."""
        started = self._monotonic()
        try:
            share = await self.server.share(self._member)
        except FetchError as error:
            self._outcomes[error.outcome] += 1
            text = f"Prometheus server {self.server.name!r}: {error}"
            return self._failed(started, text)
        try:
            if len(share.found) > LARGE_SERIES:
                return await asyncio.to_thread(self._judged, share, started)
            return self._judged(share, started)
        except (ArithmeticError, LookupError, ValueError, RecursionError) as error:
            # Not known to happen, as for pages: one server's answer must not end the poll.
            self._outcomes[Outcome.UNUSABLE] += 1
            text = f"the stored values cannot be used: {type(error).__name__}: {error}"
            return self._failed(started, text[:200])

    def _judged(self, share: Share, started: float) -> Reading:
        stale_seconds = self.server.config.stale_after
        found = rebuilt(
            share,
            self._memory,
            replica_labels=self.server.config.replica_labels,
            stale_seconds=stale_seconds,
        )
        if found is None:
            self._outcomes[Outcome.NO_DATA] += 1
            return self._failed(started, self._nothing(share))
        if found.up is not None and found.up == 0.0:
            self._outcomes[Outcome.NO_DATA] += 1
            text = f"Prometheus server {self.server.name!r} cannot scrape it (up is 0 there)"
            return replace(self._failed(started, text), findings=found.findings)
        waited = self._monotonic() - share.monotonic_seconds
        age = max(0.0, (share.moment or 0.0) - (found.moment or math.inf)) + waited
        if not found.page.samples and found.stale:
            self._outcomes[Outcome.NO_DATA] += 1
            text = (
                f"Prometheus server {self.server.name!r} has nothing of it newer than "
                f"{stale_seconds:g} s; is it still scraped?"
            )
            return replace(self._failed(started, text), findings=found.findings)
        self._take(found, share)
        return self._reading(found, started, age)

    def _nothing(self, share: Share) -> str:
        labels = ", ".join(f"{name}={value!r}" for name, value in sorted(self._match.items()))
        text = (
            f"Prometheus server {self.server.name!r} has no series with {labels}; it is not "
            "scraped any more, or check match and tenant"
        )
        return f"{text} ({'; '.join(share.lacking)})" if share.lacking else text

    def _take(self, found: Rebuilt, share: Share) -> None:
        """Take a page in, unless it is the one known or an older one (a copy's, a late store's)."""
        self._outcomes[Outcome.CUT if found.page.cut else Outcome.READ] += 1
        if self._known(found):
            self._found.restarted = False
            return
        if found.moment is not None:
            self._moment, self._cut = found.moment, found.page.cut
        at = found.moment if found.moment is not None else share.moment or 0.0
        self._skipped.update(found.page.skipped)
        self._found = self._pages.take(
            found.page,
            Moment(at, at),  # growth over the server's own time
            self._target.configured,
            self._learned,
        )
        self._skipped.update(self._found.skipped)
        for signal in self._stale_signals(found):
            self._found.absent[signal] = Absence.STALE

    def _known(self, found: Rebuilt) -> bool:
        """Whether a page tells nothing new; one that was partial is taken again once whole."""
        if self._moment is None or found.moment is None or found.moment > self._moment:
            return False
        return found.moment < self._moment or not self._cut or found.page.cut

    def _stale_signals(self, found: Rebuilt) -> Iterator[str]:
        """Yield signals that are absent because all that is stored for them is too old."""
        for engine in self._engines:
            for row in engine.rows:
                families = {term.family for alias in row.aliases for term in alias.terms}
                if row.signal in self._found.absent and families & found.stale:
                    yield row.signal

    def _reading(self, page: Rebuilt, started: float, age: float) -> Reading:
        ended = self._monotonic()
        found = self._found
        took = page.scrape_seconds if page.scrape_seconds is not None else ended - started
        return Reading(
            tier=self._target.tier,
            target=self._target.id,
            source=SOURCE,
            at=self._now(),
            monotonic_seconds=ended,
            scrape_seconds=took,
            values={**found.values, "up": 1.0, "scrape_seconds": took},
            parts=found.parts,
            histograms=found.histograms,
            absent=absences(found, self._wanted),
            identity=found.identity,
            restarted=found.restarted,
            age_seconds=age,
            ages=self._ages(page, age),
            findings=(*found.findings, *page.findings),
            quantiles=found.quantiles,
        )

    def _ages(self, page: Rebuilt, age: float) -> dict[str, float]:
        """Return the ages of signals whose families are older than the newest of the target."""
        ages = {}
        for signal, alias in self._found.aliases.items():
            behind = max((page.ages.get(it, 0.0) for it in alias.split(" + ")), default=0.0)
            if behind > AGE_TOLERANCE_SECONDS:
                ages[signal] = age + behind
        return ages

    def _failed(self, started: float, problem: str) -> Reading:
        ended = self._monotonic()
        return Reading(
            tier=self._target.tier,
            target=self._target.id,
            source=SOURCE,
            at=self._now(),
            monotonic_seconds=ended,
            scrape_seconds=ended - started,
            values={"up": 0.0, "scrape_seconds": ended - started},
            absent=dict.fromkeys(self._wanted, Absence.SCRAPE_FAILED),
            identity=self._found.identity if self._moment is not None else Identity(),
            problem=problem,
        )
