"""From figures to an answer: which features are surely outside the gate, after all corrections."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, TypeAlias

import numpy as np

from collector.reports.features import BAND_ALPHA, Feature
from detectors.beyond_gate import (
    Shares,
    allowed,
    benjamini_hochberg,
    beyond_gate_p,
    holm,
    outside,
    smallest_visible,
)
from detectors.proportions import clopper_pearson
from detectors.records import FloatArray
from detectors.sequential.band import Gate

Correction: TypeAlias = Literal["holm", "bh"]
NO_GATE = Gate(distance=0.0, odds=1.0)
DEFAULT_GATE = Gate(distance=0.05, odds=2.0)


class Answer(StrEnum):
    """What a feature, or the whole report, comes to."""

    OUTSIDE = "outside"  # surely changed by more than the gate
    INSIDE = "inside"  # enough rows, and not surely outside
    UNSURE = "unsure"  # too few rows to say


@dataclass(frozen=True, slots=True)
class Settings:
    """How a report judges.

    `alpha` is the chance (Holm) that any feature is called outside while all are inside the gate,
    or (bh) the share of wrong ones among those called outside, on average. A feature whose rows
    could not prove a KS distance of `must_see` more than the gate's is unsure.
    """

    gate: Gate = DEFAULT_GATE
    alpha: float = 0.01
    correction: Correction = "holm"
    must_see: float = 0.2


@dataclass(frozen=True, slots=True)
class Judged:
    """A feature with its answer.

    `gate_p` is the p-value of "inside the gate", `corrected_gate_p` the same among all features,
    `corrected_ks_p` that of "no change at all". `smallest_visible` is the smallest KS distance
    that these rows would prove to be outside (infinite: none).
    """

    feature: Feature
    answer: Answer
    reason: str
    gate_p: float
    corrected_gate_p: float
    corrected_ks_p: float | None
    odds_ratio: float
    smallest_visible: float


@dataclass(frozen=True, slots=True)
class _Tested:
    """A feature's tests: p of the gate, p of no change where the gate is left, and the worst."""

    gate_p: float
    beyond_p: float
    comparisons: int
    worst: int  # of the events and their opposites
    by_distance: bool  # the KS distance itself is what proves it
    counts: Shares


def judge(features: Sequence[Feature], settings: Settings) -> tuple[Judged, ...]:
    """Judge all features of a report together."""
    tested = [_tested(feature, settings.gate) for feature in features]
    corrected = _corrected([one.gate_p for one in tested], settings.correction)
    ks = [feature.ks.p if feature.ks else 1.0 for feature in features]
    corrected_ks = _corrected(ks, settings.correction)
    return tuple(
        _judged(feature, one, settings, (float(gate), float(same), len(features)))
        for feature, one, gate, same in zip(features, tested, corrected, corrected_ks, strict=True)
    )


def _corrected(p: list[float], correction: Correction) -> FloatArray:
    values = np.asarray(p, dtype=np.float64)
    return holm(values) if correction == "holm" else benjamini_hochberg(values)


def _tested(feature: Feature, gate: Gate) -> _Tested:
    counts = feature.counts.and_not()
    p = beyond_gate_p(counts, gate)
    changed = beyond_gate_p(counts, NO_GATE)
    comparisons = len(p) + (feature.ks is not None)
    distance_p = distance_beyond_p(feature, gate)
    left = outside(counts, gate)
    beyond = float(changed[left].min(initial=1.0)) * comparisons
    if feature.ks is not None and feature.distance > gate.distance:
        beyond = min(beyond, feature.ks.p)
    worst = int(np.lexsort((changed, p))[0])
    return _Tested(
        gate_p=min(min(float(p[worst]), distance_p) * comparisons, 1.0),
        beyond_p=min(beyond, 1.0),
        comparisons=comparisons,
        worst=worst,
        by_distance=distance_p < p[worst],
        counts=counts,
    )


def distance_beyond_p(feature: Feature, gate: Gate) -> float:
    """Return a p-value of "the true KS distance is at most the gate's", by looking everywhere.

    Both empirical distributions stray from the true ones by at most a and b; a + b has to bridge
    what the distance found is over the gate's. With a sqrt(m) = b sqrt(n) each has the level
    2 exp(-2 m a^2) of Dvoretzky, Kiefer, Wolfowitz and Massart.
    """
    over = feature.distance - gate.distance
    if feature.ks is None or over <= 0:
        return 1.0
    m, n = feature.rows
    a = over * math.sqrt(n) / (math.sqrt(m) + math.sqrt(n))
    return min(4 * math.exp(-2 * m * a * a), 1.0)


def _judged(
    feature: Feature, tested: _Tested, settings: Settings, among: tuple[float, float, int]
) -> Judged:
    corrected, corrected_ks, features = among
    level = settings.alpha / features
    visible = smallest_visible(
        *map(float, feature.rows), gate=settings.gate, level=level / tested.comparisons
    )
    where = _where(feature, tested, settings.gate)
    if corrected <= settings.alpha:
        answer, reason = Answer.OUTSIDE, where
    elif tested.beyond_p <= level:
        answer = Answer.UNSURE
        reason = f"changed, but more rows are needed to say whether beyond the gate; {where}"
    elif visible > (wanted := settings.gate.distance + settings.must_see):
        answer = Answer.UNSURE
        seen = "no distance" if math.isinf(visible) else f"none under {visible:.2f}"
        rows = f"{min(feature.rows):,} rows"
        reason = f"too few rows: {rows} show {seen}, {wanted:.3g} is wanted"
    else:
        answer, reason = Answer.INSIDE, f"nothing beyond the gate; {visible:.3f} would be seen"
    return Judged(
        feature=feature,
        answer=answer,
        reason=reason,
        gate_p=tested.gate_p,
        corrected_gate_p=corrected,
        corrected_ks_p=corrected_ks if feature.ks else None,
        odds_ratio=_odds_ratio(tested.counts, tested.worst),
        smallest_visible=visible,
    )


def _odds_ratio(counts: Shares, place: int) -> float:
    """Return how many times the odds of an event have risen, each cell half a row richer."""
    before = (counts.reference[place] + 0.5) / (
        counts.reference_rows[place] - counts.reference[place] + 0.5
    )
    now = (counts.current[place] + 0.5) / (counts.current_rows[place] - counts.current[place] + 0.5)
    return float(now / before)


def _where(feature: Feature, tested: _Tested, gate: Gate) -> str:
    """Say where the change is largest, in shares with exact intervals."""
    if tested.by_distance and feature.ks is not None:
        return f"KS distance {feature.distance:.3f} with gate {gate.distance:g}"
    place, half = tested.worst, len(feature.events)
    event = feature.events[place % half]
    words = event.words if place < half else event.opposite
    counts = tested.counts
    before = _share_words(counts.reference[place], counts.reference_rows[place])
    now = _share_words(counts.current[place], counts.current_rows[place])
    ceiling = allowed(counts.reference[place : place + 1] / counts.reference_rows[place], gate)
    return f"{words}: REF {before}, gate to {ratio_words(float(ceiling[0]))} %, CUR {now}"


def _share_words(count: float, rows: float) -> str:
    lower, upper = clopper_pearson(np.asarray([count]), rows, BAND_ALPHA)
    ends = f"[{ratio_words(float(lower[0]))}, {ratio_words(float(upper[0]))}]"
    return f"{ratio_words(count / rows)} % {ends}"


def ratio_words(ratio: float) -> str:
    """Write a share for people, who read percent.

    >>> ratio_words(0.00503), ratio_words(0.31416), ratio_words(0.99991), ratio_words(1.0)
    ('0.503', '31.4', '99.991', '100')
    """
    percent = 100 * ratio
    if 99 < percent < 100:  # noqa: PLR2004  # what is missing of 100 matters there
        return f"{percent:.{min(max(-math.floor(math.log10(100 - percent)), 1), 6)}f}"
    return f"{percent:.3g}"


def whole_answer(judged: Sequence[Judged]) -> Answer:
    """Return outside if any feature is, else unsure if any is or there is none."""
    answers = {one.answer for one in judged}
    if Answer.OUTSIDE in answers:
        return Answer.OUTSIDE
    return Answer.UNSURE if Answer.UNSURE in answers or not answers else Answer.INSIDE
