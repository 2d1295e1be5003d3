"""Counts, panels and memories: what the process remembers, and its bounds."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pytest

from collector.state import IDLE_SECONDS, MAX_LANES, State
from detectors.baseline import make_baseline
from detectors.records import TIER_SCOPE, Scope
from detectors.signals import grid_of
from tests.builders import START, a_batch, a_reading, a_tick


def a_state() -> State:
    return State(tick_seconds=5.0, started=START, monotonic_seconds=1000.0)


def test_a_batch_is_counted_for_its_tier_and_for_its_segment() -> None:
    state = a_state()

    state.count(a_batch({"prompt_tokens": [10, 20, float("nan")]}, segment="search"))
    ticks = state.close_tick(START + timedelta(seconds=5), 1005.0)

    scopes = {str(tick.scope): tick for tick in ticks}
    assert set(scopes) == {"tier", "segment:search"}
    assert scopes["tier"].requests == 3
    assert scopes["tier"].counts["prompt_tokens"].sum() == 2  # NaN is a request without the value
    assert scopes["tier"].duration_seconds == 5.0


def test_counts_of_two_halves_add_to_the_whole() -> None:
    halves, whole = a_state(), a_state()
    first = a_batch({"prompt_tokens": [1, 500]})
    second = a_batch({"prompt_tokens": [30_000], "temperature": [0.7]})

    halves.count(first)
    (left, *_) = halves.close_tick(START, 1005.0)
    other = a_state()
    other.count(second)
    (right, *_) = other.close_tick(START, 1005.0)
    whole.count(first)
    whole.count(second)
    (both, *_) = whole.close_tick(START, 1005.0)

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
    state = a_state()
    numbers: list[int] = []
    for seconds in (5, 10, -3600, 15, 7200):
        state.count(a_batch({"prompt_tokens": [1]}))
        ticks = state.close_tick(START + timedelta(seconds=seconds), 1000.0 + len(numbers))
        numbers.append(ticks[0].number)

    assert numbers == sorted(set(numbers))


def test_a_panel_lays_all_streams_side_by_side_and_pads_with_zeros() -> None:
    state = a_state()
    state.count(a_batch({"prompt_tokens": [10, 20], "output_length_capped": [0, 1]}))
    ticks = state.close_tick(START, 1005.0)

    (panel,) = state.panels(ticks, START + timedelta(seconds=2))

    assert [(str(s.scope), s.signal) for s in panel.streams] == [
        ("segment:other", "prompt_tokens"),
        ("segment:other", "output_length_capped"),
        ("tier", "prompt_tokens"),
        ("tier", "output_length_capped"),
    ]
    assert panel.counts.shape == (4, grid_of("prompt_tokens").bins)
    assert panel.counts.sum(axis=1).tolist() == [2, 2, 2, 2]
    assert panel.ages_seconds.tolist() == [2.0] * 4
    assert panel.references == (None,) * 4
    assert panel.progress.tolist() == [2, 2, 2, 2]


def test_a_quiet_tick_still_gives_a_panel_of_zeros_that_grows_old() -> None:
    state = a_state()
    state.count(a_batch({"prompt_tokens": [10]}))
    state.close_tick(START, 1005.0)

    ticks = state.close_tick(START + timedelta(seconds=60), 1060.0)
    (panel,) = state.panels(ticks, START + timedelta(seconds=60))

    assert ticks == []
    assert panel.counts.sum() == 0
    assert panel.ages_seconds.min() == 60.0


def test_a_baseline_is_the_reference_of_its_own_lane_only() -> None:
    state = a_state()
    state.count(a_batch({"prompt_tokens": [10]}, segment="search"))
    ticks = state.close_tick(START, 1005.0)
    rng = np.random.default_rng(1)
    made = make_baseline(
        [a_tick({"prompt_tokens": rng.lognormal(5, 1, 100)}, number=n) for n in range(30)],
        made_at=START,
        provenance="test",
    )

    state.use_baseline(made)
    (panel,) = state.panels(ticks, START)

    found = {stream.scope: ref for stream, ref in zip(panel.streams, panel.references, strict=True)}
    assert found[TIER_SCOPE] is made.signals["prompt_tokens"]
    assert found[Scope("segment", "search")] is None


def test_variants_beyond_the_bound_are_refused_and_counted() -> None:
    state = a_state()
    for number in range(MAX_LANES + 10):
        state.count(a_batch({"prompt_tokens": [1]}, segment="", variant=f"v{number}"))

    assert len(state.lanes) == MAX_LANES
    assert state.refused_batches == 10


def test_a_lane_without_traffic_makes_room_and_its_baseline_stays() -> None:
    state = a_state()
    state.count(a_batch({"prompt_tokens": [1]}, segment="", variant="old"))
    state.close_tick(START, 1005.0)
    later = START + timedelta(seconds=IDLE_SECONDS + 1)
    state.count(a_batch({"prompt_tokens": [1]}, segment="", variant="new", seconds=IDLE_SECONDS))
    ticks = state.close_tick(later, 5000.0)

    gone = state.forget_idle(later)
    (panel,) = state.panels(ticks, later)

    assert gone == [("chat", TIER_SCOPE, "old")]
    assert [stream.variant for stream in panel.streams] == ["new"]
    assert state.progress(("chat", TIER_SCOPE, "old")) == 1


def test_a_forgotten_target_leaves_nothing_behind() -> None:
    state = a_state()
    state.see(a_reading(target="a"))
    state.remember(("limit", "chat", "a"), "memory of a")
    state.remember(("limit", "chat", "b"), "memory of b")

    state.forget_target("chat", "a")

    assert state.readings == {}
    assert state.memory(("limit", "chat", "a"), lambda: "new") == "new"
    assert state.memory(("limit", "chat", "b"), lambda: "new") == "memory of b"
