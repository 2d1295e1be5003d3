"""Bounded memory of the process: open counts, last readings, detector memories, references.

Generations are counted on the grids of their signals into the open tick of their tier and of
their segment, and dropped. Closing a tick yields `Tick`s (to be stored; they merge by addition)
and, for the detectors, one `Panel` a tier that lays all its lanes side by side. Ages and idleness
come from the monotonic clock: a jump of the wall clock neither freshens nor ages anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeAlias, TypeVar

import numpy as np

from detectors.baseline import Baseline, SignalBaseline
from detectors.records import TIER_SCOPE, Batch, IntArray, Panel, Reading, Scope, Stream, Tick
from detectors.signals import REQUEST_SIGNALS, grid_of

Lane: TypeAlias = tuple[str, Scope, str]  # (tier, scope, variant): what has a tick of its own
Place: TypeAlias = tuple[str, str, str]  # (detector, tier, target): whose memory
MemoryT = TypeVar("MemoryT")

MAX_LANES = 128  # of one tier; a new variant takes the place of the one idle for longest
IDLE_SECONDS = 3600.0  # a variant without requests for so long, beside a live one, is let go
_ORDER = {row.name: place for place, row in enumerate(REQUEST_SIGNALS)}


@dataclass(slots=True)
class _Open:
    """The open counts of one lane."""

    requests: int = 0
    counts: dict[str, IntArray] = field(default_factory=dict)


@dataclass(slots=True)
class _Lane:
    """What is known of a lane; the two moments are of the monotonic clock, seconds."""

    arrived: float  # the last batch
    newest: float  # the newest data: arrival less its age then
    signals: set[str] = field(default_factory=set)
    progress: int = 0


@dataclass(frozen=True, slots=True)
class _Layout:
    """The rows of a tier's panel, until a stream or a reference is added."""

    streams: tuple[Stream, ...]
    references: tuple[SignalBaseline | None, ...]
    bins: int


@dataclass(frozen=True, slots=True)
class _Closed:
    """The tick that was closed last."""

    number: int
    start: datetime
    monotonic_seconds: float
    duration_seconds: float


class State:
    """What the process remembers between observations. One per process, on the event loop."""

    def __init__(
        self,
        *,
        tick_seconds: float,
        now: Callable[[], datetime],
        monotonic: Callable[[], float],
    ) -> None:
        self.readings: dict[tuple[str, str], Reading] = {}
        self.refused_batches = 0
        self._now = now
        self._monotonic = monotonic
        self._tick_seconds = tick_seconds
        self._tick_start = now()
        self._tick_monotonic = monotonic()
        self._tick_number = int(self._tick_start.timestamp() // tick_seconds)
        self._closed = _Closed(self._tick_number - 1, self._tick_start, self._tick_monotonic, 0.0)
        self._open: dict[Lane, _Open] = {}
        self._lanes: dict[Lane, _Lane] = {}
        self._layouts: dict[str, _Layout] = {}
        self._memories: dict[Place, object] = {}
        self._baselines: dict[Lane, Baseline] = {}
        self._needed: dict[str, int] = {}

    # Readings and detector memories

    def see(self, reading: Reading) -> None:
        """Keep the newest reading of a target."""
        self.readings[(reading.tier, reading.target)] = reading

    def memory(self, place: Place, start: Callable[[], MemoryT]) -> MemoryT:
        """Return the memory kept at `place`, or a new one."""
        kept = self._memories.get(place)
        return start() if kept is None else kept  # type: ignore[return-value]  # one detector, one memory type a place

    def remember(self, place: Place, memory: object) -> None:
        self._memories[place] = memory

    @property
    def memories(self) -> Mapping[Place, object]:
        return self._memories

    def forget_memories(self, gone: Callable[[Place], bool]) -> None:
        """Drop the memories of every place that `gone` says is no more, or means another thing."""
        for place in [place for place in self._memories if gone(place)]:
            del self._memories[place]

    def forget_target(self, tier: str, target: str) -> None:
        """Drop what is remembered of a target that is no longer configured."""
        self.readings.pop((tier, target), None)
        self.forget_memories(lambda place: place[1:] == (tier, target))

    def forget_tier(self, tier: str) -> None:
        """Drop everything about a tier that is no longer configured; the store keeps its own."""
        for key in [key for key in self.readings if key[0] == tier]:
            del self.readings[key]
        self.forget_memories(lambda place: place[1] == tier)
        for lane in [lane for lane in self._lanes if lane[0] == tier]:
            self._drop(lane)
        for lane in [lane for lane in self._baselines if lane[0] == tier]:
            del self._baselines[lane]
        self._needed.pop(tier, None)

    def forget_scope(self, tier: str, scope: Scope) -> None:
        """Drop the lanes of a segment that is no longer configured; their baselines stay stored."""
        for lane in [lane for lane in self._lanes if lane[:2] == (tier, scope)]:
            self._drop(lane)

    # Generations

    def count(self, batch: Batch) -> None:
        """Count a batch into the open tick of its tier and of its segment."""
        counts = batch.counts or {
            signal: grid_of(signal).count(values) for signal, values in batch.columns.items()
        }
        moment = self._monotonic()
        newest = moment - max((self._now() - batch.newest_at).total_seconds(), 0.0)
        scopes = [TIER_SCOPE, Scope("segment", batch.segment)] if batch.segment else [TIER_SCOPE]
        for scope in scopes:
            lane = (batch.tier, scope, batch.variant)
            known = self._lanes.get(lane) or self._new_lane(lane, moment, newest)
            if known is None:
                self.refused_batches += 1
                continue
            known.arrived = moment
            known.newest = max(known.newest, newest)
            self._add(lane, known, counts, batch.size)

    def _new_lane(self, lane: Lane, moment: float, newest: float) -> _Lane | None:
        """Make room for a lane; None if every lane of its tier has traffic of its own."""
        mine = [known for known in self._lanes if known[0] == lane[0]]
        if len(mine) >= MAX_LANES:
            oldest = min(mine, key=lambda known: self._lanes[known].arrived)
            if oldest in self._open:
                return None
            self._drop(oldest)
        made = self._lanes[lane] = _Lane(arrived=moment, newest=newest)
        return made

    def _add(self, lane: Lane, known: _Lane, counts: Mapping[str, IntArray], requests: int) -> None:
        opened = self._open.setdefault(lane, _Open())
        opened.requests += requests
        for signal, found in counts.items():
            if signal not in known.signals:
                known.signals.add(signal)
                self._layouts.pop(lane[0], None)
            so_far = opened.counts.get(signal)
            opened.counts[signal] = found if so_far is None else so_far + found

    def close_tick(self) -> list[Tick]:
        """Close the open tick of every lane; numbers rise even if the clock jumps back."""
        now, moment = self._now(), self._monotonic()
        duration = max(moment - self._tick_monotonic, 1e-9)
        self._closed = _Closed(self._tick_number, self._tick_start, moment, duration)
        opened, self._open = self._open, {}
        ticks = [self._tick(lane, found) for lane, found in opened.items()]
        for tick in ticks:
            lane = (tick.tier, tick.scope, tick.variant)
            if lane not in self._baselines:
                self._lanes[lane].progress += tick.requests
        self._tick_number = max(self._tick_number + 1, int(now.timestamp() // self._tick_seconds))
        self._tick_start, self._tick_monotonic = now, moment
        return ticks

    def _tick(self, lane: Lane, found: _Open) -> Tick:
        return Tick(
            tier=lane[0],
            scope=lane[1],
            variant=lane[2],
            number=self._closed.number,
            start=self._closed.start,
            duration_seconds=self._closed.duration_seconds,
            age_seconds=max(self._closed.monotonic_seconds - self._lanes[lane].newest, 0.0),
            requests=found.requests,
            counts=found.counts,
        )

    def panels(self, ticks: Iterable[Tick]) -> list[Panel]:
        """Lay the ticks closed last side by side; lanes without counts are rows of zeros.

        Tiers that never had a generation with a signal have no panel.
        """
        by_lane = {(tick.tier, tick.scope, tick.variant): tick for tick in ticks}
        tiers = sorted({lane[0] for lane, known in self._lanes.items() if known.signals})
        return [self._panel(tier, by_lane) for tier in tiers]

    def _panel(self, tier: str, by_lane: Mapping[Lane, Tick]) -> Panel:
        layout = self._layouts.get(tier) or self._lay_out(tier)
        rows, closed = len(layout.streams), self._closed
        counts = np.zeros((rows, layout.bins), dtype=np.int64)
        ages = np.zeros(rows)
        progress = np.zeros(rows, dtype=np.int64)
        for row, stream in enumerate(layout.streams):
            lane = (tier, stream.scope, stream.variant)
            tick = by_lane.get(lane)
            if tick is not None and stream.signal in tick.counts:
                found = tick.counts[stream.signal]
                counts[row, : len(found)] = found
            ages[row] = max(closed.monotonic_seconds - self._lanes[lane].newest, 0.0)
            progress[row] = self._lanes[lane].progress
        return Panel(
            tier=tier,
            number=closed.number,
            start=closed.start,
            monotonic_seconds=closed.monotonic_seconds,
            duration_seconds=closed.duration_seconds,
            streams=layout.streams,
            references=layout.references,
            counts=counts,
            ages_seconds=ages,
            progress=progress,
            needed=self._needed.get(tier, 0),
        )

    def _lay_out(self, tier: str) -> _Layout:
        streams = tuple(
            Stream(tier, lane[1], signal, lane[2])
            for lane in self.lanes
            if lane[0] == tier
            for signal in sorted(self._lanes[lane].signals, key=_ORDER.__getitem__)
        )
        references = tuple(self._reference(stream) for stream in streams)
        bins = max(grid_of(stream.signal).bins for stream in streams)
        layout = self._layouts[tier] = _Layout(streams, references, bins)
        return layout

    # Lanes and their baselines

    @property
    def lanes(self) -> list[Lane]:
        return sorted(self._lanes)

    def live_lanes(self) -> list[Lane]:
        """Return of each (tier, scope) the lane that had a request last."""
        newest: dict[tuple[str, Scope], Lane] = {}
        for lane in sorted(self._lanes, key=lambda lane: self._lanes[lane].arrived):
            newest[lane[:2]] = lane
        return sorted(newest.values())

    def forget_idle(self) -> list[Lane]:
        """Let go of variants that another one of the same scope has replaced; return them.

        The last variant of a scope stays however long it is silent: that nothing comes any more
        is something to be said, not to be forgotten.
        """
        moment, live = self._monotonic(), set(self.live_lanes())
        idle = [
            lane
            for lane, known in self._lanes.items()
            if lane not in live and lane not in self._open and moment - known.arrived > IDLE_SECONDS
        ]
        for lane in idle:
            self._drop(lane)
        return idle

    def _drop(self, lane: Lane) -> None:
        del self._lanes[lane]
        self._open.pop(lane, None)
        self._layouts.pop(lane[0], None)

    def _reference(self, stream: Stream) -> SignalBaseline | None:
        baseline = self._baselines.get((stream.tier, stream.scope, stream.variant))
        return baseline.signals.get(stream.signal) if baseline else None

    @property
    def baselines(self) -> Mapping[Lane, Baseline]:
        return self._baselines

    def use_baseline(self, baseline: Baseline) -> None:
        """Judge the lane of `baseline` against it from the next panel on."""
        self._baselines[(baseline.tier, baseline.scope, baseline.variant)] = baseline
        self._layouts.pop(baseline.tier, None)

    def expect(self, baseline: Baseline) -> None:
        """Lay out the lane of a baseline before its first request, so that silence is told."""
        lane = (baseline.tier, baseline.scope, baseline.variant)
        if lane not in self._lanes:
            moment = self._monotonic()
            known = self._new_lane(lane, moment, moment)
            if known is not None:
                known.signals.update(baseline.signals)

    def need(self, tier: str, requests: int) -> None:
        """Say how many requests a first baseline of `tier` needs."""
        self._needed[tier] = requests

    def progress(self, lane: Lane) -> int:
        """Return the requests collected for a lane that has no baseline yet."""
        known = self._lanes.get(lane)
        return known.progress if known else 0

    def set_progress(self, lane: Lane, requests: int) -> None:
        """Correct the progress of a lane, by what the store really has."""
        known = self._lanes.get(lane)
        if known is not None:
            known.progress = requests
