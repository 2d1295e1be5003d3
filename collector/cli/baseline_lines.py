"""A baseline as the commands tell it: one line each, and one for each of its signals."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime

from pydantic import BaseModel, ConfigDict

from collector.cli.output import moment, show_table
from detectors.baseline import Baseline, SignalBaseline
from detectors.signals import grid_of

_ISO_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d)[0-9:.]*(?:\+00:00|Z)")


class BaselineLine(BaseModel):
    """What a list shows of a baseline; the service may say more."""

    model_config = ConfigDict(frozen=True, from_attributes=True)

    id: str
    tier: str
    scope: str
    variant: str
    stage: str
    made_at: datetime
    promoted_at: datetime | None = None
    requests: int
    provenance: str
    author: str
    reason: str


class SignalLine(BaseModel):
    """One signal of a baseline: what was counted, and its median on the grid."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    signal: str
    grid: str
    requests: int
    median: float
    p99: float
    thresholds: int
    design_effect: float


class BaselineDetail(BaseModel):
    """One baseline with its signals."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    baseline: BaselineLine
    signals: list[SignalLine]


def minutes_only(provenance: str) -> str:
    """Return where a baseline is from with its moments (UTC) to the minute.

    >>> minutes_only("ticks 2026-11-29T19:13:11.737839+00:00 to 2026-11-29T19:40:00+00:00")
    'ticks 2026-11-29 19:13Z to 2026-11-29 19:40Z'
    """
    return _ISO_MOMENT.sub(r"\1 \2Z", provenance)


def line_of(found: Baseline) -> BaselineLine:
    """Return what a list shows of a baseline."""
    return BaselineLine(
        id=found.id,
        tier=found.tier,
        scope=str(found.scope),
        variant=found.variant,
        stage=str(found.stage),
        made_at=found.made_at,
        requests=found.requests,
        provenance=found.provenance,
        author=found.author,
        reason=found.reason,
    )


def signal_lines(found: Baseline) -> list[SignalLine]:
    """Return what was counted of each signal of a baseline."""
    return [
        SignalLine(
            signal=name,
            grid=signal.grid,
            requests=signal.requests,
            median=_quantile(signal, 0.5),
            p99=_quantile(signal, 0.99),
            thresholds=len(signal.thresholds),
            design_effect=signal.design_effect,
        )
        for name, signal in found.signals.items()
    ]


def _quantile(signal: SignalBaseline, share: float) -> float:
    """Return the smallest grid edge with at least `share` of the requests at or below it."""
    edges = grid_of(signal.signal).edges
    below = signal.counts.cumsum() >= share * signal.requests
    return edges[min(int(below.argmax()), len(edges) - 1)]


def show_lines(lines: Sequence[BaselineLine]) -> None:
    """Print baselines for people."""
    rows = [
        [
            one.id,
            one.tier,
            one.scope,
            one.variant,
            one.stage,
            f"{one.requests:,}",
            moment(one.made_at),
            minutes_only(one.provenance),
            f"{moment(one.promoted_at)} {one.author}: {one.reason}".strip() if one.author else "",
        ]
        for one in lines
    ]
    columns = ("id", "tier", "scope", "variant", "stage", "requests", "made", "from", "promoted")
    show_table("baseline", columns, rows)
