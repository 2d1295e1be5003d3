"""The report for machines: everything that was found, strict and flat."""

from __future__ import annotations

import math

from pydantic import BaseModel, ConfigDict

from collector.reports.comparing import Compared
from collector.reports.features import Feature, FeatureKind
from collector.reports.judging import Answer, Correction, Judged, Settings, whole_answer
from collector.reports.records import Table
from detectors.two_sample import QuantileShift

_STRICT = ConfigDict(frozen=True, extra="forbid")
_NAMED = 5


class SideOut(BaseModel):
    """One file; of `rows` every `stride`-th was compared."""

    model_config = _STRICT

    file: str
    rows: int
    stride: int
    remarks: tuple[str, ...]


class QuantileOut(BaseModel):
    """A quantile on both sides with 95 % intervals; an end is null where too few rows tell it."""

    model_config = _STRICT

    level: float
    reference: float | None
    reference_lower: float | None
    reference_upper: float | None
    current: float | None
    current_lower: float | None
    current_upper: float | None


class CategoryOut(BaseModel):
    """Rows with one value; an empty name stands for all values that are not named."""

    model_config = _STRICT

    name: str
    reference: int
    current: int


class FeatureOut(BaseModel):
    """One feature.

    `distance` is the KS distance of numbers (of text: of its lengths), for categories the largest
    difference of a share; `ks_at` is the value where it is reached. `ks_p` asks whether anything
    has changed at all and equals scipy's; `gate_p` whether the change is beyond the gate, and
    decides. `odds_ratio` is that of the share that has moved most surely; `smallest_visible` is
    null where no distance would have been seen.
    """

    model_config = _STRICT

    feature: str
    kind: FeatureKind
    answer: Answer
    reason: str
    reference_rows: int
    current_rows: int
    reference_stored: str
    current_stored: str
    reference_missing_ratio: float
    current_missing_ratio: float
    distance: float
    ks_at: float | None
    ks_p: float | None
    corrected_ks_p: float | None
    gate_p: float
    corrected_gate_p: float
    odds_ratio: float
    smallest_visible: float | None
    psi: float | None
    wasserstein: float | None
    quantiles: tuple[QuantileOut, ...]
    categories: tuple[CategoryOut, ...]
    remarks: tuple[str, ...]


class SkippedOut(BaseModel):
    """A column that was not compared."""

    model_config = _STRICT

    column: str
    reason: str


class DriftReport(BaseModel):
    """All that a comparison of two files found."""

    model_config = _STRICT

    answer: Answer
    reason: str
    gate_ks: float
    gate_odds: float
    alpha: float
    correction: Correction
    must_see: float
    reference: SideOut
    current: SideOut
    features: tuple[FeatureOut, ...]
    skipped: tuple[SkippedOut, ...]


def report_of(compared: Compared, settings: Settings) -> DriftReport:
    """Return the report, features outside the gate first, then the unsure ones."""
    answer = whole_answer(compared.judged)
    ranks = list(Answer)
    ordered = sorted(
        compared.judged, key=lambda one: (ranks.index(one.answer), -one.feature.distance)
    )
    return DriftReport(
        answer=answer,
        reason=_reason(answer, compared),
        gate_ks=settings.gate.distance,
        gate_odds=settings.gate.odds,
        alpha=settings.alpha,
        correction=settings.correction,
        must_see=settings.must_see,
        reference=_side(compared.reference),
        current=_side(compared.current),
        features=tuple(map(_feature, ordered)),
        skipped=tuple(SkippedOut(column=name, reason=why) for name, why in compared.skipped),
    )


def _reason(answer: Answer, compared: Compared) -> str:
    of_answer = [one.feature.name for one in compared.judged if one.answer is answer]
    total = len(compared.judged)
    features = "1 feature" if total == 1 else f"{total:,} features"
    if not compared.judged:
        return "no column of REF can be compared"
    if answer is Answer.INSIDE:
        return f"none of {features} is outside the gate"
    names = ", ".join(of_answer[:_NAMED]) + (", ..." if len(of_answer) > _NAMED else "")
    words = "outside the gate" if answer is Answer.OUTSIDE else "unsure, too little data to say"
    return f"{len(of_answer):,} of {features} {words}: {names}"


def _side(table: Table) -> SideOut:
    remarks = list(table.remarks)
    if table.stride > 1:
        remarks.append(f"of {table.rows:,} rows one in {table.stride:,} was compared")
    return SideOut(
        file=table.path.name, rows=table.rows, stride=table.stride, remarks=tuple(remarks)
    )


def _feature(judged: Judged) -> FeatureOut:
    found: Feature = judged.feature
    return FeatureOut(
        feature=found.name,
        kind=found.kind,
        answer=judged.answer,
        reason=judged.reason,
        reference_rows=found.rows[0],
        current_rows=found.rows[1],
        reference_stored=found.stored[0],
        current_stored=found.stored[1],
        reference_missing_ratio=found.missing[0],
        current_missing_ratio=found.missing[1],
        distance=found.distance,
        ks_at=_finite(found.ks.at) if found.ks else None,
        ks_p=found.ks.p if found.ks else None,
        corrected_ks_p=judged.corrected_ks_p,
        gate_p=judged.gate_p,
        corrected_gate_p=judged.corrected_gate_p,
        odds_ratio=judged.odds_ratio,
        smallest_visible=_finite(judged.smallest_visible),
        psi=found.psi,
        wasserstein=found.wasserstein,
        quantiles=tuple(map(_quantile, found.quantiles)),
        categories=tuple(
            CategoryOut(name=one.name, reference=one.reference, current=one.current)
            for one in found.categories
        ),
        remarks=found.remarks,
    )


def _quantile(shift: QuantileShift) -> QuantileOut:
    return QuantileOut(
        level=shift.level,
        reference=_finite(shift.reference),
        reference_lower=_finite(shift.reference_interval[0]),
        reference_upper=_finite(shift.reference_interval[1]),
        current=_finite(shift.current),
        current_lower=_finite(shift.current_interval[0]),
        current_upper=_finite(shift.current_interval[1]),
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
