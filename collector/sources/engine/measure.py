"""Takes the value of one row from a page: gauges, counters and histograms, each by its own rule.

Series of several engines are combined as the row says, copies of one series by several processes
(`pid`) or ranks count once, and a signal without a value gets the reason.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from collector.sources.engine.chosen import chosen, merged, number, term_absence
from collector.sources.engine.rows import Alias, Row, Term
from collector.sources.engine.translation import Translation
from collector.sources.page.buckets import histograms
from collector.sources.page.page import Page, Sample, Skip
from collector.sources.page.series import MAX_PARTS, Ledger, Point, RawHistogram, is_count
from detectors.records import Absence
from detectors.remarks import Finding
from detectors.signals import SIGNALS, Kind

_SCALARS: Final = frozenset({"", "counter", "gauge", "info", "stateset", "unknown", "untyped"})
_HISTOGRAMS: Final = frozenset({"", "histogram", "unknown", "untyped"})
_SENTINEL_FROM, _SENTINEL_TO = 2_147_483_632, 2_147_483_647
_SENTINEL_ABOVE: Final = 140_737_488_355_328.0
_LARGEST_RATIO: Final = 1.5  # a share is 1 at most; a proxy over a wrong denominator a little more
_DIP_SHARE: Final = 0.01  # buckets read while they change fall by a few observations


@dataclass(frozen=True, slots=True)
class Look:
    """The page being translated, without re-exports, and where its signals go."""

    page: Page
    samples: Mapping[str, Sequence[Sample]]
    ledger: Ledger
    out: Translation
    monotonic_seconds: float


def measure(row: Row, look: Look) -> None:
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


def _absence(alias: Alias, look: Look) -> Absence | None:
    """Return None if the alias is on the page, else why not."""
    if alias.same_as:
        known = alias.same_as in look.out.values
        return None if known else look.out.absent.get(alias.same_as, Absence.NO_FAMILY)
    found = [(term, term_absence(term, look.page, look.samples)) for term in alias.every]
    if all(absence is None for term, absence in found if not term.optional) and any(
        absence is None for _, absence in found
    ):
        return None
    reasons = {absence for _, absence in found}
    for reason in (Absence.UNUSABLE, Absence.NO_SAMPLE):
        if reason in reasons:
            return reason
    return Absence.NO_FAMILY


def _take(row: Row, alias: Alias, look: Look) -> Absence | None:
    kind = SIGNALS[row.signal].kind
    if alias.same_as:
        look.out.values[row.signal] = look.out.values[alias.same_as]
        return None
    if not all(_fits(term, look.page) for term in alias.every):
        return Absence.UNUSABLE
    if kind is Kind.HISTOGRAM:
        return _take_histogram(row, alias, look)
    if kind is Kind.COUNTER:
        return _take_counter(row, alias, look)
    return _take_gauge(row, alias, look)


def _fits(term: Term, page: Page) -> bool:
    """Whether the page's TYPE allows the term; a summary has no buckets, but a sum and a count."""
    word = page.types.get(term.family, "")
    if term.take == "value":
        return word in _SCALARS
    return word in _HISTOGRAMS or word == "summary"


def _take_histogram(row: Row, alias: Alias, look: Look) -> Absence | None:
    term = alias.terms[0]
    if alias.over:
        series, dropped = _counted(alias, look)
    else:
        bare = look.page.types.get(term.family) == "summary"
        series, dropped = histograms(
            chosen(term, look.samples), scale=alias.scale, cut=look.page.cut, bare=bare
        )
    look.out.skipped[Skip.UNUSABLE] += dropped
    if not series:
        return Absence.UNUSABLE
    if any(raw.dip > 1.0 and raw.dip > _DIP_SHARE * raw.total for raw in series):
        look.out.findings.append(_not_monotone(row.signal, term.family))
    whole = term.family not in look.page.broken
    known = look.ledger.histogram(row.signal, alias.name, series, whole=whole)
    if known is None:
        return Absence.UNUSABLE
    look.out.histograms[row.signal] = known
    return None


def _counted(alias: Alias, look: Look) -> tuple[list[RawHistogram], int]:
    """Return the histograms without buckets that a counter of sums and one of counts make."""
    counts: dict[str, float] = {}
    for term in alias.over:
        for series, value in merged(term, chosen(term, look.samples)):
            counts[series.key.partition("{")[2]] = value
    found: list[RawHistogram] = []
    dropped = 0
    for term in alias.terms:
        for series, value in merged(term, chosen(term, look.samples)):
            count = counts.get(series.key.partition("{")[2], math.nan)
            if is_count(count) and is_count(value * alias.scale):
                found.append(RawHistogram(series.key, (), (), count, value * alias.scale))
            else:
                dropped += 1
    return found, dropped


def _not_monotone(signal: str, family: str) -> Finding:
    text = (
        f"cumulative buckets of {family} fall from one bound to the next; quantiles of it are not "
        "to be trusted: look for what merges or rewrites this page"
    )
    return Finding("buckets_not_monotone", signal, text)


def _take_counter(row: Row, alias: Alias, look: Look) -> Absence | None:
    points: list[Point] = []
    for term in alias.terms:
        for series, value in merged(term, chosen(term, look.samples)):
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


def _take_gauge(row: Row, alias: Alias, look: Look) -> Absence | None:
    if any(term.family in look.page.broken for term in alias.every):
        return Absence.UNUSABLE  # a sum over engines would be silently too small
    value = _apart(row, alias, look) if alias.apart else _whole(row, alias, look)
    if value is None:
        return Absence.UNUSABLE
    value *= alias.scale
    if not value < _SENTINEL_ABOVE:  # a denominator next to nothing
        look.out.skipped[Skip.UNUSABLE] += 1
        return Absence.UNUSABLE
    share = SIGNALS[row.signal].unit == "ratio" and not alias.over  # a quotient is what it is
    if share and value > _LARGEST_RATIO:
        look.out.skipped[Skip.UNUSABLE] += 1
        look.out.findings.append(_no_share(row.signal, alias, value))
        return Absence.UNUSABLE
    if SIGNALS[row.signal].label:
        look.out.parts[row.signal] = _gauge_parts(row, alias, look)
    look.out.values[row.signal] = value
    return None


def _no_share(signal: str, alias: Alias, value: float) -> Finding:
    if alias.over_signal:
        text = f"{alias.name} is {value:.3g} times {alias.over_signal}; that limit is set too low"
    else:
        text = (
            f"{alias.name} is {value:.4g}, and should be a share of 1 at most (percent, by the "
            "look of it); it is not used: upgrade the engine, or tell which version this is"
        )
    return Finding("ratio_above_one", signal, text)


def _whole(row: Row, alias: Alias, look: Look) -> float | None:
    """Return an alias over all its series at once."""
    across = "sum" if alias.over or alias.times else row.across
    value = _combined(alias.terms, across, look)
    if value is None:
        return None
    if alias.over_signal:
        below = look.out.values.get(alias.over_signal)
    else:
        below = _combined(alias.over, "sum", look) if alias.over else 1.0
    return value / below if below else None  # unknown or 0


def _apart(row: Row, alias: Alias, look: Look) -> float | None:
    """Return an alias computed for each value of its label, and combined as the row says."""
    found = [_by(alias.apart, term, look) for term in alias.every]
    if any(groups.keys() != found[0].keys() for groups in found):
        return None
    values: list[float] = []
    ends = len(alias.terms), len(alias.terms) + len(alias.times)
    for key in found[0]:
        numbers = [groups[key] for groups in found]
        below = math.fsum(numbers[ends[1] :]) if alias.over else 1.0
        value = math.fsum(numbers[: ends[0]]) * math.prod(numbers[ends[0] : ends[1]])
        if not _is_gauge(value) or not _is_gauge(below) or not below:
            look.out.skipped[Skip.UNUSABLE] += 1
            return None
        values.append(value / below)
    return _across(values, row.across)


def _by(label: str, term: Term, look: Look) -> dict[str, float]:
    groups: dict[str, float] = {}
    for series, value in merged(term, chosen(term, look.samples)):
        key = series.labels.get(label, "")
        groups[key] = groups.get(key, 0.0) + value
    return groups


def _gauge_parts(row: Row, alias: Alias, look: Look) -> dict[str, float]:
    """Return the gauge by the value of its terms' part label (device 0, 1, ...)."""
    found: dict[str, list[float]] = {}
    for term in alias.terms:
        for series, value in merged(term, chosen(term, look.samples)):
            part = series.labels.get(term.part_label, "") if term.part_label else term.part
            if _is_gauge(value):
                found.setdefault(part, []).append(value * alias.scale)
    combine = max if row.across == "max" else math.fsum
    return {part: combine(values) for part, values in sorted(found.items())[:MAX_PARTS]}


def _combined(terms: Iterable[Term], across: str, look: Look) -> float | None:
    """Combine the series of some terms; None if one of them cannot be used."""
    found = [
        it for term in terms for it in _numbers(term, merged(term, chosen(term, look.samples)))
    ]
    bad = sum(not _is_gauge(value) for value in found)
    if bad or not found:
        look.out.skipped[Skip.UNUSABLE] += bad
        return None
    return _across(found, across)


def _across(found: Sequence[float], across: str) -> float:
    if across == "max":
        return max(found)
    total = math.fsum(found)
    return total / len(found) if across == "mean" else total


def _numbers(term: Term, found: Iterable[Sample]) -> Iterable[float]:
    """Return each sample's value, or with `factors` the product of its labels, one an engine."""
    if not term.factors:
        return [value for _, value in found]
    products: dict[str, float] = {}
    for series, _ in found:
        product = math.prod(number(series.labels[label]) for label in term.factors)
        known = products.get(series.engine)
        if known is None or not product <= known:
            products[series.engine] = product
    return products.values()


def _is_gauge(value: float) -> bool:
    """Whether a gauge is a measurement: not NaN, infinite, -1 or an exporter's sentinel."""
    return 0.0 <= value < _SENTINEL_ABOVE and not _SENTINEL_FROM <= value <= _SENTINEL_TO
