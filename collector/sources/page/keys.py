"""Series keys: the bytes before a value, parsed once and remembered by source."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from weakref import ref

from collector.sources.page.families import Role, WantedFamilies

if TYPE_CHECKING:
    from collector.sources.page.layout import Layout

MAX_LAYOUTS: Final = 16
POOL_SERIES: Final = 200_000
POOL_BYTES: Final = 67_108_864
MAX_WAIT: Final = 256  # pages, for sources whose pages never repeat

_LABEL = re.compile(
    rb'[ \t]*([a-zA-Z_][a-zA-Z0-9_]*)[ \t]*=[ \t]*"((?:[^"\\]++|\\.)*+)"[ \t]*(?:,|$)'
)
_ESCAPE = re.compile(r'\\[\\n"]')
_ROUTER_LABELS = frozenset({"server", "worker_addr"})
_ESCAPED = {"\\\\": "\\", "\\n": "\n", '\\"': '"'}


@dataclass(frozen=True, slots=True)
class Series:
    """One series as parsed once and then remembered by the bytes of its key.

    `key` is its identity: family and labels without `le` and `pid`, so it is the same for the
    buckets, sum and count of one histogram and for the copies that several processes write.
    """

    family: str
    role: Role
    key: str
    labels: Mapping[str, str]  # without `le`
    bound: float = math.nan  # of a bucket
    copied: bool = False  # a router's re-export, not the engine's own
    written: bytes = field(default=b"", compare=False)  # what stands before its value on a page

    @property
    def engine(self) -> str:
        """The engine of a target that runs several; empty if it does not say."""
        return self.labels.get("engine") or self.labels.get("dp_rank", "")


@dataclass(frozen=True, slots=True)
class Header:
    """A TYPE or HELP line: `type` is empty for HELP, `base` a counter's name without `_total`."""

    family: str
    type: str
    bad: bool
    base: bool


class SeriesPool:
    """What sources of like pages know together, so that a fleet remembers it once.

    Series and header lines by their bytes, emptied when full, and when half of those who knew them
    are gone; layouts for as long as a source uses them. A page may be read in a thread meanwhile:
    every step here is one operation of a dictionary.
    """

    def __init__(self, *, limit: int = POOL_SERIES, limit_bytes: int = POOL_BYTES) -> None:
        self.series: dict[bytes, Series] = {}
        self.headers: dict[bytes, Header] = {}
        self.emptied = 0
        self._layouts: dict[int, list[ref[Layout]]] = {}
        self._limit = limit
        self._limit_bytes = limit_bytes
        self._bytes = 0
        self.users = 0
        self._gone = 0

    def join(self) -> None:
        self.users += 1

    def leave(self) -> None:
        """One who knew them is gone."""
        self.users -= 1
        self._gone += 1
        if self._gone >= self.users:
            self._empty()

    def layouts(self, lines: int) -> Iterator[Layout]:
        """Yield the layouts in use of pages with so many lines, the newest first."""
        for found in reversed(self._layouts.get(lines, ())):
            layout = found()
            if layout is not None:
                yield layout

    def add_layout(self, lines: int, layout: Layout) -> None:
        """Let others use this layout too, as long as anyone does."""
        if lines not in self._layouts:  # pages of a length that is gone are forgotten on the way
            kept = {n: living for n, them in [*self._layouts.items()] if (living := _living(them))}
            self._layouts = kept
        self._layouts[lines] = [*_living(self._layouts.get(lines, [])), ref(layout)][-MAX_LAYOUTS:]

    def make_room(self, size: int) -> None:
        self._bytes += size
        full = len(self.series) + len(self.headers) >= self._limit
        if full or self._bytes > self._limit_bytes:
            self._empty()
            self._bytes = size
            self.emptied += 1

    def _empty(self) -> None:
        self.series.clear()
        self.headers.clear()
        self._bytes = self._gone = 0


def _living(layouts: list[ref[Layout]]) -> list[ref[Layout]]:
    return [it for it in layouts if it() is not None]


class SeriesPools:
    """The pools of a process: one for each set of wanted families, those of `engines.py`."""

    def __init__(self) -> None:
        self._pools: dict[int, tuple[WantedFamilies, SeriesPool]] = {}

    def of(self, families: WantedFamilies) -> SeriesPool:
        """Return the pool of those who want these families; what nobody uses is let go."""
        known = self._pools.get(id(families))
        if known is not None:
            return known[1]
        self._pools = {key: kept for key, kept in self._pools.items() if kept[1].users}
        pool = SeriesPool()
        self._pools[id(families)] = (families, pool)
        return pool


class SeriesCache:
    """Series and header lines already parsed, by their bytes, and how the pages are laid out.

    A page of a running engine repeats the same keys at every scrape, mostly all of them in the same
    order: `layouts` are such pages by their number of lines. Sources that read pages of one kind
    may share a `pool`; alone, a cache has its own. `misses` counts what was parsed anew.
    """

    def __init__(
        self,
        *,
        limit: int = 20_000,
        limit_bytes: int = 16_777_216,
        pool: SeriesPool | None = None,
    ) -> None:
        self.pool = pool or SeriesPool(limit=limit, limit_bytes=limit_bytes)
        self.pool.join()
        self.series = self.pool.series
        self.headers = self.pool.headers
        self.misses = 0
        self.layouts: dict[int, Layout] = {}
        self.wait = 0  # pages to let pass before the next layout is made
        self._waited = 0

    @property
    def emptied(self) -> int:
        return self.pool.emptied

    def close(self) -> None:
        """Let go of what only this source knew."""
        self.layouts.clear()
        self.pool.leave()

    def keep(self, key: bytes, series: Series) -> None:
        self.misses += 1
        self.pool.make_room(len(key))
        self.series[key] = series

    def keep_header(self, line: bytes, header: Header) -> None:
        self.misses += 1
        self.pool.make_room(len(line))
        self.headers[line] = header

    def keep_layout(self, lines: int, layout: Layout) -> None:
        """Keep the layout of pages with so many lines; the oldest makes room."""
        if len(self.layouts) >= MAX_LAYOUTS:
            self.layouts.pop(next(iter(self.layouts)), None)
        self.layouts[lines] = layout

    def forget_layout(self, lines: int) -> None:
        """Drop a layout that did not hold; the next is made after ever more pages."""
        self.layouts.pop(lines, None)
        self.wait = min(MAX_WAIT, 2 * self.wait + 1)
        self._waited = 0

    def waits(self) -> bool:
        """Whether a page is to pass before a layout is made, and count it."""
        self._waited += 1
        return self._waited <= self.wait


def series_of(place: tuple[str, Role], block: bytes | None, written: bytes = b"") -> Series | None:
    """Return the series of a label block, None if the block cannot be read."""
    family, role = place
    labels = _labels(block[1:-1]) if block else {}
    if labels is None:
        return None
    bound = math.nan
    if role == "bucket":
        try:
            bound = float(labels.pop("le"))
        except (KeyError, ValueError):
            return None
        if math.isnan(bound):
            return None
    named = [f"{name}={value!r}" for name, value in sorted(labels.items()) if name != "pid"]
    key = f"{family}{{{','.join(named)}}}"
    copied = not _ROUTER_LABELS.isdisjoint(labels)
    return Series(family, role, key, labels, bound, copied, written)


def _labels(inside: bytes) -> dict[str, str] | None:
    """Return the labels between braces; None if they are not well formed."""
    labels: dict[str, str] = {}
    place = 0
    while inside[place:].strip():
        label = _LABEL.match(inside, place)
        if label is None:
            return None
        name = label[1].decode()
        value = label[2].decode(errors="replace")
        if name in labels:
            return None
        labels[name] = _ESCAPE.sub(lambda it: _ESCAPED[it[0]], value) if "\\" in value else value
        place = label.end()
    return labels
