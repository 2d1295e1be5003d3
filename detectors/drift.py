"""What the drift detectors share: which streams can be judged, persistence, levels."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Protocol, TypeAlias, Unpack

import numpy as np

from detectors.baseline import SignalBaseline, Stage, collecting
from detectors.records import (
    BoolArray,
    FloatArray,
    IntArray,
    Level,
    Panel,
    Stream,
    Verdict,
    VerdictFacts,
)
from detectors.signals import Side, grid_of, request_signal
from detectors.windows import DriftMemory, Span, counted, with_streams

CLEAR_SHARE = (
    0.8  # of the smallest change raised: under it for `persistence` ticks, a drift is over
)
Strongest: TypeAlias = Callable[[FloatArray, FloatArray, FloatArray], FloatArray]


class DriftSettings(Protocol):
    """The settings that all drift detectors have; in requests, seconds and ticks in a row."""

    @property
    def evidence(self) -> float: ...

    @property
    def window_requests(self) -> int: ...

    @property
    def window_seconds(self) -> float: ...

    @property
    def minimum_requests(self) -> int: ...

    @property
    def persistence(self) -> int: ...

    @property
    def stale_seconds(self) -> float: ...


@dataclass(frozen=True, slots=True)
class Gate:
    """What decides whether a stream is judged and raised.

    `strongest` takes the requests in the windows, those in the baselines and the design effects,
    each (R,), and returns the evidence (R,) of a complete change at these sizes: where that is
    under the evidence that `settings` ask for, nothing could be raised, so nothing is known.
    """

    settings: DriftSettings
    signals: frozenset[str]
    cause: str
    strongest: Strongest


@dataclass(frozen=True, slots=True)
class Rows:
    """The streams of a panel that a detector judges, R of them, side by side.

    `panel_rows` and `memory_rows` (R,) say where they lie; `live` and `reference` have shape
    (R, W), the latter zeros where there is no fit baseline; `requests` (R,) are in the window;
    `fresh` (R,) says whether this tick counted anything; `strongest` (R,) is the evidence that a
    complete change would have.
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
    strongest: FloatArray


@dataclass(frozen=True, slots=True)
class Standing:
    """How R streams stand: `breach` (R,) this tick, `breaches` (R,) in a row, `raised` (R,)."""

    breach: BoolArray
    breaches: IntArray
    raised: BoolArray


def side_of(signal: str) -> str:
    """Return the side of a request signal named in the configuration.

    Raises:
        ValueError: If there is no such request signal; the message lists them.
    """
    try:
        return request_signal(signal).side
    except KeyError as error:
        raise ValueError(error.args[0]) from error


def check(settings: DriftSettings, *, signals: Iterable[str], side: Side) -> None:
    """Check what the settings of all drift detectors must hold.

    Raises:
        ValueError: If a signal is unknown or not of `side`, or the window cannot hold enough.
    """
    for signal in signals:
        found = side_of(signal)
        if found != side:
            msg = f"signal {signal!r} is of the {found} side, expected one of the {side} side"
            raise ValueError(msg)
    if settings.minimum_requests > settings.window_requests * 3 // 4:
        msg = (
            f"minimum_requests {settings.minimum_requests} must be at most three quarters of "
            f"window_requests {settings.window_requests}, which a full window always holds"
        )
        raise ValueError(msg)


def advance(memory: DriftMemory, panel: Panel, gate: Gate) -> tuple[DriftMemory, Rows]:
    """Count a closed tick into the windows of the streams that `gate` is about."""
    chosen = [row for row, stream in enumerate(panel.streams) if stream.signal in gate.signals]
    panel_rows = np.asarray(chosen, dtype=np.int64)
    streams = tuple(panel.streams[row] for row in chosen)
    baselines = tuple(panel.references[row] for row in chosen)
    now = panel.monotonic_seconds
    memory = with_streams(memory, streams, panel.counts.shape[1], now)
    places = {stream: row for row, stream in enumerate(memory.streams)}
    rows = np.asarray([places[stream] for stream in streams], dtype=np.int64)
    counts = np.zeros((len(rows), memory.parts.shape[2]), dtype=np.int64)
    counts[:, : panel.counts.shape[1]] = panel.counts[panel_rows]
    span = Span(gate.settings.window_requests, gate.settings.window_seconds)
    memory = counted(memory, rows, counts, now=now, span=span)
    memory = _against(memory, rows, baselines)
    live: IntArray = memory.parts[rows].sum(axis=1)
    reference = _reference(streams, baselines, counts.shape)
    effects = np.asarray([max(b.design_effect, 1.0) if b else 1.0 for b in baselines])
    requests, known = live.sum(axis=1), reference.sum(axis=1)
    return memory, Rows(
        streams=streams,
        baselines=baselines,
        panel_rows=panel_rows,
        memory_rows=rows,
        live=live,
        reference=reference,
        design_effects=effects,
        requests=requests,
        fresh=counts.sum(axis=1) > 0,
        strongest=gate.strongest(requests.astype(np.float64), known.astype(np.float64), effects),
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
) -> tuple[DriftMemory, Standing]:
    """Take in breaches and calm (both (R,)) of the windows that are fresh and can be judged."""
    judged = rows.fresh & (rows.requests >= gate.settings.minimum_requests)
    judged &= rows.strongest >= gate.settings.evidence
    at = rows.memory_rows
    breaches, calms, raised = memory.breaches.copy(), memory.calms.copy(), memory.raised.copy()
    limit = gate.settings.persistence
    breaches[at] = np.where(
        judged, np.where(breach, np.minimum(breaches[at] + 1, limit), 0), breaches[at]
    )
    calms[at] = np.where(judged, np.where(calm, np.minimum(calms[at] + 1, limit), 0), calms[at])
    raised[at] = (raised[at] | (breaches[at] >= limit)) & (calms[at] < limit)
    standing = Standing(breach, breaches[at], raised[at])
    return replace(memory, breaches=breaches, calms=calms, raised=raised), standing


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
    stale_seconds, needed = gate.settings.stale_seconds, gate.settings.minimum_requests
    if not age <= stale_seconds:
        seen = f"no request for {age:.0f} s" if np.isfinite(age) else "no request yet"
        return f"{seen}, at most {stale_seconds:g} s is judged", gate.cause
    requests = int(rows.requests[row])
    if requests < needed:
        return f"{requests:,} of {needed:,} requests that a verdict needs", gate.cause
    return _weak(rows, row, gate)


def _weak(rows: Rows, row: int, gate: Gate) -> tuple[str, str]:
    """Say that even a complete change would not reach the evidence, and which side is to blame."""
    strongest = float(rows.strongest[row])
    if strongest >= gate.settings.evidence:
        return "", ""
    live, known = int(rows.requests[row]), int(rows.reference[row].sum())
    where, few = ("baseline", known) if known < live else ("window", live)
    reason = (
        f"{few:,} requests in the {where}, too few at design effect "
        f"{rows.design_effects[row]:.3g}: a complete change would have evidence {strongest:.1f}, "
        f"raised from {gate.settings.evidence:g}"
    )
    return reason, "baseline_missing" if known < live else gate.cause


def level(baseline: SignalBaseline | None, *, raised: bool) -> Level:
    """Return the level; only an active baseline may go critical, a candidate informs.

    A breach that has not lasted is ok, with the reason saying so (`standing_words`): what alerts
    adds no hold to drift, so one tick must not be enough.
    """
    if not raised:
        return Level.OK
    active = baseline is not None and baseline.stage is Stage.ACTIVE
    return Level.CRITICAL if active else Level.WARNING


def standing_words(
    baseline: SignalBaseline | None, standing: Standing, row: int, gate: Gate
) -> str:
    """Say in a verdict's reason how far a breach has lasted, and that a candidate informs only."""
    words, ticks = "", gate.settings.persistence
    if standing.breaches[row] > 0 and not standing.raised[row]:
        words = f", {standing.breaches[row]} of {ticks} ticks in a row"
    informs = baseline is not None and baseline.stage is not Stage.ACTIVE
    return words + (" (candidate baseline: informs only)" if informs else "")


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
