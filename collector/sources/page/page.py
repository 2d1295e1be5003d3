"""Reads a metrics page: bytes and a compiled set of wanted families in, samples out.

Everything else on the page is passed over inside one regular expression, without Python work per
line. Names are met in their normal form: `ray_` and `kserve_` dropped, the first `:` as `_`. What
the page says about types is kept by family; types are never guessed from suffixes. The parser
does not raise for any bytes: a bad line costs that line and is counted with a reason.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeAlias

from collector.sources.page.families import WantedFamilies, normal_bytes
from collector.sources.page.keys import Header, Series, SeriesCache, series_of
from collector.sources.page.layout import MAX_BYTES, Told, layout_of

Sample: TypeAlias = tuple[Series, float]

MAX_LINE_BYTES: Final = 16_384  # the longest real one, cache_config_info, is about 1,000
MAX_SAMPLES: Final = 50_000
PIECE_BYTES: Final = 262_144  # one findall holds the interpreter for under a millisecond
TYPES: Final = frozenset(
    {
        "counter",
        "gauge",
        "gaugehistogram",
        "histogram",
        "info",
        "stateset",
        "summary",
        "unknown",
        "untyped",
    }
)
_NAME = rb"[a-zA-Z_:][a-zA-Z0-9_:]*"
_SERIES = re.compile(rb'(%s)(?:[ \t]*(\{(?:[^"}]++|"(?:[^"\\]++|\\.)*+")*+\}))?' % _NAME)
_AFTER = re.compile(rb"[ \t]*([^ \t\r#_]+)(?:[ \t]+[-+0-9.eE]+)?(?:[ \t]+#[^\n]*)?[ \t\r]*$")
_BOUND = re.compile(rb"[{,][ \t]*le[ \t]*=")
_END = b"\n# EOF"
_ANY_METRIC = re.compile(
    rb"\n(?:#[ \t]*(?:TYPE|HELP)[ \t]|%s(?:\{[^\n]*\})?[ \t]+[-+]?(?:[0-9.]|NaN|Inf))" % _NAME
)


class Skip(StrEnum):
    """Why a line, or a value on it, was not used."""

    LABELS = "labels"  # the label block cannot be read
    VALUE = "value"  # no number where one was expected
    TYPE = "type"  # a TYPE line with a word that is no type
    TOO_LONG = "too long"
    TOO_MANY = "too many"  # beyond MAX_SAMPLES; counted once a page
    CUT = "cut"  # the last line, without its newline
    AFTER_END = "after end"  # behind `# EOF`; counted once a page
    UNUSABLE = "unusable"  # NaN, infinite, negative or a sentinel
    REEXPORT = "re-export"  # a router's copy of an engine's series


@dataclass(frozen=True, slots=True)
class Page:
    """What a page says of the wanted families, before any meaning is given to it.

    `types` has every family with a TYPE or HELP line ("" for HELP alone). `broken` are families
    that lost a line. `cut` says that the end of the page is missing. `engines` are the prefixes
    of engines with any family on the page. `readable` is False for text that is no metrics page.
    """

    samples: Mapping[str, Sequence[Sample]]
    types: Mapping[str, str]
    broken: frozenset[str]
    skipped: Mapping[str, int]
    engines: frozenset[str]
    cut: bool
    openmetrics: bool
    readable: bool


@dataclass(slots=True)
class _Found:
    """What has been found so far on the page being read."""

    samples: defaultdict[str, list[Sample]] = field(default_factory=lambda: defaultdict(list))
    types: dict[str, str] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)
    skipped: Counter[str] = field(default_factory=Counter)
    openmetrics: bool = False
    cut: bool = False


def parse(body: bytes, families: WantedFamilies, cache: SeriesCache) -> Page:
    """Read the wanted families of a page; never raises, whatever the bytes.

    Args:
        body: The answer as received, decompressed.
        families: What is wanted.
        cache: Memory of this source; what it holds changes the speed, never the result.
    """
    found = _Found()
    text = _plain(body, found)
    ended = found.openmetrics
    repeated = None if found.skipped else _repeated(text, families, cache, ended=ended)
    if repeated is not None:
        return repeated
    misses = cache.misses
    for piece in _pieces(text):
        _read_piece(piece, families, cache, found)
        if sum(map(len, found.samples.values())) > MAX_SAMPLES:
            found.skipped[Skip.TOO_MANY] += 1
            found.cut = True
            break
    seen = _engines(text, families, found)
    wanted = found.samples or found.types or seen
    found.types.pop("", None)  # names that are wanted as samples only
    page = Page(
        samples=found.samples,
        types=found.types,
        broken=frozenset(found.broken),
        skipped=found.skipped,
        engines=seen,
        cut=found.cut,
        openmetrics=found.openmetrics,
        readable=bool(wanted) or not body.strip() or _ANY_METRIC.search(text) is not None,
    )
    if misses == cache.misses:
        _remember(text, families, cache, page, ended=ended)
    return page


def _repeated(
    text: bytes, families: WantedFamilies, cache: SeriesCache, *, ended: bool
) -> Page | None:
    """Return the page if it is laid out like one before."""
    if not cache.layouts or len(text) > MAX_BYTES:
        return None
    lines = text.split(b"\n")
    layout = cache.layouts.get(len(lines))
    if layout is None or layout.told.wanted is not families:
        return None
    samples = layout.read(lines, ended=ended)
    if samples is None:
        cache.forget_layout(len(lines))
        return None
    cache.wait = 0
    return Page(
        samples=samples,
        types=layout.told.types,
        broken=frozenset(),
        skipped={},
        engines=layout.told.engines,
        cut=False,
        openmetrics=layout.told.openmetrics,
        readable=True,
    )


def _remember(
    text: bytes, families: WantedFamilies, cache: SeriesCache, page: Page, *, ended: bool
) -> None:
    """Keep how a page is laid out, if nothing of it was lost."""
    if not page.samples or page.skipped or len(text) > MAX_BYTES or cache.waits():
        return
    told = Told(families, page.types, page.engines, ended=ended, openmetrics=page.openmetrics)
    lines = text.split(b"\n")
    for known in cache.pool.layouts(len(lines)):
        if known.told == told and known.read(lines, ended=ended) == page.samples:
            cache.keep_layout(len(lines), known)
            return
    layout = layout_of(lines, page.samples, cache.series, told)
    if layout is None:
        cache.forget_layout(len(lines))
    else:
        cache.keep_layout(len(lines), layout)
        cache.pool.add_layout(len(lines), layout)


def _engines(text: bytes, families: WantedFamilies, found: _Found) -> frozenset[str]:
    """Return the prefixes on the page; its whole text is searched only if nothing was wanted."""
    seen = {family.partition("_")[0] for family in (*found.samples, *found.types, *found.broken)}
    engines = seen & families.engines.keys()
    if not engines:
        engines = {it for it, begin in families.engines.items() if begin.search(text)}
    return frozenset(engines)


def _plain(body: bytes, found: _Found) -> bytes:
    """Return the text with a newline before each line, up to its last whole line."""
    text = body.removeprefix(b"\xef\xbb\xbf")
    if text[:2] == b'"#':
        text = _unquoted(text)
    text = b"\n" + text
    whole, end, rest = text.partition(_END)
    if end and rest[:1] in b"\r\n":
        found.openmetrics = True
        if rest.strip():
            found.skipped[Skip.AFTER_END] += 1
        return whole
    whole, _, rest = text.rpartition(b"\n")
    if rest.strip():
        found.skipped[Skip.CUT] += 1
        found.cut = True
    return whole


def _unquoted(text: bytes) -> bytes:
    """Undo the JSON string that some servers wrap their page in; leave other text alone."""
    try:
        inner = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return inner.encode(errors="replace") if isinstance(inner, str) else text


def _pieces(text: bytes) -> Iterator[bytes]:
    """Cut the text into pieces that each begin at a newline."""
    start = 0
    while start < len(text):
        stop = text.find(b"\n", start + PIECE_BYTES)
        stop = len(text) if stop < 0 else stop
        yield text[start:stop]
        start = stop


def _read_piece(piece: bytes, families: WantedFamilies, cache: SeriesCache, found: _Found) -> None:
    known = cache.series
    samples = found.samples
    for header, line in families.pattern.findall(piece):
        if header:
            _read_header(header, line, families, cache, found)
            continue
        key, _, text = line.rpartition(b" ")
        series = known.get(key)
        if series is None:
            _read_line(line, families, cache, found)
            continue
        try:
            value = float(text)
        except ValueError:
            _read_line(line, families, cache, found)
            continue
        if b"_" in text:  # Python reads 1_0 as a number; the format does not
            _lost(series.family, Skip.VALUE, found)
            continue
        samples[series.family].append((series, value))


def _read_header(
    header: bytes, line: bytes, families: WantedFamilies, cache: SeriesCache, found: _Found
) -> None:
    """Note the type of a family, or that it has a HELP line."""
    whole = header + line
    known = cache.headers.get(whole)
    if known is None:
        known = _header(header, line, families)
        if len(whole) <= MAX_LINE_BYTES:
            cache.keep_header(whole, known)
    if known.bad:
        found.skipped[Skip.TYPE] += 1
    if known.type or known.family not in found.types:
        found.types[known.family] = known.type
    if known.base:
        found.openmetrics = True  # OpenMetrics writes the type of a counter on its base name


def _header(header: bytes, line: bytes, families: WantedFamilies) -> Header:
    name, *rest = line.split(None, 1)
    normal = normal_bytes(name)
    family = families.headers.get(normal, "")
    word = b"".join(rest).strip().decode(errors="replace").lower() if b"TYPE" in header else ""
    bad = bool(word) and word not in TYPES
    base = word == "counter" and normal != family.encode()
    return Header(family, "" if bad else word, bad=bad, base=base)


def _read_line(line: bytes, families: WantedFamilies, cache: SeriesCache, found: _Found) -> None:
    """Read a sample line with full care; remember its key if it can be read."""
    head = _SERIES.match(line)
    place = families.roles.get(normal_bytes(head[1])) if head else None
    if head is None or place is None:
        return None  # a name that is wanted for its TYPE line only
    family, role = place
    if role == "bucket" and not head[1].endswith(b"_bucket") and not _BOUND.search(line):
        return None  # a quantile of a summary, under a histogram's name
    if len(line) > MAX_LINE_BYTES:
        return _lost(family, Skip.TOO_LONG, found)
    key = line[: head.end()]
    series = cache.series.get(key)
    if series is None:
        series = series_of(place, head[2], key)
        if series is None:
            return _lost(family, Skip.LABELS, found)
        cache.keep(key, series)
    after = _AFTER.match(line, head.end())
    try:
        value = float(after[1]) if after else None
    except ValueError:
        value = None
    if value is None or (head[2] is None and line[head.end() : head.end() + 1] not in b" \t"):
        reason = Skip.LABELS if line[head.end() :].lstrip(b" \t")[:1] == b"{" else Skip.VALUE
        return _lost(family, reason, found)
    found.samples[family].append((series, value))
    return None


def _lost(family: str, reason: Skip, found: _Found) -> None:
    found.skipped[reason] += 1
    found.broken.add(family)
