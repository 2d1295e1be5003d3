"""Bounded memory of the process: open counts, last readings, detector memories, references.

Generations are counted on the grids of their signals into the open tick of their tier and of
their segment, and dropped. Closing a tick yields `Tick`s (to be stored; they merge by addition)
and, for the detectors, one `Panel` a tier that lays all its streams side by side.
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

MAX_LANES = 512  # lanes of all tiers; variants beyond it are counted as refused
IDLE_SECONDS = 3600.0  # a lane without requests for so long makes room (an engine was upgraded)
_ORDER = {row.name: place for place, row in enumerate(REQUEST_SIGNALS)}


@dataclass(slots=True)
class _Open:
    """The open counts of one lane."""

    requests: int = 0
    counts: dict[str, IntArray] = field(default_factory=dict)
    newest_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class _Layout:
    """The rows of a tier's panel, until a stream or a reference is added."""

    streams: tuple[Stream, ...]
    references: tuple[SignalBaseline | None, ...]
    bins: int


class State:
    """What the process remembers between observations. One per process, on the event loop."""

    def __init__(self, *, tick_seconds: float, started: datetime, monotonic_seconds: float) -> None:
        self.readings: dict[tuple[str, str], Reading] = {}
        self.refused_batches = 0
        self._tick_seconds = tick_seconds
        self._tick_start = started
        self._tick_monotonic = monotonic_seconds
        self._tick_number = int(started.timestamp() // tick_seconds)
        self._open: dict[Lane, _Open] = {}
        self._signals: dict[Lane, set[str]] = {}
        self._newest: dict[Lane, datetime] = {}
        self._layouts: dict[str, _Layout] = {}
        self._memories: dict[Place, object] = {}
        self._baselines: dict[Lane, Baseline] = {}
        self._progress: dict[Lane, int] = {}
        self._needed: dict[str, int] = {}

    def see(self, reading: Reading) -> None:
        """Keep the newest reading of a target."""
        self.readings[(reading.tier, reading.target)] = reading

    def forget_target(self, tier: str, target: str) -> None:
        """Drop what is remembered of a target that is no longer configured."""
        self.readings.pop((tier, target), None)
        gone = [place for place in self._memories if place[1:] == (tier, target)]
        for place in gone:
            del self._memories[place]

    def memory(self, place: Place, start: Callable[[], MemoryT]) -> MemoryT:
        """Return the memory kept at `place`, or a new one."""
        kept = self._memories.get(place)
        return start() if kept is None else kept  # type: ignore[return-value]  # one detector, one memory type a place

    def remember(self, place: Place, memory: object) -> None:
        self._memories[place] = memory

    @property
    def memories(self) -> Mapping[Place, object]:
        return self._memories

    def count(self, batch: Batch) -> None:
        """Count a batch into the open tick of its tier and of its segment."""
        for scope in (TIER_SCOPE, Scope("segment", batch.segment)):
            if scope.kind == "segment" and not batch.segment:
                continue
            lane = (batch.tier, scope, batch.variant)
            if lane not in self._signals and len(self._signals) >= MAX_LANES:
                self.refused_batches += 1
                continue
            self._count_lane(lane, batch)

    def _count_lane(self, lane: Lane, batch: Batch) -> None:
        known = self._signals.setdefault(lane, set())
        opened = self._open.setdefault(lane, _Open())
        opened.requests += batch.size
        opened.newest_at = max(opened.newest_at or batch.newest_at, batch.newest_at)
        for signal, values in batch.columns.items():
            counts = grid_of(signal).count(values)
            if signal not in known:
                known.add(signal)
                self._layouts.pop(lane[0], None)
            if signal in opened.counts:
                opened.counts[signal] += counts
            else:
                opened.counts[signal] = counts

    def close_tick(self, now: datetime, monotonic_seconds: float) -> list[Tick]:
        """Close the open tick of every lane; numbers rise even if the clock jumps back."""
        duration = max(monotonic_seconds - self._tick_monotonic, 1e-9)
        ticks = []
        for (tier, scope, variant), opened in self._open.items():
            newest = min(opened.newest_at or now, now)
            self._newest[(tier, scope, variant)] = newest
            ticks.append(
                Tick(
                    tier=tier,
                    scope=scope,
                    variant=variant,
                    number=self._tick_number,
                    start=self._tick_start,
                    duration_seconds=duration,
                    age_seconds=max((now - newest).total_seconds(), 0.0),
                    requests=opened.requests,
                    counts=opened.counts,
                )
            )
        self._open = {}
        for tick in ticks:
            self._add_progress((tick.tier, tick.scope, tick.variant), tick.requests)
        self._tick_number = max(self._tick_number + 1, int(now.timestamp() // self._tick_seconds))
        self._tick_start = now
        self._tick_monotonic = monotonic_seconds
        return ticks

    def forget_idle(self, now: datetime) -> list[Lane]:
        """Drop lanes that had no request for long, and return them; their baselines stay."""
        idle = [
            lane
            for lane, newest in self._newest.items()
            if (now - newest).total_seconds() > IDLE_SECONDS and lane not in self._open
        ]
        for lane in idle:
            del self._newest[lane]
            self._signals.pop(lane, None)
            self._layouts.pop(lane[0], None)
        return idle

    def panels(self, ticks: Iterable[Tick], now: datetime) -> list[Panel]:
        """Lay the closed ticks of each tier side by side; lanes without counts are rows of zeros.

        Every tick must be of the same number. Tiers that never had a generation have no panel.
        """
        by_lane = {(tick.tier, tick.scope, tick.variant): tick for tick in ticks}
        tiers = sorted({lane[0] for lane in self._signals})
        return [self._panel(tier, by_lane, now) for tier in tiers]

    def _panel(self, tier: str, by_lane: Mapping[Lane, Tick], now: datetime) -> Panel:
        layout = self._layouts.get(tier) or self._lay_out(tier)
        rows = len(layout.streams)
        counts = np.zeros((rows, layout.bins), dtype=np.int64)
        ages = np.zeros(rows)
        progress = np.zeros(rows, dtype=np.int64)
        for row, stream in enumerate(layout.streams):
            lane = (tier, stream.scope, stream.variant)
            tick = by_lane.get(lane)
            if tick is not None and stream.signal in tick.counts:
                found = tick.counts[stream.signal]
                counts[row, : len(found)] = found
            newest = self._newest.get(lane)
            ages[row] = max((now - newest).total_seconds(), 0.0) if newest else np.inf
            progress[row] = self._progress.get(lane, 0)
        some = next(iter(by_lane.values()), None)
        return Panel(
            tier=tier,
            number=some.number if some else self._tick_number - 1,
            start=some.start if some else now,
            duration_seconds=some.duration_seconds if some else self._tick_seconds,
            streams=layout.streams,
            references=layout.references,
            counts=counts,
            ages_seconds=ages,
            progress=progress,
            needed=self._needed.get(tier, 0),
        )

    def _lay_out(self, tier: str) -> _Layout:
        lanes = sorted(lane for lane in self._signals if lane[0] == tier)
        streams = tuple(
            Stream(tier, scope, signal, variant)
            for _, scope, variant in lanes
            for signal in sorted(self._signals[(tier, scope, variant)], key=_ORDER.__getitem__)
        )
        references = tuple(self._reference(stream) for stream in streams)
        bins = max(grid_of(stream.signal).bins for stream in streams)
        layout = self._layouts[tier] = _Layout(streams, references, bins)
        return layout

    def _reference(self, stream: Stream) -> SignalBaseline | None:
        baseline = self._baselines.get((stream.tier, stream.scope, stream.variant))
        return baseline.signals.get(stream.signal) if baseline else None

    @property
    def baselines(self) -> Mapping[Lane, Baseline]:
        return self._baselines

    @property
    def lanes(self) -> list[Lane]:
        return sorted(self._signals)

    def use_baseline(self, baseline: Baseline) -> None:
        """Judge the lane of `baseline` against it from the next panel on."""
        self._baselines[(baseline.tier, baseline.scope, baseline.variant)] = baseline
        self._layouts.pop(baseline.tier, None)

    def need(self, tier: str, requests: int) -> None:
        """Say how many requests a first baseline of `tier` needs."""
        self._needed[tier] = requests

    def progress(self, lane: Lane) -> int:
        """Return the requests collected for a lane that has no baseline yet."""
        return self._progress.get(lane, 0)

    def set_progress(self, lane: Lane, requests: int) -> None:
        self._progress[lane] = requests

    def _add_progress(self, lane: Lane, requests: int) -> None:
        if lane not in self._baselines:
            self._progress[lane] = self._progress.get(lane, 0) + requests
