"""Which samples of a page a term means: filtered, without inner models, one of several copies."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from collector.sources.engine.rows import Term
from collector.sources.page.keys import Series
from collector.sources.page.page import Page, Sample
from detectors.records import Absence


def term_absence(term: Term, page: Page, samples: Mapping[str, Sequence[Sample]]) -> Absence | None:
    """Return None if a term has samples, else why not."""
    if _any(term, samples):
        return None
    if term.family in page.broken:
        return Absence.UNUSABLE
    known = term.family in page.types or samples.get(term.family)
    return Absence.NO_SAMPLE if known else Absence.NO_FAMILY


def _any(term: Term, samples: Mapping[str, Sequence[Sample]]) -> bool:
    """Whether `chosen` would return a sample; mostly the first shows it."""
    if not term.keep or term.outer:
        return bool(chosen(term, samples))
    return any(_passes(term, series) for series, _ in samples.get(term.family, ()))


def chosen(term: Term, samples: Mapping[str, Sequence[Sample]]) -> Sequence[Sample]:
    """Return the samples of a term's family that pass its filters."""
    found = samples.get(term.family, ())
    if term.outer:
        found = _outermost(term, found)
    if not term.keep and not term.drop and not term.factors:
        return found
    return [sample for sample in found if _passes(term, sample[0])]


def _outermost(term: Term, found: Sequence[Sample]) -> Sequence[Sample]:
    """Return the series of whole pipelines, or all where there are none."""
    whole = [
        sample
        for sample in found
        if any(sample[0].labels.get(label) in values for label, values in term.outer)
    ]
    return whole or found


def _passes(term: Term, series: Series) -> bool:
    labels = series.labels
    for label, values in term.keep:  # plain loops: this is asked of every bucket of some families
        if labels.get(label) not in values:
            return False
    for label, values in term.drop:
        if labels.get(label) in values:
            return False
    return not term.factors or all(label in labels for label in term.factors)


def merged(term: Term, found: Sequence[Sample]) -> Iterable[Sample]:
    """Return one sample a series: of copies by several processes the largest, of ranks the first.

    Args:
        term: Whose samples they are; says what of them is taken.
        found: Samples of its family.
    """
    role = "sum" if term.take == "histogram" else term.take
    best: dict[str, Sample] = {}
    for series, value in found:
        if series.role == role:
            known = best.get(series.key)
            if known is None or not value <= known[1]:
                best[series.key] = (series, value)
    return _lowest_ranks(best.values(), term.ranks) if term.ranks else best.values()


def _lowest_ranks(found: Iterable[Sample], ranks: tuple[str, ...]) -> Iterable[Sample]:
    """Return of the series that differ in `ranks` alone the one of the lowest."""
    best: dict[tuple[tuple[str, str], ...], tuple[list[float], Sample]] = {}
    for sample in found:
        labels = sample[0].labels
        rest = tuple(sorted(it for it in labels.items() if it[0] not in ranks and it[0] != "pid"))
        place = [number(labels.get(rank, "0")) for rank in ranks]
        known = best.get(rest)
        if known is None or place < known[0]:
            best[rest] = (place, sample)
    return [sample for _, sample in best.values()]


def number(text: str) -> float:
    """Return the number that a label value states, NaN for `None` and the like."""
    try:
        return float(text)
    except ValueError:
        return math.nan
