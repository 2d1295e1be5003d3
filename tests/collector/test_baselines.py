"""Baselines come by themselves: collected, frozen, promoted by a person or where it is allowed."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import count

import numpy as np
import pytest

from collector.baselines import AUTO_AUTHOR, BaselineKeeper
from collector.health import Health
from collector.state import Lane, State
from detectors.baseline import Baseline, Stage, make_baseline, promoted
from detectors.records import TIER_SCOPE, Tick
from tests.builders import START, a_batch, a_tick

pytestmark = pytest.mark.anyio
LANE: Lane = ("chat", TIER_SCOPE, "v1")


@dataclass
class Shelf:
    """A store in memory."""

    ticks: dict[Lane, list[Tick]] = field(default_factory=dict)
    baselines: dict[str, Baseline] = field(default_factory=dict)

    async def load_baselines(self) -> list[Baseline]:
        return list(self.baselines.values())

    async def save_baseline(self, baseline: Baseline) -> None:
        self.baselines[baseline.id] = baseline

    async def load_ticks(self, lane: Lane) -> list[Tick]:
        return self.ticks.get(lane, [])

    async def count_requests(self) -> Mapping[Lane, int]:
        return {lane: sum(t.requests for t in ticks) for lane, ticks in self.ticks.items()}


def a_state() -> State:
    moments = count(0.0, 1.0)
    return State(tick_seconds=5.0, now=lambda: START, monotonic=lambda: next(moments))


def a_keeper(
    state: State, shelf: Shelf, *, auto: bool = False, needed: int = 100
) -> BaselineKeeper:
    keeper = BaselineKeeper(
        state=state, store=shelf, now=lambda: START + timedelta(hours=1), health=Health()
    )
    keeper.configure(auto_promote={"chat": auto}, needed={"chat": needed})
    return keeper


async def collect(state: State, shelf: Shelf, requests: int) -> None:
    """Count `requests` and store their ticks, as the service does."""
    rng = np.random.default_rng(requests)
    for _ in range(4):
        values = rng.lognormal(5, 1, requests // 4)
        state.count(a_batch({"prompt_tokens": list(values)}, segment=""))
        for tick in state.close_tick():
            shelf.ticks.setdefault((tick.tier, tick.scope, tick.variant), []).append(tick)


async def test_too_few_requests_make_no_baseline_and_show_their_progress() -> None:
    state, shelf = a_state(), Shelf()
    keeper = a_keeper(state, shelf)
    await collect(state, shelf, 80)

    made = await keeper.look()
    (panel,) = state.panels([])

    assert made == []
    assert panel.progress.tolist() == [80]
    assert panel.needed == 100


@pytest.mark.parametrize(("auto", "stage"), [(False, Stage.CANDIDATE), (True, Stage.ACTIVE)])
async def test_enough_requests_make_a_candidate_or_an_active_one_where_that_is_allowed(
    auto: bool, stage: Stage
) -> None:
    state, shelf = a_state(), Shelf()
    keeper = a_keeper(state, shelf, auto=auto)
    await collect(state, shelf, 120)

    (made,) = await keeper.look()

    assert made.stage is stage
    assert made.requests == 120
    assert made.author == (AUTO_AUTHOR if auto else "")
    assert shelf.baselines == {made.id: made}
    assert state.baselines[LANE] is made
    assert await keeper.look() == []


async def test_a_baseline_is_made_only_of_what_the_store_really_has() -> None:
    state, shelf = a_state(), Shelf()
    keeper = a_keeper(state, shelf)
    await collect(state, shelf, 120)
    del shelf.ticks[LANE][1:]  # a store that lost most of it

    made = await keeper.look()

    assert made == []
    assert state.progress(LANE) == 30


async def test_a_lane_without_any_signal_holds_up_no_other() -> None:
    state, shelf = a_state(), Shelf()
    keeper = a_keeper(state, shelf)
    for _ in range(150):
        state.count(a_batch({}, segment="", variant="a-first"))
    state.count(replace(a_batch({}, segment="", variant="a-first"), size=200))
    for tick in state.close_tick():
        shelf.ticks.setdefault((tick.tier, tick.scope, tick.variant), []).append(tick)
    await collect(state, shelf, 120)

    made = await keeper.look()

    assert [baseline.variant for baseline in made] == ["v1"]


async def test_making_a_baseline_does_not_hold_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[bool] = []

    def watched(ticks: Sequence[Tick], *, made_at: datetime, provenance: str) -> Baseline:
        threads.append(threading.current_thread() is threading.main_thread())
        return make_baseline(ticks, made_at=made_at, provenance=provenance)

    monkeypatch.setattr("collector.baselines.make_baseline", watched)
    state, shelf = a_state(), Shelf()
    keeper = a_keeper(state, shelf)
    await collect(state, shelf, 120)

    await keeper.look()

    assert threads == [False]


async def test_a_restart_goes_on_collecting_where_it_was() -> None:
    shelf = Shelf()
    before = a_state()
    await collect(before, shelf, 60)
    after = a_state()
    keeper = a_keeper(after, shelf)

    await keeper.start()
    await collect(after, shelf, 60)
    (made,) = await keeper.look()

    assert made.requests == 120


async def test_after_a_restart_the_active_baseline_is_used_and_a_newer_candidate_is_not() -> None:
    rng = np.random.default_rng(1)
    ticks = [a_tick({"prompt_tokens": rng.lognormal(5, 1, 50)}, number=n) for n in range(30)]
    old = make_baseline(ticks[:15], made_at=START, provenance="first")
    active = promoted(old, author="tests", reason="good")
    newer = make_baseline(ticks[15:], made_at=START + timedelta(days=1), provenance="second")
    retired = replace(newer, id="bl_retired", stage=Stage.RETIRED)
    shelf = Shelf(baselines={b.id: b for b in (newer, active, retired)})
    state = a_state()

    await a_keeper(state, shelf).start()
    (panel,) = state.panels(state.close_tick())

    assert state.baselines[LANE].id == active.id
    (reference,) = panel.references  # laid out before the first request: silence is told
    assert reference is not None
    assert reference.baseline == active.id


async def test_a_promotion_by_a_command_is_taken_over() -> None:
    state, shelf = a_state(), Shelf()
    keeper = a_keeper(state, shelf)
    await collect(state, shelf, 120)
    (made,) = await keeper.look()
    shelf.baselines[made.id] = promoted(made, author="tests", reason="good")

    await keeper.adopt()

    assert state.baselines[LANE].stage is Stage.ACTIVE
