"""One column on both sides becomes one feature: its figures, and what is tested about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np

from collector.reports.records import Column
from detectors import two_sample
from detectors.beyond_gate import (
    Shares,
    allowed,
    allowed_down,
    count_events,
    joined,
    thresholds_of,
)
from detectors.proportions import clopper_pearson
from detectors.records import FloatArray
from detectors.sequential.band import Gate
from detectors.two_sample import KsResult, NumberArray, Pair, QuantileShift

FeatureKind: TypeAlias = Literal["number", "category", "text"]
BAND_ALPHA = 0.01  # of the intervals that are shown, one share each
CURVE_POINTS = 100
_MOSTLY = 0.95  # of the reference's values, to be what the column is
_ROWS_A_CATEGORY = 10  # mean, else the texts are too many to be categories
_FEWEST_NAMED = 5  # rows of a category that is named


@dataclass(frozen=True, slots=True)
class Event:
    """Something a row is or is not, in words for both: "P(x <= 3)", "P(x > 3)"."""

    words: str
    opposite: str


@dataclass(frozen=True, slots=True)
class Curve:
    """Both distributions at s points, with the reference's band and the gate around it, (s,)."""

    points: FloatArray
    reference: FloatArray
    current: FloatArray
    lower: FloatArray
    upper: FloatArray
    low: FloatArray
    high: FloatArray


@dataclass(frozen=True, slots=True)
class Category:
    """How many rows have one value; `name` is empty for all values that are not named."""

    name: str
    reference: int
    current: int


@dataclass(frozen=True, slots=True)
class Feature:
    """What was found of one feature, before anything is judged.

    `rows` are the values that were compared, reference and current. `distance` is the KS distance
    of numbers, and the largest difference of a share of categories.
    """

    name: str
    kind: FeatureKind
    stored: tuple[str, str]
    rows: tuple[int, int]
    missing: tuple[float, float]
    distance: float
    events: tuple[Event, ...]
    counts: Shares
    ks: KsResult | None = None
    psi: float | None = None
    wasserstein: float | None = None
    quantiles: tuple[QuantileShift, ...] = ()
    curve: Curve | None = None
    categories: tuple[Category, ...] = ()
    remarks: tuple[str, ...] = ()


def feature_of(name: str, reference: Column, current: Column, gate: Gate) -> Feature | str:
    """Compare one column of both files.

    Returns:
        The feature, or why there is none.
    """
    unfit = reference.unfit or current.unfit
    if unfit:
        return unfit
    if reference.present == 0:
        return "has no value in REF" if current.present else "has no value on either side"
    kind = kind_of(reference)
    if kind == "category":
        return _categories(name, reference, current)
    return _numbers(name, kind, reference, current, gate)


def kind_of(column: Column) -> FeatureKind:
    """Return what a column with values is: numbers, categories, or text with a length."""
    if len(column.numbers) >= _MOSTLY * column.present:
        return "number"
    texts = column.texts
    few = texts is not None and (
        len(texts) <= 2  # noqa: PLR2004  # true and false
        or len(column.text_lengths) >= _ROWS_A_CATEGORY * len(texts)
    )
    return "category" if few else "text"


def _numbers(
    name: str, kind: FeatureKind, reference: Column, current: Column, gate: Gate
) -> Feature:
    if kind == "text":
        other = ("number", "numbers")
        before: NumberArray = reference.text_lengths
        now: NumberArray = current.text_lengths
        shown = f"characters of {name}"
    else:
        other = ("text", "texts")
        before, now = reference.numbers, current.numbers
        shown = name
    events, counts = _shared_events(reference, current)
    texts = (reference.present - len(before), current.present - len(now))
    if reference.present and current.present and any(texts):
        events.append(Event(f"P({name} is {other[0]})", f"P({name} is no {other[0]})"))
        counts.append(_shares(texts, (reference.present, current.present)))
    found = Feature(
        name=name,
        kind=kind,
        stored=(reference.stored, current.stored),
        rows=(len(before), len(now)),
        missing=(_ratio(reference.missing, reference.rows), _ratio(current.missing, current.rows)),
        distance=0.0,
        events=tuple(events),
        counts=joined(counts),
        remarks=_remarks(reference, current, kind),
    )
    if len(before) == 0 or len(now) == 0:
        return found
    return _measured(found, two_sample.merged(before, now), shown, gate)


def _measured(found: Feature, pair: Pair, shown: str, gate: Gate) -> Feature:
    """Add what two samples of numbers tell."""
    values, closed = thresholds_of(pair.reference)
    sizes = (len(pair.reference), len(pair.current))
    counts = Shares(
        count_events(pair.reference, values, closed),
        np.full(len(values), float(sizes[0])),
        count_events(pair.current, values, closed),
        np.full(len(values), float(sizes[1])),
    )
    events = tuple(
        Event(
            f"P({shown} {'≤' if at_most else '<'} {number_words(value)})",
            f"P({shown} {'>' if at_most else '≥'} {number_words(value)})",
        )
        for value, at_most in zip(values.tolist(), closed.tolist(), strict=True)
    )
    ks = two_sample.ks_of(pair)
    return replace(
        found,
        distance=ks.distance,
        events=(*found.events, *events),
        counts=joined([found.counts, counts]),
        ks=ks,
        psi=two_sample.psi_of(pair),
        wasserstein=two_sample.wasserstein_of(pair),
        quantiles=two_sample.quantile_shifts(pair),
        curve=curve_of(pair, gate),
    )


def curve_of(pair: Pair, gate: Gate) -> Curve | None:
    """Return both distributions at up to `CURVE_POINTS` points; None if no value is finite."""
    chosen = [
        sample[(np.linspace(0, 1, CURVE_POINTS) * (len(sample) - 1)).astype(np.int64)]
        for sample in (pair.reference, pair.current)
    ]
    points = np.unique(np.concatenate(chosen))
    points = points[np.isfinite(points.astype(np.float64))]
    if len(points) == 0:
        return None
    rows = len(pair.reference)
    reference = two_sample.shares_below(pair.reference, points)
    lower, upper = clopper_pearson(reference * rows, float(rows), BAND_ALPHA)
    return Curve(
        points=points.astype(np.float64),
        reference=reference,
        current=two_sample.shares_below(pair.current, points),
        lower=lower,
        upper=upper,
        low=allowed_down(lower, gate),
        high=allowed(upper, gate),
    )


def _categories(name: str, reference: Column, current: Column) -> Feature:
    """Compare each category with all others; values that REF does not name are one category."""
    named = reference.texts or {}
    kept = [text for text, count in named.items() if count >= _FEWEST_NAMED or len(named) <= 2]  # noqa: PLR2004  # as in kind_of
    kept.sort(key=lambda text: (-named[text], text))
    now: Mapping[str, int] = current.texts if current.texts is not None else {}
    before = [named[text] for text in kept]
    after = [now.get(text, 0) for text in kept]
    rows = (reference.present, current.present)
    found = [Category(text, *pair) for text, *pair in zip(kept, before, after, strict=True)]
    found.append(Category("", rows[0] - sum(before), rows[1] - sum(after)))
    events, counts = _shared_events(reference, current)
    if all(rows):
        for one in found:
            words = f"is {one.name!r}" if one.name else "is another value"
            opposite = words.replace("is ", "is not ", 1) if one.name else "is a value named here"
            events.append(Event(f"P({name} {words})", f"P({name} {opposite})"))
            counts.append(_shares((one.reference, one.current), rows))
    shares = np.asarray([[one.reference, one.current] for one in found]) / np.maximum(rows, 1)
    table = np.asarray([[one.reference, one.current] for one in found], dtype=np.int64)
    return Feature(
        name=name,
        kind="category",
        stored=(reference.stored, current.stored),
        rows=rows,
        missing=(_ratio(reference.missing, reference.rows), _ratio(current.missing, current.rows)),
        distance=float(np.abs(shares[:, 0] - shares[:, 1]).max()) if all(rows) else 0.0,
        events=tuple(events),
        counts=joined(counts),
        psi=two_sample.psi_of_counts(table[:, 0], table[:, 1]) if all(rows) else None,
        categories=tuple(found),
        remarks=_remarks(reference, current, "category"),
    )


def _shared_events(reference: Column, current: Column) -> tuple[list[Event], list[Shares]]:
    """Return what every feature is asked: whether the value is missing."""
    counts = _shares((reference.missing, current.missing), (reference.rows, current.rows))
    return [Event("P(missing)", "P(not missing)")], [counts]


def _shares(counts: tuple[int, int], rows: tuple[int, int]) -> Shares:
    arrays = (np.asarray([float(one)]) for pair in zip(counts, rows, strict=True) for one in pair)
    return Shares(*arrays)


def _ratio(count: int, rows: int) -> float:
    return count / rows if rows else 0.0


def _remarks(reference: Column, current: Column, kind: FeatureKind) -> tuple[str, ...]:
    found = []
    if reference.stored != current.stored and current.present:
        found.append(f"stored as {reference.stored} in REF, {current.stored} in CUR")
    if kind == "number":
        for side, column in (("REF", reference), ("CUR", current)):
            if len(column.text_lengths) and column.first_text:
                found.append(f"the first text among its numbers is in {side}, {column.first_text}")
        if _rounded(reference, current):
            found.append("whole numbers beyond 2^53 are compared as rounded to float64")
    return tuple(found)


def _rounded(reference: Column, current: Column) -> bool:
    """Whether whole numbers lose digits because the other side is of another type."""
    if len(reference.numbers) == 0 or len(current.numbers) == 0:
        return False
    kind = two_sample.common_type(reference.numbers, current.numbers)
    whole = [one.numbers for one in (reference, current) if one.numbers.dtype.kind in "iu"]
    exact = 1 << 53
    return kind.kind == "f" and any(
        int(some.max()) > exact or int(some.min()) < -exact for some in whole
    )


def number_words(value: float) -> str:
    """Write a value for people.

    >>> number_words(8192), number_words(0.12345678), number_words(1e-9)
    ('8,192', '0.123457', '1e-09')
    """
    if isinstance(value, int) or (abs(value) < 1e15 and value == int(value)):  # noqa: PLR2004  # as digits
        return f"{int(value):,}"
    return f"{value:.6g}"
