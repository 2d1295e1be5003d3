"""What the drift detectors share: which streams can be judged, persistence, levels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Unpack

import numpy as np

from detectors.baseline import SignalBaseline, Stage, collecting
from detectors.records import (
    FloatArray,
    IntArray,
    Level,
    Panel,
    Stream,
    Verdict,
    VerdictFacts,
)
from detectors.signals import grid_of, request_signal
from detectors.windows import BoolArray, DriftMemory, Span, counted, with_streams


@dataclass(frozen=True, slots=True)
class Gate:
    """The settings that all drift detectors have; in requests, seconds and ticks in a row."""

    signals: frozenset[str]
    cause: str
    span: Span
    minimum_requests: int
    persistence: int
    stale_seconds: float


@dataclass(frozen=True, slots=True)
class Rows:
    """The streams of a panel that a detector judges, R of them, side by side.

    `panel_rows` and `memory_rows` (R,) say where they lie; `live` and `reference` have shape
    (R, W), the latter zeros where there is no fit baseline; `requests` (R,) are in the window;
    `fresh` (R,) says whether this tick counted anything.
    """

    streams: tuple[Stream, ...]
    baselines: tuple[SignalBaseline | None, ...]
    panel_rows: IntArray
    memory_rows: IntArray
    live: IntArray
    reference: IntArray
    design_effects: FloatArray
    requests: IntArray
    fresh: BoolArray


def side_of(signal: str) -> str:
    """Return the side of a request signal named in the configuration.

    Raises:
        ValueError: If there is no such request signal; the message lists them.
    """
    try:
        return request_signal(signal).side
    except KeyError as error:
        raise ValueError(error.args[0]) from error


def advance(memory: DriftMemory, panel: Panel, gate: Gate) -> tuple[DriftMemory, Rows]:
    """Count a closed tick into the windows of the streams that `gate` is about."""
    chosen = [row for row, stream in enumerate(panel.streams) if stream.signal in gate.signals]
    panel_rows = np.asarray(chosen, dtype=np.int64)
    streams = tuple(panel.streams[row] for row in chosen)
    baselines = tuple(panel.references[row] for row in chosen)
    now = panel.start.timestamp()
    memory = with_streams(memory, streams, panel.counts.shape[1], now)
    places = {stream: row for row, stream in enumerate(memory.streams)}
    rows = np.asarray([places[stream] for stream in streams], dtype=np.int64)
    counts = np.zeros((len(rows), memory.parts.shape[2]), dtype=np.int64)
    counts[:, : panel.counts.shape[1]] = panel.counts[panel_rows]
    memory = counted(memory, rows, counts, now=now, span=gate.span)
    memory = _against(memory, rows, baselines)
    live: IntArray = memory.parts[rows].sum(axis=1)
    return memory, Rows(
        streams=streams,
        baselines=baselines,
        panel_rows=panel_rows,
        memory_rows=rows,
        live=live,
        reference=_reference(streams, baselines, counts.shape),
        design_effects=np.asarray([max(b.design_effect, 1.0) if b else 1.0 for b in baselines]),
        requests=live.sum(axis=1),
        fresh=counts.sum(axis=1) > 0,
    )


def _reference(
    streams: tuple[Stream, ...],
    baselines: tuple[SignalBaseline | None, ...],
    shape: tuple[int, ...],
) -> IntArray:
    """Return the counts of the baselines side by side; zeros where one is missing or unfit."""
    reference = np.zeros(shape, dtype=np.int64)
    for row, (stream, baseline) in enumerate(zip(streams, baselines, strict=True)):
        if baseline is not None and baseline.grid == grid_of(stream.signal).name:
            reference[row, : len(baseline.counts)] = baseline.counts
    return reference


def _against(
    memory: DriftMemory, rows: IntArray, baselines: tuple[SignalBaseline | None, ...]
) -> DriftMemory:
    """Return the memory with persistence emptied where the baseline is another one."""
    names = ["" if baseline is None else baseline.baseline for baseline in baselines]
    changed = [row for row, name in zip(rows, names, strict=True) if memory.against[row] != name]
    if not changed:
        return memory
    against = list(memory.against)
    for row, name in zip(rows, names, strict=True):
        against[row] = name
    breaches, calms, raised = memory.breaches.copy(), memory.calms.copy(), memory.raised.copy()
    breaches[changed], calms[changed], raised[changed] = 0, 0, False
    return replace(memory, against=tuple(against), breaches=breaches, calms=calms, raised=raised)


def decide(
    memory: DriftMemory, rows: Rows, *, breach: BoolArray, calm: BoolArray, gate: Gate
) -> DriftMemory:
    """Return the memory after breaches and calm (both (R,)) of the fresh, sufficient windows."""
    judged = rows.fresh & (rows.requests >= gate.minimum_requests)
    at = rows.memory_rows
    breaches, calms, raised = memory.breaches.copy(), memory.calms.copy(), memory.raised.copy()
    limit = gate.persistence
    breaches[at] = np.where(
        judged, np.where(breach, np.minimum(breaches[at] + 1, limit), 0), breaches[at]
    )
    calms[at] = np.where(judged, np.where(calm, np.minimum(calms[at] + 1, limit), 0), calms[at])
    raised[at] = (raised[at] | (breaches[at] >= limit)) & (calms[at] < limit)
    return replace(memory, breaches=breaches, calms=calms, raised=raised)


def obstacle(panel: Panel, rows: Rows, row: int, gate: Gate) -> tuple[str, str]:
    """Say why row `row` of `rows` cannot be judged, and under which cause; ("", "") if it can."""
    baseline = rows.baselines[row]
    place = rows.panel_rows[row]
    if baseline is None:
        return collecting(int(panel.progress[place]), panel.needed), "baseline_missing"
    grid = grid_of(rows.streams[row].signal).name
    if baseline.grid != grid:
        reason = f"baseline {baseline.baseline} was made for grid {baseline.grid}, counts are on "
        return f"{reason}{grid}; make a new baseline", "baseline_missing"
    age = float(panel.ages_seconds[place])
    if not age <= gate.stale_seconds:
        seen = f"no request for {age:.0f} s" if np.isfinite(age) else "no request yet"
        return f"{seen}, at most {gate.stale_seconds:g} s is judged", gate.cause
    requests = int(rows.requests[row])
    if requests < gate.minimum_requests:
        return (
            f"{requests:,} of {gate.minimum_requests:,} requests that a verdict needs",
            gate.cause,
        )
    return "", ""


def level(baseline: SignalBaseline | None, *, breach: bool, raised: bool) -> Level:
    """Return the level; only an active baseline may go critical, a candidate informs."""
    if raised and baseline is not None and baseline.stage is Stage.ACTIVE:
        return Level.CRITICAL
    return Level.WARNING if raised or breach else Level.OK


def stage_words(baseline: SignalBaseline | None) -> str:
    """Say in a verdict's reason that a baseline only informs."""
    informs = baseline is not None and baseline.stage is not Stage.ACTIVE
    return " (candidate baseline: informs only)" if informs else ""


@dataclass(frozen=True, slots=True)
class Told:
    """Which row of which panel a verdict is about, and by whom."""

    detector: str
    stream: Stream
    panel: Panel
    rows: Rows
    row: int

    def verdict(self, level: Level, **facts: Unpack[VerdictFacts]) -> Verdict:
        """Return a verdict about this row at the close of the tick."""
        baseline = self.rows.baselines[self.row]
        verdict = Verdict(
            self.detector,
            self.stream,
            level,
            self.panel.start + timedelta(seconds=self.panel.duration_seconds),
            samples=int(self.rows.requests[self.row]),
            age_seconds=float(self.panel.ages_seconds[self.rows.panel_rows[self.row]]),
            baseline="" if baseline is None else baseline.baseline,
        )
        return replace(verdict, **facts)
