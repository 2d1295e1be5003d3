"""The result of a comparison, for people and machines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from pydantic import BaseModel, ConfigDict

from collector.shadow.comparing import Compared, Totals
from collector.shadow.joining import SideCounts
from collector.shadow.remarks import Remark, remarks_of
from detectors.paired import Answer, Gate, Judgement, judge
from detectors.proportions import clopper_pearson

DIRECTION = "KL(production || candidate)"
_STRICT = ConfigDict(frozen=True, extra="forbid")


class EstimateOut(BaseModel):
    """A mean over requests, nats a token; the interval holds at every look (null: no evidence)."""

    model_config = _STRICT

    mean_nats: float | None
    lower_nats: float
    upper_nats: float
    requests: int
    requests_used: int
    clipped: int
    smallest_visible_nats: float | None


class BoundsOut(BaseModel):
    """A quantity that top-k lists bound on both sides, mean over requests."""

    model_config = _STRICT

    lower: float
    upper: float


class EqualityOut(BaseModel):
    """How many answers are the same text, and the exact interval of the share (for one look)."""

    model_config = _STRICT

    answers: int
    equal: int
    ratio: float
    lower: float
    upper: float


class SideOut(BaseModel):
    """What became of the lines of one file."""

    model_config = _STRICT

    lines: int
    joined: int
    without_partner: int
    refused: dict[str, int]


class RemarkOut(BaseModel):
    """What stands against trusting the comparison."""

    model_config = _STRICT

    code: str
    text: str
    forbids_pass: bool


class ShadowReport(BaseModel):
    """All that a comparison found. Divergences are nats a token, of the direction told."""

    model_config = _STRICT

    answer: Answer
    reason: str
    direction: str = DIRECTION
    limit_nats: float
    floor_nats: float | None
    alpha: float
    joined_by: str
    paired_divergence: EstimateOut
    head_k3: EstimateOut | None
    k1_nats: float | None
    kl_lower_nats: float | None
    js_nats: BoundsOut | None
    tv: BoundsOut | None
    equal_answers: EqualityOut | None
    pairs: dict[str, int]
    tokens: int
    hidden_tokens: int
    reference: SideOut
    candidate: SideOut
    remarks: list[RemarkOut]


def report_of(compared: Compared, gate: Gate, *, floor_nats: float | None = None) -> ShadowReport:
    """Return the report of a comparison that was made with `gate`."""
    totals, remarks = compared.totals, remarks_of(compared)
    found = judged(compared, gate, remarks)
    listed = totals.head.requests > 0
    return ShadowReport(
        answer=found.answer,
        reason=found.reason,
        limit_nats=gate.limit_nats,
        floor_nats=floor_nats,
        alpha=gate.alpha,
        joined_by=compared.joined_by.value,
        paired_divergence=_estimate(found),
        head_k3=_estimate(judge(totals.head, gate)) if listed else None,
        k1_nats=_known(totals.mean("k1_nats")),
        kl_lower_nats=_known(totals.mean("kl_lower_nats")),
        js_nats=_bounds(totals, "js_lower_nats", "js_upper_nats") if listed else None,
        tv=_bounds(totals, "tv_lower", "tv_upper") if listed else None,
        equal_answers=_equality(totals, gate.alpha),
        pairs={way.value: count for way, count in sorted(totals.ways.items())},
        tokens=totals.tokens,
        hidden_tokens=totals.hidden,
        reference=_side(compared.reference),
        candidate=_side(compared.candidate),
        remarks=[
            RemarkOut(code=one.code, text=one.words, forbids_pass=one.forbids or one.forbids_pass)
            for one in remarks
        ],
    )


def judged(compared: Compared, gate: Gate, remarks: Sequence[Remark]) -> Judgement:
    """Return what the gate says, with what the remarks forbid."""
    against = next((one.words for one in remarks if one.forbids or one.forbids_pass), "")
    found = judge(compared.totals.paired, gate, obstacle=against)
    if any(one.forbids for one in remarks):
        return replace(found, answer=Answer.NOT_YET, reason=f"cannot be compared: {against}")
    return found


def _estimate(found: Judgement) -> EstimateOut:
    return EstimateOut(
        mean_nats=_known(found.mean_nats),
        lower_nats=found.lower_nats,
        upper_nats=found.upper_nats,
        requests=found.requests,
        requests_used=found.requests_used,
        clipped=found.clipped,
        smallest_visible_nats=_known(found.smallest_visible_nats),
    )


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _bounds(totals: Totals, lower: str, upper: str) -> BoundsOut:
    return BoundsOut(lower=totals.mean(lower), upper=totals.mean(upper))


def _equality(totals: Totals, alpha: float) -> EqualityOut | None:
    if not totals.answers:
        return None
    lower, upper = clopper_pearson(np.array([float(totals.equal_answers)]), totals.answers, alpha)
    return EqualityOut(
        answers=totals.answers,
        equal=totals.equal_answers,
        ratio=totals.equal_answers / totals.answers,
        lower=float(lower[0]),
        upper=float(upper[0]),
    )


def _side(counts: SideCounts) -> SideOut:
    return SideOut(
        lines=counts.lines,
        joined=counts.joined,
        without_partner=counts.left_over + counts.dropped,
        refused={reason.value: count for reason, count in sorted(counts.refused.items())},
    )
