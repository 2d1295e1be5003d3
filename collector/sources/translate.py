"""Gives a page its meaning: families of an engine become canonical signals.

Follows the rows of `engines.py` and nothing else: a page is cleaned of re-exports, copies of one
series by several processes (`pid`) are merged by maximum, series of several engines are combined
as the row says, and each wanted signal without a value gets the reason.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from collector.sources.buckets import histograms
from collector.sources.engines import PROCESS_START, Alias, Engine, Row, Term
from collector.sources.keys import Series
from collector.sources.page import Page, Sample, Skip
from collector.sources.series import MAX_PARTS, Ledger, Point, is_count
from collector.sources.versions import version_span
from detectors.records import Absence, Histogram, Identity
from detectors.signals import SIGNALS, Kind

MAX_MODEL_LETTERS: Final = 256
_SCALARS: Final = frozenset({"", "counter", "gauge", "info", "stateset", "unknown", "untyped"})
_HISTOGRAMS: Final = frozenset({"", "histogram", "unknown", "untyped"})
_SENTINEL_FROM, _SENTINEL_TO = 2_147_483_632, 2_147_483_647
_SENTINEL_ABOVE: Final = 140_737_488_355_328.0


@dataclass(slots=True)
class Translation:
    """One page in canonical signals; `aliases` says which families fed each of them."""

    values: dict[str, float] = field(default_factory=dict)
    parts: dict[str, dict[str, float]] = field(default_factory=dict)
    histograms: dict[str, Histogram] = field(default_factory=dict)
    absent: dict[str, Absence] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    skipped: Counter[str] = field(default_factory=Counter)
    identity: Identity = field(default_factory=Identity)
    restarted: bool = False


@dataclass(frozen=True, slots=True)
class _Look:
    """The page being translated, without re-exports, and where its signals go."""

    page: Page
    samples: Mapping[str, Sequence[Sample]]
    ledger: Ledger
    out: Translation
    monotonic_seconds: float


def translate(
    page: Page,
    engines: Sequence[Engine],
    ledger: Ledger,
    *,
    configured: Mapping[str, float],
    monotonic_seconds: float,
    match: Mapping[str, str] = MappingProxyType({}),
) -> Translation:
    """Translate a page.

    Args:
        page: The page as parsed.
        engines: The engines that it may be of; the one with most families on it is taken.
        ledger: The target's memory of counters; changed.
        configured: Signals that the configuration states; they win over the page.
        monotonic_seconds: When the page was read.
        match: Labels that a series must carry to be read; for pages that speak of many things.

    Returns:
        Its signals. `absent` covers the signals of the engine's rows and the derived ones.
    """
    out = Translation(values=dict(configured), aliases=dict.fromkeys(configured, "configured"))
    engine = _engine_of(page, engines)
    if engine is None:
        rows = (row.signal for candidate in engines for row in candidate.rows)
        out.absent = {it: Absence.NO_DATA for it in rows if it not in out.values}
        return out
    samples = {
        family: _own(_matching(found, match), out.skipped) for family, found in page.samples.items()
    }
    ledger.begin(_process_start(samples))
    look = _Look(page, samples, ledger, out, monotonic_seconds)
    for row in engine.rows:
        if row.signal not in out.values:
            _measure(row, look)
    if any(row.signal == "requests_running" for row in engine.rows):
        _derive(look)
    out.identity = Identity(
        engine=engine.name, version=version_span(page, engine.evidence), model=_model(samples)
    )
    out.restarted = ledger.restarted
    return out


def _engine_of(page: Page, engines: Sequence[Engine]) -> Engine | None:
    """Return the engine with most families on the page, the first of equals; None if none."""
    named = {family.partition("_")[0]: 0 for family in (*page.samples, *page.types)}
    for family in {*page.samples, *page.types}:
        named[family.partition("_")[0]] += 1
    present = [engine for engine in engines if engine.prefix in page.engines]
    if not present:  # pages whose families have no prefix of their own
        plain = [engine for engine in engines if not engine.prefix]
        return plain[0] if plain and (page.samples or page.types) else None
    return max(present, key=lambda engine: named.get(engine.prefix, 0), default=None)


def _matching(found: Sequence[Sample], match: Mapping[str, str]) -> Sequence[Sample]:
    """Return the series that carry all labels of `match`."""
    if not match:
        return found
    wanted = match.items()
    return [sample for sample in found if wanted <= sample[0].labels.items()]


def _own(found: Sequence[Sample], skipped: Counter[str]) -> Sequence[Sample]:
    """Return the engine's own series: a router's copies would count twice."""
    if not any(series.copied for series, _ in found):
        return found
    own = [sample for sample in found if not sample[0].copied]
    skipped[Skip.REEXPORT] += len(found) - len(own)
    return own


def _process_start(samples: Mapping[str, Sequence[Sample]]) -> float | None:
    starts = [value for _, value in samples.get(PROCESS_START, ()) if math.isfinite(value)]
    return max(starts, default=None)


def _model(samples: Mapping[str, Sequence[Sample]]) -> str:
    for found in samples.values():
        for series, _ in found:
            model = series.labels.get("model_name")
            if model:
                return model[:MAX_MODEL_LETTERS]
    return ""


def _measure(row: Row, look: _Look) -> None:
    """Take the value of a row's signal from the first alias present, else the reason."""
    worst = Absence.NO_FAMILY
    for alias in row.aliases:
        absence = _absence(alias, look)
        if absence is None:
            look.out.aliases[row.signal] = alias.name
            absence = _take(row, alias, look)
            if absence is not None:
                look.out.absent[row.signal] = absence
            return
        if absence is not Absence.NO_FAMILY:
            worst = absence
    if worst is Absence.NO_FAMILY and look.page.cut:
        worst = Absence.SCRAPE_FAILED  # it may stand in the part that is missing
    look.out.absent[row.signal] = worst


def _absence(alias: Alias, look: _Look) -> Absence | None:
    """Return None if the alias is on the page, else why not."""
    found = [(term, _term_absence(term, look)) for term in (*alias.terms, *alias.over)]
    if all(absence is None for term, absence in found if not term.optional) and any(
        absence is None for _, absence in found
    ):
        return None
    reasons = {absence for _, absence in found}
    for reason in (Absence.UNUSABLE, Absence.NO_SAMPLE):
        if reason in reasons:
            return reason
    return Absence.NO_FAMILY


def _term_absence(term: Term, look: _Look) -> Absence | None:
    if _chosen(term, look):
        return None
    if term.family in look.page.broken:
        return Absence.UNUSABLE
    known = term.family in look.page.types or look.samples.get(term.family)
    return Absence.NO_SAMPLE if known else Absence.NO_FAMILY


def _chosen(term: Term, look: _Look) -> Sequence[Sample]:
    """Return the samples of a term's family that pass its filters."""
    found = look.samples.get(term.family, ())
    if not term.keep and not term.drop and not term.factors:
        return found
    return [sample for sample in found if _passes(term, sample[0])]


def _passes(term: Term, series: Series) -> bool:
    labels = series.labels
    return (
        all(labels.get(label) in values for label, values in term.keep)
        and not any(labels.get(label) in values for label, values in term.drop)
        and all(label in labels for label in term.factors)
    )


def _take(row: Row, alias: Alias, look: _Look) -> Absence | None:
    kind = SIGNALS[row.signal].kind
    if not all(_fits(term, look.page) for term in (*alias.terms, *alias.over)):
        return Absence.UNUSABLE
    if kind is Kind.HISTOGRAM:
        return _take_histogram(row, alias, look)
    if kind is Kind.COUNTER:
        return _take_counter(row, alias, look)
    return _take_gauge(row, alias, look)


def _fits(term: Term, page: Page) -> bool:
    """Whether the page's TYPE allows the term; a summary has no buckets, but a sum."""
    word = page.types.get(term.family, "")
    if term.take == "value":
        return word in _SCALARS
    return word in _HISTOGRAMS or (term.take == "sum" and word == "summary")


def _take_histogram(row: Row, alias: Alias, look: _Look) -> Absence | None:
    term = alias.terms[0]
    cut = look.page.cut
    series, dropped = histograms(_chosen(term, look), scale=alias.scale, cut=cut)
    look.out.skipped[Skip.UNUSABLE] += dropped
    if not series:
        return Absence.UNUSABLE
    whole = term.family not in look.page.broken
    merged = look.ledger.histogram(row.signal, alias.name, series, whole=whole)
    if merged is None:
        return Absence.UNUSABLE
    look.out.histograms[row.signal] = merged
    return None


def _take_counter(row: Row, alias: Alias, look: _Look) -> Absence | None:
    points: list[Point] = []
    for term in alias.terms:
        for series, value in _merged(term, _chosen(term, look)):
            if not is_count(value * alias.scale):
                look.out.skipped[Skip.UNUSABLE] += 1
                continue
            part = series.labels.get(term.part_label, "") if term.part_label else term.part
            points.append(Point(series.key, value * alias.scale, part))
    if not points:
        return Absence.UNUSABLE
    parts = look.ledger.counter(row.signal, alias.name, points)
    look.out.values[row.signal] = math.fsum(parts.values())
    if SIGNALS[row.signal].label:
        look.out.parts[row.signal] = parts
    return None


def _take_gauge(row: Row, alias: Alias, look: _Look) -> Absence | None:
    if any(term.family in look.page.broken for term in (*alias.terms, *alias.over)):
        return Absence.UNUSABLE  # a sum over engines would be silently too small
    across = "sum" if alias.over else row.across
    value = _combined(alias.terms, across, look)
    if value is None:
        return Absence.UNUSABLE
    if SIGNALS[row.signal].label:
        look.out.parts[row.signal] = _gauge_parts(row, alias, look)
    if alias.over or alias.over_signal:
        below = _combined(alias.over, "sum", look) if alias.over else None
        below = look.out.values.get(alias.over_signal) if alias.over_signal else below
        if not below:  # unknown or 0
            return Absence.UNUSABLE
        value /= below
    value *= alias.scale
    if not value < _SENTINEL_ABOVE:  # a denominator next to nothing
        look.out.skipped[Skip.UNUSABLE] += 1
        return Absence.UNUSABLE
    look.out.values[row.signal] = value
    return None


def _gauge_parts(row: Row, alias: Alias, look: _Look) -> dict[str, float]:
    """Return the gauge by the value of its terms' part label (device 0, 1, ...)."""
    found: dict[str, list[float]] = {}
    for term in alias.terms:
        for series, value in _merged(term, _chosen(term, look)):
            part = series.labels.get(term.part_label, "") if term.part_label else term.part
            if _is_gauge(value):
                found.setdefault(part, []).append(value * alias.scale)
    combine = max if row.across == "max" else math.fsum
    return {part: combine(values) for part, values in sorted(found.items())[:MAX_PARTS]}


def _combined(terms: Iterable[Term], across: str, look: _Look) -> float | None:
    """Combine the series of some terms; None if one of them cannot be used."""
    found = [it for term in terms for it in _numbers(term, _merged(term, _chosen(term, look)))]
    bad = sum(not _is_gauge(value) for value in found)
    if bad or not found:
        look.out.skipped[Skip.UNUSABLE] += bad
        return None
    if across == "max":
        return max(found)
    total = math.fsum(found)
    return total / len(found) if across == "mean" else total


def _merged(term: Term, found: Sequence[Sample]) -> Iterable[Sample]:
    """Return one sample a series: of copies by several processes the largest."""
    role = "value" if term.take == "value" else "sum"
    best: dict[str, Sample] = {}
    for series, value in found:
        if series.role == role:
            known = best.get(series.key)
            if known is None or not value <= known[1]:
                best[series.key] = (series, value)
    return best.values()


def _numbers(term: Term, found: Iterable[Sample]) -> Iterable[float]:
    """Return each sample's value, or with `factors` the product of its labels, one an engine."""
    if not term.factors:
        return [value for _, value in found]
    products: dict[str, float] = {}
    for series, _ in found:
        product = math.prod(_number(series.labels[label]) for label in term.factors)
        known = products.get(series.engine)
        if known is None or not product <= known:
            products[series.engine] = product
    return products.values()


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:  # "None"
        return math.nan


def _is_gauge(value: float) -> bool:
    """Whether a gauge is a measurement: not NaN, infinite, -1 or an exporter's sentinel."""
    return 0.0 <= value < _SENTINEL_ABOVE and not _SENTINEL_FROM <= value <= _SENTINEL_TO


def _derive(look: _Look) -> None:
    """Add the signals that follow from others."""
    out, ledger = look.out, look.ledger
    tokens = out.values.get("generation_tokens_total")
    if tokens is not None:
        rate = ledger.rate("generation_tokens_total", tokens, look.monotonic_seconds)
        if "generation_tokens_per_second" not in out.values and rate is not None:
            out.values["generation_tokens_per_second"] = rate
            out.aliases["generation_tokens_per_second"] = "rate of generation_tokens_total"
            out.absent.pop("generation_tokens_per_second", None)
        elif "generation_tokens_per_second" not in out.values:
            out.absent["generation_tokens_per_second"] = Absence.NO_SAMPLE  # needs two scrapes
    needed = ("ttft_seconds", "e2e_seconds", "requests_running")
    missing = [it for it in needed if it not in out.values and it not in out.histograms]
    if missing:
        out.absent["requests_lost_total"] = out.absent.get(missing[0], Absence.NO_FAMILY)
        return
    lost = ledger.observed("ttft_seconds") - ledger.observed("e2e_seconds")
    lost -= out.values["requests_running"] + _preempted(look)
    out.values["requests_lost_total"] = ledger.highest("requests_lost_total", lost)
    out.aliases["requests_lost_total"] = "ttft_seconds - e2e_seconds - requests_running"


def _preempted(look: _Look) -> float:
    """Return how many counts of a first token do not belong to finished or running requests.

    V1 puts preempted requests back into the queue, where they wait with their first token behind
    them. V0 (no `engine` label) observes the first token again after each preemption.
    """
    preemptions = look.out.values.get("preemptions_total", 0.0)
    family = look.out.aliases["requests_running"]
    if any(series.engine for series, _ in look.samples.get(family, ())):
        return min(preemptions, look.out.values.get("requests_waiting", 0.0))
    return preemptions
