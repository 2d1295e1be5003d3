"""A parsed page on its way to canonical signals: the same for a page scraped and a page stored.

Translated by the engines' rows, checked, its quantiles and approximations worked out; with all that
is remembered of one target from page to page.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from collector.sources.engine.adapters import SIGNAL as ADAPTERS
from collector.sources.engine.adapters import count_adapters
from collector.sources.engine.engines import Engine
from collector.sources.engine.first_token import SIGNAL as FIRST_TOKEN
from collector.sources.engine.first_token import FirstToken
from collector.sources.engine.missing import explained
from collector.sources.engine.oddities import oddities
from collector.sources.engine.quality import Quality
from collector.sources.engine.quantiles import Windows, offered_quantiles
from collector.sources.engine.translate import translate
from collector.sources.engine.translation import Translation
from collector.sources.engine.workers import Workers
from collector.sources.page.page import Page
from collector.sources.page.series import Ledger
from detectors.records import Absence
from detectors.remarks import Finding

_DERIVED: Final = frozenset({"generation_tokens_per_second", "requests_lost_total"})


@dataclass(frozen=True, slots=True)
class Moment:
    """When a page was read: for intervals, and by the clock on the wall."""

    monotonic_seconds: float
    unix_seconds: float


@dataclass(slots=True)
class Understanding:
    """The memory of one target's pages.

    `engines` are those that it may be of; `foreign` is a page that is no engine's (a GPU
    exporter's, a client's): what is known of engines' faults does not hold for it.
    """

    engines: Sequence[Engine]
    foreign: bool = False
    ledger: Ledger = field(default_factory=Ledger)
    _windows: Windows = field(default_factory=Windows)
    _quality: Quality = field(default_factory=Quality)
    _workers: Workers = field(default_factory=Workers)
    _first_token: FirstToken = field(default_factory=FirstToken)

    def take(
        self,
        page: Page,
        moment: Moment,
        configured: Mapping[str, float],
        learned: Mapping[str, float] = MappingProxyType({}),
        match: Mapping[str, str] = MappingProxyType({}),
    ) -> Translation:
        """Return what a page says.

        Args:
            page: As parsed.
            moment: When it was read.
            configured: Signals that win over the page.
            learned: Limits that the page wins over.
            match: Labels that a series must carry to be read.
        """
        at = moment.monotonic_seconds
        findings: tuple[Finding, ...] = ()
        if not self.foreign:
            page, findings = self._workers.living(page, at)
        found = translate(
            page,
            self.engines,
            self.ledger,
            configured=configured,
            learned=learned,
            monotonic_seconds=at,
            match=match,
        )
        if not self.foreign:
            self._beside_the_rows(page, found, moment)
            self._quality.check(page, found, self.ledger, at)
            found.findings += (*findings, *oddities(page, found))
        self._windows.take(found, at)
        return found

    def _beside_the_rows(self, page: Page, found: Translation, moment: Moment) -> None:
        """Add what no row of the engine can say."""
        engine = next((it for it in self.engines if it.name == found.identity.engine), None)
        if engine is not None:
            at = moment.monotonic_seconds
            self._first_token.take(page, found, engine, self.ledger, at)
            count_adapters(page, found, engine, moment.unix_seconds)


def offered(engines: Sequence[Engine]) -> frozenset[str]:
    """Return the signals that a page of these engines may give."""
    rows = frozenset(signal for engine in engines for signal in engine.signals)
    rows |= offered_quantiles(rows)
    if any(engine.first_token for engine in engines):
        rows |= {FIRST_TOKEN}
    if any(engine.adapters for engine in engines):
        rows |= {ADAPTERS}
    return rows | _DERIVED if "generation_tokens_total" in rows else rows


def absences(found: Translation, wanted: Iterable[str]) -> dict[str, Absence]:
    """Return why each wanted signal without a value has none."""
    missing = Absence.NO_FAMILY if found.identity.engine else Absence.NO_DATA
    return {
        it: explained(found.absent.get(it, missing), found.identity, it)
        for it in wanted
        if it not in found.values and it not in found.histograms
    }
