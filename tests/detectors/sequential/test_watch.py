"""All tiers in one step: same counts, late and repeated ticks, new streams, save and load."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from detectors.records import IntArray
from detectors.sequential import watch as core
from detectors.sequential.band import make_band
from detectors.sequential.bets import Bets
from detectors.sequential.evidence import make_table, placement
from detectors.sequential.tiers import TIERS
from detectors.sequential.watch import Plan, Watch, aligned, load, rebased, save, start, step
from tests.detectors.sequential.drawn import bets_of, by_tick, counted

REFERENCE = counted(np.random.default_rng(0).normal(size=50_000))
BETS: Mapping[str, Bets] = {
    tier.name: bets_of(make_band(REFERENCE, gate=tier.gate, tau=1.2)) for tier in TIERS
}
BINS = len(BETS["page"].band.counts)


def a_plan(*keys: str, single: bool = True) -> Plan:
    streams = len(keys)
    dtype = np.float32 if single else np.float64
    tables = {
        tier.name: make_table([BETS[tier.name]], level=tier.budget.level(2000), dtype=dtype)
        for tier in TIERS
    }
    return Plan(keys, tables, placement(np.zeros(streams, int)), np.full(streams, 1.2))


def ticks(streams: int, many: int, *, seed: int = 1, mean: float = 0.0) -> IntArray:
    values = np.random.default_rng(seed).normal(mean, 1, size=(streams, many * 40))
    return by_tick(values, BETS["page"].band, 40)


def fed(watch: Watch, plan: Plan, counts: IntArray, *, first: int = 0) -> Watch:
    for number, some in enumerate(counts, start=first):
        watch, _ = step(watch, plan, number=number, seconds=5.0, counts=some)
    return watch


def growths(watch: Watch) -> list[np.ndarray]:
    return [watch.evidence[tier.name].growth for tier in TIERS]


def test_narrow_gates_alarm_first_and_quiet_streams_never() -> None:
    plan = a_plan("quiet", "moved")
    watch = fed(start(plan), plan, ticks(2, 40))
    moved = ticks(2, 60, seed=2)
    moved[:, 1] = ticks(1, 60, seed=3, mean=1.0)[:, 0]

    watch = fed(watch, plan, moved, first=40)

    raised = [int(watch.evidence[tier.name].raised[1]) for tier in TIERS]
    assert 40 <= raised[0] <= raised[1] <= raised[2] <= 46
    assert [int(watch.evidence[tier.name].alarms[0]) for tier in TIERS] == [0, 0, 0]


def test_a_tick_that_comes_again_or_late_changes_nothing_and_is_counted() -> None:
    plan = a_plan("a")
    counts = ticks(1, 10)
    watch = fed(start(plan), plan, counts)

    again, outcome = step(watch, plan, number=9, seconds=5.0, counts=counts[9])
    again, _ = step(again, plan, number=3, seconds=5.0, counts=counts[3])

    assert outcome == {}
    assert again.repeated == 2
    for mine, theirs in zip(growths(again), growths(watch), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_new_streams_start_at_nothing_and_others_go_on() -> None:
    plan, wider = a_plan("a", "b"), a_plan("new", "b", "a")
    before = fed(start(plan), plan, ticks(2, 20))

    after = aligned(before, wider)

    for mine, theirs in zip(growths(after), growths(before), strict=True):
        np.testing.assert_array_equal(mine[[2, 1]], theirs)
        assert not mine[0].any()
    assert aligned(after, wider) is after
    fed(after, wider, ticks(3, 2), first=20)


def test_another_baseline_is_another_key_and_starts_at_nothing() -> None:
    plan = a_plan("chat|bl_1")
    before = fed(start(plan), plan, ticks(1, 20))

    after = aligned(before, a_plan("chat|bl_2"))

    assert not any(growth.any() for growth in growths(after))
    assert not any(block.counts.any() for block in after.history.blocks)


def test_a_tier_that_is_added_starts_at_nothing() -> None:
    plan = a_plan("a")
    less = replace(plan, tables={"page": plan.tables["page"]})
    before = fed(start(less), less, ticks(1, 20))

    after = aligned(before, plan)

    assert after.evidence["page"].growth.any()
    assert not after.evidence["trip"].growth.any()


def test_evidence_of_another_precision_starts_at_nothing() -> None:
    plan = a_plan("a", single=False)
    before = fed(start(plan), plan, ticks(1, 20))

    after = aligned(before, a_plan("a", single=True))

    assert {growth.dtype for growth in growths(after)} == {np.dtype(np.float32)}
    assert not any(growth.any() for growth in growths(after))


@pytest.mark.parametrize("single", [True, False])
def test_a_memory_survives_save_and_load(single: bool) -> None:
    plan = a_plan("a", "b", single=single)
    watch = fed(start(plan), plan, ticks(2, 50, mean=0.8))

    back = load(save(watch, mark="page/1"), mark="page/1")

    more = ticks(2, 50, seed=9)
    left, right = fed(watch, plan, more, first=50), fed(back, plan, more, first=50)
    for mine, theirs in zip(growths(left), growths(right), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert save(left, mark="m") == save(right, mark="m")
    assert (back.keys, back.number, back.repeated) == (watch.keys, 49, 0)
    assert back.evidence["inform"].alarms.tolist() == watch.evidence["inform"].alarms.tolist()


def test_an_empty_memory_survives_save_and_load() -> None:
    watch = start(a_plan())

    assert load(save(watch, mark="m"), mark="m").keys == ()


def test_a_memory_of_other_settings_is_refused() -> None:
    data = save(start(a_plan("a")), mark="page/A=1")

    with pytest.raises(ValueError, match="start with a new memory"):
        load(data, mark="page/A=2")


def test_a_damaged_memory_is_refused() -> None:
    watch = start(a_plan("a", "b"))
    data = save(replace(watch, keys=("a", "b", "c")), mark="m")

    with pytest.raises(ValueError, match="start with a new memory"):
        load(data, mark="m")


def test_after_a_clock_that_was_set_back_evidence_goes_on_and_dates_start_anew() -> None:
    plan = a_plan("a")
    watch = fed(start(plan), plan, ticks(1, 20), first=1000)

    watch, outcome = step(rebased(watch), plan, number=3, seconds=5.0, counts=ticks(1, 1)[0])

    assert set(outcome) == {tier.name for tier in TIERS}
    assert [block.first for block in watch.history.blocks] == [3]


def test_counts_of_another_layout_are_refused() -> None:
    plan = a_plan("a")

    with pytest.raises(ValueError, match="lay them out by the same plan"):
        step(start(plan), plan, number=0, seconds=5.0, counts=np.zeros((2, BINS), dtype=np.int64))


def test_memory_is_bounded_however_long_it_runs() -> None:
    plan = a_plan("a", "b")
    counts = ticks(2, 10)
    watch = fed(start(plan), plan, np.concatenate([counts] * 60))
    held = watch.history.held_bytes

    watch = fed(watch, plan, np.concatenate([counts] * 300), first=600)

    assert watch.history.held_bytes <= 2 * held
    assert len(save(watch, mark=core.__name__)) < 20_000
