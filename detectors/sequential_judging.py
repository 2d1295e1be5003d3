"""By what the streams of a panel are judged: nulls of their baselines, made once and kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from detectors.baseline import SignalBaseline
from detectors.records import IntArray, Panel, Stream
from detectors.sequential.evidence import make_table, placement
from detectors.sequential.nulls import Dependences, Null, dependences, make_null
from detectors.sequential.tiers import Tier
from detectors.sequential.visible import Pace, smallest_visible
from detectors.sequential.watch import Plan
from detectors.signals import grid_of

MAX_NULLS = 4096  # kept for layouts to come; a layout of more keeps its own
SEEN_REQUESTS = 1000.0  # within which the smallest change is told
UNFIT_EFFECT = 1.0  # of a baseline without one


_Layout: TypeAlias = tuple[tuple[Stream, ...], tuple[SignalBaseline | None, ...]]


@dataclass(frozen=True)
class Judged:
    """The streams of a panel that have a baseline to be judged by, S of them.

    `rows` (S,) of the panel; `plan` with the least design effects; `nulls`, `references` and
    `signals` one a stream. `unfit` says by panel row why another stream has none, empty where its
    baseline is still collecting.
    """

    rows: IntArray
    plan: Plan
    nulls: tuple[Null, ...]
    references: tuple[SignalBaseline, ...]
    signals: tuple[str, ...]
    spread: Dependences
    unfit: Mapping[int, str]
    seen: Mapping[tuple[int, str], str]  # what is visible, by place and tier


class Judging:
    """Makes the nulls of baselines and remembers them by id; a cache, and no more state."""

    def __init__(
        self, *, signals: frozenset[str], tiers: Sequence[Tier], fleet_streams: int
    ) -> None:
        self._signals = signals
        self._tiers = tiers
        self._fleet_streams = fleet_streams
        self._nulls: dict[tuple[str, str], Null | str] = {}
        self._last: tuple[_Layout, Judged] | None = None

    def judged(self, panel: Panel) -> Judged:
        """Return the streams of `panel` that can be judged; the same layout is not made anew."""
        if self._last is not None:
            (streams, references), known = self._last
            if streams is panel.streams and references is panel.references:
                return known
        found = self._judged(panel)
        self._last = ((panel.streams, panel.references), found)
        return found

    def _judged(self, panel: Panel) -> Judged:
        nulls: dict[int, Null] = {}
        unfit: dict[int, str] = {}
        references = dict(enumerate(panel.references))
        for row, stream in enumerate(panel.streams):
            if stream.signal not in self._signals:
                continue
            null = self._null(stream, panel.references[row])
            if isinstance(null, str):
                unfit[row] = null
            else:
                nulls[row] = null
        self._forget()
        known = [(row, some) for row, some in references.items() if row in nulls and some]
        return self._laid_out(panel, nulls, known, unfit)

    def _null(self, stream: Stream, reference: SignalBaseline | None) -> Null | str:
        """Return the null of a stream's baseline, or why there is none."""
        if reference is None:
            return ""
        grid = grid_of(stream.signal).name
        if reference.grid != grid:
            made_for = f"baseline {reference.baseline} was made for grid {reference.grid}"
            return f"{made_for}, counts are on {grid}; make a new baseline"
        key = (reference.baseline, reference.signal)
        if key not in self._nulls:
            self._nulls[key] = self._made(reference)
        return self._nulls[key]

    def _made(self, reference: SignalBaseline) -> Null | str:
        try:
            return make_null(
                reference.counts,
                traffic=reference.traffic,
                design_effect=max(reference.design_effect, UNFIT_EFFECT),
                tiers=self._tiers,
            )
        except ValueError as error:
            return f"baseline {reference.baseline} cannot be judged by: {error}"

    def _forget(self) -> None:
        """Drop the nulls that were made first, beyond the bound; those of a layout were used."""
        for key in list(self._nulls)[: max(len(self._nulls) - MAX_NULLS, 0)]:
            del self._nulls[key]

    def _laid_out(
        self,
        panel: Panel,
        nulls: Mapping[int, Null],
        known: Sequence[tuple[int, SignalBaseline]],
        unfit: Mapping[int, str],
    ) -> Judged:
        streams = max(self._fleet_streams, len(known))
        mine = tuple(nulls[row] for row, _ in known)
        spread = dependences(mine)
        tables = {
            tier.name: make_table(
                [null.bets[tier.name] for null in mine],
                level=tier.budget.level(streams),
                dtype=np.float32,
            )
            for tier in self._tiers
            if mine
        }
        plan = Plan(
            keys=tuple(_key(panel.streams[row], reference) for row, reference in known),
            tables=tables,
            placed=placement(np.arange(len(mine))),
            tau=spread.least,
        )
        return Judged(
            rows=np.asarray([row for row, _ in known], dtype=np.int64),
            plan=plan,
            nulls=mine,
            references=tuple(reference for _, reference in known),
            signals=tuple(panel.streams[row].signal for row, _ in known),
            spread=spread,
            unfit=unfit,
            seen=_seen(mine, plan, [panel.streams[row].signal for row, _ in known]),
        )


def _key(stream: Stream, reference: SignalBaseline) -> str:
    """Return everything that a stream's evidence rests on."""
    return f"{stream.tier} {stream.scope} {stream.signal} {stream.variant} {reference.baseline}"


def _seen(
    nulls: Sequence[Null], plan: Plan, signals: Sequence[str]
) -> Mapping[tuple[int, str], str]:
    """Return in words the smallest change that each stream and tier sees, at a request a second."""
    found = {}
    for place, (null, signal) in enumerate(zip(nulls, signals, strict=True)):
        for name, table in plan.tables.items():
            pace = Pace(table.level, 1.0, null.tau)
            some = smallest_visible(
                signal, grid_of(signal).array, null.bets[name], pace, within=SEEN_REQUESTS
            )
            found[place, name] = ", ".join(one.words for one in some)
    return found


def of_tick(judged: Judged, requests: IntArray) -> Plan:
    """Return the plan for a tick with so many requests (S,)."""
    return replace(judged.plan, tau=judged.spread.at(requests))
