"""Small tools of these tests: a page in, what the source makes of it out."""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterator, Mapping
from pathlib import Path

from collector.sources.engine.engines import ENGINES, Engine, wanted_families
from collector.sources.engine.translate import Translation, translate
from collector.sources.page.keys import SeriesCache
from collector.sources.page.page import Page, parse
from collector.sources.page.series import Ledger

PAGES = Path(__file__).parents[2] / "fixtures" / "metrics"
FAMILIES = wanted_families(ENGINES)
NAMES = sorted(page.name for page in PAGES.glob("*.txt"))


def body(name: str) -> bytes:
    return (PAGES / name).read_bytes()


def page_of(text: bytes | str) -> Page:
    data = text.encode() if isinstance(text, str) else text
    return parse(data, FAMILIES, SeriesCache())


class Scraped:
    """One target scraped again and again, without the network."""

    def __init__(
        self,
        *,
        engines: tuple[Engine, ...] = ENGINES,
        configured: Mapping[str, float] | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        self.ledger = ledger or Ledger()
        self._engines = engines
        self._families = wanted_families(engines)
        self._configured = configured or {}
        self._cache = SeriesCache()
        self._seconds = 0.0

    def read(self, text: bytes | str) -> Translation:
        """Take in a page, 5 s after the one before."""
        self._seconds += 5.0
        data = text.encode() if isinstance(text, str) else text
        page = parse(data, self._families, self._cache)
        return translate(
            page,
            self._engines,
            self.ledger,
            configured=self._configured,
            monotonic_seconds=self._seconds,
        )


def scrapes(name: str) -> Iterator[str]:
    """Yield the bodies of a recorded series of scrapes."""
    with lzma.open(PAGES / f"scrapes-{name}.jsonl.xz", "rt") as lines:
        for line in lines:
            yield json.loads(line)["body"]
