"""From batches over state and panels to the sequential detector: its promises, on the real path.

Seeds are fixed; measured numbers are shown with -s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import numpy as np
import pytest

from collector.state import State
from detectors.baseline import Stage, make_baseline, promoted
from detectors.records import TIER_SCOPE, Batch, FloatArray, Level, Panel, Scope, Tick, Verdict
from detectors.sequential.memory import Memory
from detectors.sequential.nulls import make_null
from detectors.sequential_drift import SequentialDrift, SequentialDriftConfig
from detectors.signals import grid_of
from tests.builders import START
from tests.detectors.sequential.drawn import told

LENGTH = "prompt_tokens"
SECONDS = 5.0
EDGES = grid_of(LENGTH).array


@dataclass
class Clock:
    """A wall and a monotonic clock that move together unless told otherwise."""

    seconds: float = 0.0
    offset: timedelta = field(default_factory=timedelta)

    def now(self) -> datetime:
        return START + timedelta(seconds=self.seconds) + self.offset

    def monotonic(self) -> float:
        return 1000.0 + self.seconds


class Tier:
    """A tier `chat` whose generations are counted by the state; a segment a stream."""

    def __init__(self, segments: int) -> None:
        self.clock = Clock()
        self.segments = [f"s{number}" for number in range(segments)]
        self.state = State(tick_seconds=SECONDS, now=self.clock.now, monotonic=self.clock.monotonic)

    def send(self, segment: str, values: FloatArray, *, late_seconds: float = 0.0) -> None:
        batch = Batch(
            tier="chat",
            target="a",
            segment=segment,
            variant="v1",
            newest_at=self.clock.now() - timedelta(seconds=late_seconds),
            size=len(values),
            columns={LENGTH: values},
        )
        self.state.count(batch)

    def close(self) -> list[Tick]:
        self.clock.seconds += SECONDS
        return self.state.close_tick()

    def panel(self) -> Panel:
        (panel,) = self.state.panels(self.close())
        return panel

    def use_baselines(self, ticks: dict[Scope, list[Tick]], stage: Stage = Stage.ACTIVE) -> None:
        for found in ticks.values():
            made = make_baseline(found, made_at=self.clock.now(), provenance="ticks")
            if stage is Stage.ACTIVE:
                made = promoted(made, author="a person", reason="known to be good")
            self.state.use_baseline(made)


def lengths(rng: np.random.Generator, size: int, *, longer: float = 0.0) -> FloatArray:
    values = np.rint(rng.lognormal(5, 1, size))
    return np.where(rng.random(size) < longer, 30 * values, values)


def learnt(rng: np.random.Generator, segments: int, *, ticks: int, each: int) -> Tier:
    """Return a tier whose segments (and whole) have active baselines of `ticks` ticks."""
    tier = Tier(segments)
    known: dict[Scope, list[Tick]] = {}
    for _ in range(ticks):
        for segment in tier.segments:
            tier.send(segment, lengths(rng, each))
        for tick in tier.close():
            known.setdefault(tick.scope, []).append(tick)
    tier.use_baselines(known)
    return tier


def steps(
    tier: Tier,
    detector: SequentialDrift,
    ticks: int,
    draw: Callable[[str], FloatArray],
    memory: Memory | None = None,
) -> Iterator[tuple[Memory, dict[Scope, Verdict]]]:
    memory = detector.start() if memory is None else memory
    for _ in range(ticks):
        for segment in tier.segments:
            tier.send(segment, draw(segment))
        memory, verdicts = detector.step(memory, tier.panel())
        yield memory, {verdict.stream.scope: verdict for verdict in verdicts}


def memory_after(ticks: Iterator[tuple[Memory, dict[Scope, Verdict]]]) -> Memory:
    """Run all ticks; return the memory after the last."""
    return list(ticks)[-1][0]


@pytest.mark.slow
def test_false_alarms_at_the_edge_of_the_gate_stay_within_the_budget() -> None:
    rng = np.random.default_rng(21)
    tier = learnt(rng, 20, ticks=200, each=50)
    often = SequentialDriftConfig(false_informs=1000)  # in 30 days: one in 43 min of a stream
    detector = often.build()
    edge: dict[str, FloatArray] = {}
    for lane, baseline in tier.state.baselines.items():
        row = baseline.signals[LENGTH]
        null = make_null(row.counts, traffic=row.traffic, design_effect=1.0, tiers=often.tiers())
        band = null.bets["inform"].band
        edge[lane[1].name] = np.diff(band.low, prepend=0.0, append=1.0)
        edge[lane[1].name + " at"] = np.append(EDGES[band.thresholds], EDGES[-1] + 1)

    def at_edge(segment: str) -> FloatArray:
        return rng.choice(edge[f"{segment} at"], size=20, p=edge[segment])

    ticks = 2000
    memory = memory_after(steps(tier, detector, ticks, at_edge))

    places = [row for row, key in enumerate(memory.watch.keys) if "segment:" in key]
    alarms = int(memory.watch.evidence["inform"].alarms[places].sum())
    allowed = len(places) * ticks * SECONDS / (30 * 86_400 / 1000)
    told(f"alarms at the gate's edge: {alarms} of {allowed:.0f} allowed")
    assert 1 <= alarms <= allowed


def test_quiet_streams_on_the_real_path_are_quiet() -> None:
    rng = np.random.default_rng(22)
    tier = learnt(rng, 5, ticks=120, each=100)
    detector = SequentialDriftConfig(paging_requests=1000).build()

    levels = {
        verdict.level
        for number, (_, verdicts) in enumerate(
            steps(tier, detector, 100, lambda _: lengths(rng, 30))
        )
        for verdict in verdicts.values()
        if number > 2
    }

    assert levels == {Level.OK}


@pytest.mark.slow
def test_five_percent_of_prompts_thirty_times_longer_page_within_the_stated_requests() -> None:
    rng = np.random.default_rng(23)
    each = 20
    tier = learnt(rng, 20, ticks=1000, each=100)
    detector = SequentialDriftConfig().build()
    memory = memory_after(steps(tier, detector, 30, lambda _: lengths(rng, each)))
    paged: dict[Scope, int] = {}

    for number, (_, verdicts) in enumerate(
        steps(tier, detector, 100, lambda _: lengths(rng, each, longer=0.05), memory), start=1
    ):
        for scope, verdict in verdicts.items():
            if verdict.level is Level.CRITICAL:
                paged.setdefault(scope, number * each)

    found = [requests for scope, requests in paged.items() if scope != TIER_SCOPE]
    told(f"5 % x 30, page: median {np.median(found):.0f}, most {max(found)} of {len(found)}")
    assert len(found) == 20
    assert np.median(found) <= 750  # one false page in 90 days of 1,000 streams: 24 nats
    assert max(found) <= 1400


def test_late_requests_count_once_in_the_tick_that_is_open() -> None:
    rng = np.random.default_rng(24)
    tier = learnt(rng, 1, ticks=100, each=100)
    detector = SequentialDriftConfig().build()
    tier.send("s0", lengths(rng, 40))
    memory, _ = detector.step(detector.start(), tier.panel())

    tier.send("s0", lengths(rng, 7), late_seconds=12.0)
    memory, verdicts = detector.step(memory, tier.panel())

    assert memory.requests.tolist() == [47, 47]
    assert memory.watch.repeated == 0
    assert {verdict.samples for verdict in verdicts} == {47}


def test_a_clock_that_is_set_back_over_a_restart_neither_stops_nor_empties_the_evidence() -> None:
    rng = np.random.default_rng(25)
    tier = learnt(rng, 1, ticks=100, each=100)
    detector = SequentialDriftConfig(paging_requests=1000).build()
    memory = memory_after(steps(tier, detector, 6, lambda _: lengths(rng, 30, longer=0.1)))
    baselines = dict(tier.state.baselines)
    saved = detector.save(memory)

    restarted = Tier(1)
    restarted.clock = Clock(tier.clock.seconds + 30, offset=timedelta(hours=-1))
    restarted.state = State(
        tick_seconds=SECONDS, now=restarted.clock.now, monotonic=restarted.clock.monotonic
    )
    for baseline in baselines.values():
        restarted.state.use_baseline(baseline)
    again = SequentialDriftConfig(paging_requests=1000).build()
    ticks = steps(restarted, again, 12, lambda _: lengths(rng, 30, longer=0.1), again.load(saved))

    levels = [verdicts[TIER_SCOPE].level for _, verdicts in ticks]
    fresh = steps(tier, detector, 40, lambda _: lengths(rng, 30, longer=0.1), detector.start())
    anew = [verdicts[TIER_SCOPE].level for _, verdicts in fresh]

    assert levels.index(Level.CRITICAL) < anew.index(Level.CRITICAL)


def test_a_candidate_on_the_real_path_informs_and_never_pages() -> None:
    rng = np.random.default_rng(26)
    tier = Tier(1)
    known: dict[Scope, list[Tick]] = {}
    for _ in range(100):
        tier.send("s0", lengths(rng, 250))
        for tick in tier.close():
            known.setdefault(tick.scope, []).append(tick)
    tier.use_baselines(known, Stage.CANDIDATE)
    detector = SequentialDriftConfig(paging_requests=1000).build()

    found = [
        verdict.level
        for _, verdicts in steps(tier, detector, 60, lambda _: lengths(rng, 50, longer=0.3))
        for verdict in verdicts.values()
    ]

    assert found[-1] is Level.WARNING
    assert Level.CRITICAL not in found
