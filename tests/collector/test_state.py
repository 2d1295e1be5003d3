"""Counts, panels and memories: what the process remembers, and its bounds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import numpy as np
import pytest

from collector.state import IDLE_SECONDS, MAX_LANES, State
from detectors.baseline import make_baseline
from detectors.records import TIER_SCOPE, Scope
from detectors.signals import grid_of
from tests.builders import START, a_batch, a_reading, a_tick


@dataclass
class Clock:
    """Both clocks of a state: the wall clock may jump, the monotonic one only advances."""

    wall: datetime = START
    monotonic: float = 1000.0

    def forward(self, seconds: float) -> None:
        self.wall += timedelta(seconds=seconds)
        self.monotonic += seconds

    def jump(self, seconds: float) -> None:
        self.wall += timedelta(seconds=seconds)


def a_state(clock: Clock | None = None) -> State:
    clock = clock or Clock()
    return State(tick_seconds=5.0, now=lambda: clock.wall, monotonic=lambda: clock.monotonic)


def test_a_batch_is_counted_for_its_tier_and_for_its_segment() -> None:
    clock = Clock()
    state = a_state(clock)

    state.count(a_batch({"prompt_tokens": [10, 20, float("nan")]}, segment="search"))
    clock.forward(5)
    ticks = state.close_tick()

    scopes = {str(tick.scope): tick for tick in ticks}
    assert set(scopes) == {"tier", "segment:search"}
    assert scopes["tier"].requests == 3
    assert scopes["tier"].counts["prompt_tokens"].sum() == 2  # NaN is a request without the value
    assert scopes["tier"].duration_seconds == 5.0
    assert scopes["tier"].age_seconds == 5.0


def test_counts_made_by_a_worker_are_taken_as_they_are() -> None:
    state = a_state()
    batch = a_batch({"prompt_tokens": [10, 20]})
    counts = {"prompt_tokens": grid_of("prompt_tokens").count(np.asarray([7.0, 7.0]))}

    state.count(replace(batch, counts=counts))
    (tick, *_) = state.close_tick()

    assert tick.counts["prompt_tokens"][7] == 2


def test_counts_of_two_halves_add_to_the_whole() -> None:
    halves, whole = a_state(), a_state()
    first = a_batch({"prompt_tokens": [1, 500]})
    second = a_batch({"prompt_tokens": [30_000], "temperature": [0.7]})

    halves.count(first)
    (left, *_) = halves.close_tick()
    other = a_state()
    other.count(second)
    (right, *_) = other.close_tick()
    whole.count(first)
    whole.count(second)
    (both, *_) = whole.close_tick()

    merged = left.plus(right)
    assert merged.requests == both.requests
    assert set(merged.counts) == set(both.counts)
    for signal, counts in both.counts.items():
        assert np.array_equal(merged.counts[signal], counts)


def test_ticks_of_different_numbers_do_not_add() -> None:
    one = a_tick({"prompt_tokens": np.ones(3)}, number=1)
    two = a_tick({"prompt_tokens": np.ones(3)}, number=2)

    with pytest.raises(ValueError, match="only counts of one tick"):
        one.plus(two)


def test_tick_numbers_rise_even_when_the_clock_jumps_back() -> None:
    clock = Clock()
    state = a_state(clock)
    numbers: list[int] = []
    for jump in (0, 0, -3600, 0, 7200):
        state.count(a_batch({"prompt_tokens": [1]}))
        clock.forward(5)
        clock.jump(jump)
        numbers.append(state.close_tick()[0].number)

    assert numbers == sorted(set(numbers))


def test_a_panel_lays_all_streams_side_by_side_and_pads_with_zeros() -> None:
    clock = Clock()
    state = a_state(clock)
    state.count(a_batch({"prompt_tokens": [10, 20], "output_length_capped": [0, 1]}))
    clock.forward(2)

    (panel,) = state.panels(state.close_tick())

    assert [(str(s.scope), s.signal) for s in panel.streams] == [
        ("segment:other", "prompt_tokens"),
        ("segment:other", "output_length_capped"),
        ("tier", "prompt_tokens"),
        ("tier", "output_length_capped"),
    ]
    assert panel.counts.shape == (4, grid_of("prompt_tokens").bins)
    assert panel.counts.sum(axis=1).tolist() == [2, 2, 2, 2]
    assert panel.ages_seconds.tolist() == [2.0] * 4
    assert panel.monotonic_seconds == 1002.0
    assert panel.references == (None,) * 4
    assert panel.progress.tolist() == [2, 2, 2, 2]


@pytest.mark.parametrize("jump", [0, -3600, 7200])
def test_a_quiet_tick_gives_a_panel_of_zeros_that_grows_old_whatever_the_wall_clock_does(
    jump: int,
) -> None:
    clock = Clock()
    state = a_state(clock)
    state.count(a_batch({"prompt_tokens": [10]}))
    state.close_tick()

    clock.jump(jump)
    clock.forward(60)
    ticks = state.close_tick()
    (panel,) = state.panels(ticks)

    assert ticks == []
    assert panel.counts.sum() == 0
    assert panel.ages_seconds.tolist() == [60.0, 60.0]
    assert panel.duration_seconds == 60.0


def test_one_late_straggler_does_not_make_a_fresh_lane_old() -> None:
    clock = Clock()
    state = a_state(clock)
    state.count(a_batch({"prompt_tokens": [10]}, segment=""))
    state.count(a_batch({"prompt_tokens": [10]}, segment="", seconds=-3600))
    clock.forward(1)

    (tick,) = state.close_tick()

    assert tick.age_seconds == 1.0


def test_a_request_without_any_signal_is_counted_and_stops_nothing() -> None:
    state = a_state()
    state.count(a_batch({}, segment="search"))
    state.count(replace(a_batch({"prompt_tokens": [1]}), tier="other"))

    ticks = state.close_tick()
    panels = state.panels(ticks)

    assert [panel.tier for panel in panels] == ["other"]
    assert {tick.tier for tick in ticks} == {"chat", "other"}


def test_a_baseline_is_the_reference_of_its_own_lane_only() -> None:
    state = a_state()
    state.count(a_batch({"prompt_tokens": [10]}, segment="search"))
    ticks = state.close_tick()
    rng = np.random.default_rng(1)
    made = make_baseline(
        [a_tick({"prompt_tokens": rng.lognormal(5, 1, 100)}, number=n) for n in range(30)],
        made_at=START,
        provenance="test",
    )

    state.use_baseline(made)
    (panel,) = state.panels(ticks)

    found = {stream.scope: ref for stream, ref in zip(panel.streams, panel.references, strict=True)}
    assert found[TIER_SCOPE] is made.signals["prompt_tokens"]
    assert found[Scope("segment", "search")] is None


def test_variants_are_bounded_for_each_tier_and_the_one_idle_for_longest_makes_room() -> None:
    clock = Clock()
    state = a_state(clock)
    for number in range(MAX_LANES + 10):
        state.count(a_batch({"prompt_tokens": [1]}, segment="", variant=f"v{number}"))
        clock.forward(1)
        state.close_tick()
    state.count(replace(a_batch({"prompt_tokens": [1]}, segment=""), tier="other"))

    mine = [variant for tier, _, variant in state.lanes if tier == "chat"]
    assert len(mine) == MAX_LANES
    assert "v0" not in mine
    assert f"v{MAX_LANES + 9}" in mine
    assert state.refused_batches == 0
    assert any(tier == "other" for tier, _, _ in state.lanes)


def test_while_every_variant_has_traffic_a_new_one_is_refused_and_counted() -> None:
    state = a_state()
    for number in range(MAX_LANES + 10):
        state.count(a_batch({"prompt_tokens": [1]}, segment="", variant=f"v{number}"))

    assert len(state.lanes) == MAX_LANES
    assert state.refused_batches == 10


def test_a_replaced_variant_is_let_go_and_the_last_one_of_a_scope_never_is() -> None:
    clock = Clock()
    state = a_state(clock)
    state.count(a_batch({"prompt_tokens": [1]}, segment="", variant="old"))
    state.close_tick()
    clock.forward(IDLE_SECONDS + 1)
    state.count(a_batch({"prompt_tokens": [1]}, segment="", variant="new"))
    state.close_tick()

    assert state.forget_idle() == [("chat", TIER_SCOPE, "old")]
    clock.forward(100 * IDLE_SECONDS)
    state.close_tick()
    assert state.forget_idle() == []
    (panel,) = state.panels([])
    assert [stream.variant for stream in panel.streams] == ["new"]
    assert panel.ages_seconds.min() > 99 * IDLE_SECONDS


def test_logs_that_are_shipped_late_keep_their_lane() -> None:
    clock = Clock()
    state = a_state(clock)
    for _ in range(3):
        state.count(a_batch({"prompt_tokens": [1]}, segment="", seconds=-86_400))
        clock.forward(5)
        state.close_tick()
        assert state.forget_idle() == []

    assert state.progress(("chat", TIER_SCOPE, "v1")) == 3


def test_a_forgotten_target_leaves_nothing_behind() -> None:
    state = a_state()
    state.see(a_reading(target="a"))
    state.remember(("limit", "chat", "a"), "memory of a")
    state.remember(("limit", "chat", "b"), "memory of b")

    state.forget_target("chat", "a")

    assert state.readings == {}
    assert state.memory(("limit", "chat", "a"), lambda: "new") == "new"
    assert state.memory(("limit", "chat", "b"), lambda: "new") == "memory of b"


def test_a_forgotten_tier_leaves_nothing_behind() -> None:
    state = a_state()
    state.see(a_reading(target="a"))
    state.remember(("limit", "chat", "a"), "memory")
    state.count(a_batch({"prompt_tokens": [1]}))
    state.need("chat", 100)

    state.forget_tier("chat")

    assert (state.readings, dict(state.memories), state.lanes) == ({}, {}, [])
    assert state.close_tick() == []
    assert state.panels([]) == []
