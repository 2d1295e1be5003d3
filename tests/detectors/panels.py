"""Panels and baselines for the tests of tick detectors, drawn from a given generator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta

import numpy as np

from detectors.baseline import Baseline, SignalBaseline, Stage, make_baseline, promoted
from detectors.records import TIER_SCOPE, FloatArray, IntArray, Panel, Scope, Stream
from detectors.signals import grid_of
from tests.builders import START, a_tick

SIGNAL = "prompt_json_ratio"


def a_baseline(
    values: FloatArray, *, signal: str = SIGNAL, stage: Stage = Stage.ACTIVE, ticks: int = 40
) -> Baseline:
    """Return the baseline of `values`, spread evenly over `ticks` ticks in their order."""
    parts = np.array_split(values, ticks)
    made = make_baseline(
        [a_tick({signal: part}, number=number) for number, part in enumerate(parts)],
        made_at=START,
        provenance="file test",
    )
    if stage is Stage.CANDIDATE:
        return made
    return promoted(made, author="a person", reason="known to be good", stage=stage)


def a_panel(
    counts: Sequence[IntArray],
    references: Sequence[SignalBaseline | None],
    *,
    signals: Sequence[str] = (),
    number: int = 0,
    age_seconds: float = 0.5,
    progress: int = 1234,
) -> Panel:
    """Return a panel of tier `chat`, one segment a row, `number` ticks of 5 s after START."""
    rows = len(counts)
    named = signals or [SIGNAL] * rows
    bins = max(grid_of(name).bins for name in named)
    table = np.zeros((rows, bins), dtype=np.int64)
    for row, found in enumerate(counts):
        table[row, : len(found)] = found
    scopes = [TIER_SCOPE, *(Scope("segment", f"s{row}") for row in range(1, rows))]
    return Panel(
        tier="chat",
        number=number,
        start=START + timedelta(seconds=5 * number),
        monotonic_seconds=1005.0 + 5.0 * number,
        duration_seconds=5.0,
        streams=tuple(
            Stream("chat", scope, name, "v1") for scope, name in zip(scopes, named, strict=True)
        ),
        references=tuple(references),
        counts=table,
        ages_seconds=np.full(rows, age_seconds),
        progress=np.full(rows, progress, dtype=np.int64),
        needed=20_000,
    )


def panels_of(
    draws: Iterator[Sequence[FloatArray]] | Sequence[Sequence[FloatArray]],
    references: Sequence[SignalBaseline | None],
    *,
    signal: str = SIGNAL,
    first: int = 0,
) -> Iterator[Panel]:
    """Yield a panel for each item of `draws`: the values of each row in that tick."""
    grid = grid_of(signal)
    for number, rows in enumerate(draws, start=first):
        yield a_panel(
            [grid.count(values) for values in rows],
            references,
            signals=[signal] * len(references),
            number=number,
        )
