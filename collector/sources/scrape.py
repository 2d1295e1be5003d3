"""The scrape source: one target's metrics page, fetched, parsed and translated."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from types import MappingProxyType
from typing import Final
from urllib.parse import urlsplit, urlunsplit

import httpx2

from collector.sources.engine.engines import Engine, engines_named, wanted_families
from collector.sources.engine.translation import Translation
from collector.sources.engine.understanding import Moment, Understanding, absences, offered
from collector.sources.fetch import Fetched, FetchError, FetchLimits, Outcome, fetch, refuse_cookies
from collector.sources.page.keys import SeriesCache, SeriesPools
from collector.sources.page.page import Page, parse
from collector.sources.protocols import ScrapeStats
from detectors.records import Absence, Identity, Reading

SOURCE: Final = "scrape"
LARGE_BYTES: Final = 98_304  # under 2 ms of the loop, also where every line of a page is wanted
_OWN: Final = frozenset({"up", "scrape_seconds"})


@dataclass(frozen=True, slots=True)
class ScrapeTarget:
    """One target; what is configured of it wins over what its page says.

    `url` is the server's (`/metrics` is added) or the page's own; `engine` is `auto` or a name in
    `engines.py`. `request_slots` in requests, the other two in tokens. A page that is no engine's
    (a GPU exporter's, a client's) brings its own rows as `page`; of it only series with the labels
    of `match` are read, after `prepare` put them into the form that the rows expect. `neighbour`
    marks what is beside the tier.
    """

    tier: str
    id: str
    url: str
    engine: str = "auto"
    request_slots: int | None = None
    kv_cache_capacity_tokens: int | None = None
    batch_token_budget: int | None = None
    headers: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    page: Engine | None = None
    match: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    prepare: Callable[[Page], Page] | None = None
    neighbour: bool = False

    @property
    def configured(self) -> dict[str, float]:
        """The signals that the configuration states."""
        stated = {
            "request_slots": self.request_slots,
            "kv_cache_capacity_tokens": self.kv_cache_capacity_tokens,
            "batch_token_budget": self.batch_token_budget,
        }
        return {signal: float(value) for signal, value in stated.items() if value is not None}


class ScrapeSource:
    """Reads one target. Not to be read twice at a time: `polling.poll` sees to that."""

    def __init__(
        self,
        target: ScrapeTarget,
        *,
        client: httpx2.AsyncClient,
        now: Callable[[], datetime],
        monotonic: Callable[[], float],
        limits: FetchLimits | None = None,
        wanted: frozenset[str] = frozenset(),
    ) -> None:
        """Make a source.

        Args:
            target: What to read.
            client: Shared by all sources; its pool is the bound on connections. It keeps no
                cookies from here on.
            now: The aware UTC clock.
            monotonic: The clock of intervals, s.
            limits: Bounds of a scrape, by default 10 s and 32 MiB.
            wanted: Signals of the detectors beside the known ones, whose absence is to be told.

        Raises:
            ValueError: If the target names an engine that is not in the table.
        """
        self.kind = target.page.name if target.page else SOURCE
        self.name = f"{self.kind}:{target.tier}/{target.id}"
        self._target = target
        self._url = metrics_url(target.url)
        self._client = client
        refuse_cookies(client)
        self._now = now
        self._monotonic = monotonic
        self._limits = limits or FetchLimits()
        engines = (target.page,) if target.page else engines_named(target.engine)
        self._wanted = offered(engines) | (wanted - _OWN)
        self._families = wanted_families(engines)
        self._cache = SeriesCache()
        self._read_before = False
        self._pages = Understanding(engines, foreign=target.page is not None)
        self._outcomes: Counter[str] = Counter()
        self._skipped: Counter[str] = Counter()
        self._aliases: Mapping[str, str] = {}
        self._identity = Identity()
        self._learned: Mapping[str, float] = {}

    def share(self, pools: SeriesPools) -> None:
        """Know what sources of like pages know too; from before the first read on."""
        self._cache.close()
        self._cache = SeriesCache(pool=pools.of(self._families))

    def learn(self, limits: Mapping[str, float]) -> None:
        """Take the limits that the server tells elsewhere (`/info`); the configured ones win."""
        self._learned = limits

    async def close(self) -> None:
        """Let go of what only this source knows; the client is shared."""
        self._cache.close()

    def stats(self) -> ScrapeStats:
        """Return the counts so far."""
        return ScrapeStats(
            outcomes=dict(self._outcomes),
            skipped={reason: n for reason, n in self._skipped.items() if n},
            resets=self._pages.ledger.resets,
            aliases=dict(self._aliases),
            series=self._pages.ledger.tracked,
            series_refused=self._pages.ledger.refused,
        )

    async def read(self) -> Reading:
        """Scrape the target once; trouble of the target is in the reading, never raised."""
        started = self._monotonic()
        try:
            fetched = await fetch(self._client, self._url, self._target.headers, self._limits)
            ended = self._monotonic()
            if len(fetched.body) > LARGE_BYTES or not self._read_before:  # new keys cost thrice
                found = await asyncio.to_thread(self._understand, fetched, ended)
            else:
                found = self._understand(fetched, ended)
        except FetchError as error:
            return self._failed(error, started)
        return self._reading(found, started, ended)

    def _understand(self, fetched: Fetched, at: float) -> Translation:
        """Parse and translate a page.

        Raises:
            FetchError: If it is no metrics page, or its numbers lead to one that does not exist.
        """
        try:
            found = self._translated(fetched, at)
        except (ArithmeticError, LookupError, ValueError, RecursionError) as error:
            # Not known to happen: the checks of page, buckets and translate come first. Should a
            # page get past them, its target is down and told so, and the poll goes on.
            text = f"the page's values cannot be used: {type(error).__name__}: {error}"
            raise FetchError(Outcome.UNUSABLE, text[:200]) from error
        return found

    def _translated(self, fetched: Fetched, at: float) -> Translation:
        page = parse(fetched.body, self._families, self._cache)
        self._read_before = True
        _check_page(page, fetched)
        if fetched.cut:
            page = replace(page, cut=True)
        if self._target.prepare is not None:
            page = self._target.prepare(page)
        self._skipped.update(page.skipped)
        found = self._pages.take(
            page,
            Moment(at, self._now().timestamp()),
            self._target.configured,
            self._learned,
            self._target.match,
        )
        self._skipped.update(found.skipped)
        outcome = Outcome.CUT if page.cut else Outcome.READ
        self._outcomes[outcome if page.engines else Outcome.NO_DATA] += 1
        return found

    def _reading(self, found: Translation, started: float, ended: float) -> Reading:
        self._aliases = found.aliases
        self._identity = found.identity
        return Reading(
            tier=self._target.tier,
            target=self._target.id,
            source=self.kind,
            at=self._now(),
            monotonic_seconds=ended,
            scrape_seconds=ended - started,
            values={**found.values, "up": 1.0, "scrape_seconds": ended - started},
            parts=found.parts,
            histograms=found.histograms,
            absent=absences(found, self._wanted),
            identity=found.identity,
            restarted=found.restarted,
            findings=tuple(found.findings),
            quantiles=found.quantiles,
            neighbour=self._target.neighbour,
        )

    def _failed(self, error: FetchError, started: float) -> Reading:
        self._outcomes[error.outcome] += 1
        ended = self._monotonic()
        return Reading(
            tier=self._target.tier,
            target=self._target.id,
            source=self.kind,
            at=self._now(),
            monotonic_seconds=ended,
            scrape_seconds=ended - started,
            values={"up": 0.0, "scrape_seconds": ended - started},
            absent=dict.fromkeys(self._wanted, Absence.SCRAPE_FAILED),
            identity=self._identity,
            problem=str(error),
            overloaded=error.overloaded,
            neighbour=self._target.neighbour,
        )


def metrics_url(url: str) -> str:
    """Return the address of the metrics page: a url without a path gets `/metrics`.

    >>> metrics_url("http://127.0.0.1:8000/")
    'http://127.0.0.1:8000/metrics'
    >>> metrics_url("http://127.0.0.1:8002/prometheus/metrics")
    'http://127.0.0.1:8002/prometheus/metrics'
    """
    parts = urlsplit(url)
    if parts.path in {"", "/"}:
        parts = parts._replace(path="/metrics")
    return urlunsplit(parts)


def _check_page(page: Page, fetched: Fetched) -> None:
    """Refuse an answer that is no metrics page at all."""
    if page.readable:
        return
    start = fetched.body[:512].lstrip()[:1]
    if start == b"<":
        text = "answered HTML, not metrics; check the target's url, or what stands in front of it"
        raise FetchError(Outcome.HTML, text)
    if start in {b"{", b"["}:
        raise FetchError(Outcome.JSON, "answered JSON, not metrics; check the target's url")
    if fetched.cut:
        raise FetchError(Outcome.CONNECTION, "the connection broke before the first whole line")
    raise FetchError(Outcome.NOT_METRICS, "answered text without one metrics line; check the url")
