"""Evidence adds up exactly, merges, restarts, and survives what numbers can do to it."""

from __future__ import annotations

import numpy as np
import pytest

from detectors.records import IntArray
from detectors.sequential import evidence as core
from detectors.sequential.evidence import (
    ROWS_AT_ONCE,
    Tick,
    advance,
    leading,
    make_table,
    no_evidence,
    placement,
    tempered,
)
from detectors.sequential.targets import Target
from tests.detectors.sequential.drawn import Run, a_band, a_run, bets_of, by_tick, quiet

BETS = bets_of(a_band(np.random.default_rng(0), 20_000))
BINS = len(BETS.band.counts)
EMPTY = np.zeros((1, BINS), dtype=np.int64)


def drawn(
    rng: np.random.Generator, *, ticks: int, streams: int = 1, size: int = 20, mean: float = 0.0
) -> IntArray:
    values = rng.normal(mean, 1, size=(streams, ticks * size))
    return by_tick(values, BETS.band, size)


def one(level: float = 1e6, *, streams: int = 1, single: bool = False, tau: float = 1.0) -> Run:
    which = np.zeros(streams, dtype=np.int64)
    return a_run([BETS], which, level=level, single=single, tau=tau)


def test_evidence_is_the_plain_recursion() -> None:
    run, total = one(level=1000.0, tau=1.5), np.zeros(len(BETS.targets))

    for counts in drawn(np.random.default_rng(1), ticks=30):
        run.feed(counts, seconds=5.0)
        total = np.exp(counts[0] @ BETS.log_bets / 1.5) * (total + 5.0)

    np.testing.assert_allclose(run.evidence.growth[0], total, rtol=1e-9)


def test_single_precision_says_the_same_within_a_thousandth() -> None:
    rng = np.random.default_rng(2)
    exact, single = one(1e12, streams=200), one(1e12, streams=200, single=True)

    for counts in drawn(rng, ticks=60, streams=200, mean=0.3):
        exact.feed(counts, seconds=5.0)
        single.feed(counts, seconds=5.0)

    assert single.evidence.growth.dtype == np.float32
    found, known = (np.log(run.evidence.growth.astype(np.float64)) for run in (single, exact))
    near = known > -70  # under it float32 holds at e^-80, which is as good as nothing
    assert near.mean() > 0.95
    assert (np.abs(found - known) <= 1e-3 * np.maximum(np.abs(known), 1))[near].all()
    np.testing.assert_allclose(
        single.evidence.growth @ single.table.weights[0],
        exact.evidence.growth @ exact.table.weights[0],
        rtol=1e-3,
    )


def test_the_order_of_streams_and_their_nulls_does_not_matter() -> None:
    rng = np.random.default_rng(3)
    others = [BETS, bets_of(a_band(rng, 2000)), bets_of(a_band(rng, 500))]
    bins = max(len(some.band.counts) for some in others)
    which = rng.integers(0, 3, size=40)
    counts = rng.integers(0, 3, size=(40, bins)) * (
        np.arange(bins) < np.asarray([len(others[k].band.counts) for k in which])[:, None]
    )
    mixed = a_run(others, which, level=1e9)
    mixed.feed(counts)

    for row, place in enumerate(which):
        alone = a_run([others[place]], np.zeros(1, dtype=np.int64), level=1e9)
        alone.feed(counts[row : row + 1, : len(others[place].band.counts)])
        width = len(others[place].targets)
        np.testing.assert_allclose(
            mixed.evidence.growth[row, :width], alone.evidence.growth[0], rtol=1e-12
        )


def test_parts_are_small_and_hold_every_stream_once() -> None:
    which = np.random.default_rng(4).integers(0, 3, size=5000)

    parts = placement(which).parts

    rows = np.concatenate([np.arange(5000)[rows] for _, rows in parts])
    assert sorted(rows) == list(range(5000))
    assert max(len(np.arange(5000)[rows]) for _, rows in parts) <= ROWS_AT_ONCE
    assert all(isinstance(rows, slice) for _, rows in placement(np.zeros(5000, int)).parts)


def test_what_one_worker_counts_or_two_is_the_same() -> None:
    rng = np.random.default_rng(5)
    whole, halves = one(), one()

    for counts in drawn(rng, ticks=20):
        part = rng.integers(0, counts + 1)
        whole.feed(counts)
        halves.feed(part + (counts - part))

    np.testing.assert_array_equal(whole.evidence.growth, halves.evidence.growth)


def test_an_alarm_starts_the_evidence_anew_and_keeps_its_facts() -> None:
    run = one(level=1e6)
    fired = [bool(run.feed(some)[0]) for some in drawn(np.random.default_rng(6), ticks=60, mean=1)]

    first = fired.index(True)
    assert 1 <= first <= 6
    assert run.evidence.raised[0] == first
    assert run.evidence.peak[0] >= 1
    assert run.evidence.alarms[0] == sum(fired)
    assert run.evidence.again[0] == sum(fired) - 1
    assert sum(fired) >= 5  # the second R finds again what is still there
    winner = BETS.targets[leading(run.evidence, run.table, run.placed, 0)]
    assert winner.kind == "shift"
    assert winner.size > 0.5


def test_a_released_stream_is_quiet_and_can_be_raised_again() -> None:
    run = one(level=1e6)
    for some in drawn(np.random.default_rng(6), ticks=30, mean=1):
        run.feed(some)
    quiet(run)

    assert (run.evidence.raised[0], run.evidence.again[0]) == (-1, 0)
    number = run.number
    for some in drawn(np.random.default_rng(7), ticks=30, mean=1):
        run.feed(some)
    assert run.evidence.raised[0] > number


def test_evidence_before_an_alarm_has_a_leading_target_too() -> None:
    run = one(level=1e30)
    for some in drawn(np.random.default_rng(8), ticks=100, mean=-0.5):
        run.feed(some)

    assert BETS.targets[leading(run.evidence, run.table, run.placed, 0)] == Target("shift", -0.5)


def test_a_tick_without_requests_only_adds_its_time() -> None:
    run = one()
    run.feed(EMPTY, seconds=5.0)
    run.feed(EMPTY, seconds=5.0)

    np.testing.assert_allclose(run.evidence.growth, 10.0)


@pytest.mark.parametrize("single", [False, True])
def test_a_million_requests_in_a_tick_overflow_nothing(single: bool) -> None:
    quiet_counts = np.rint(np.diff(BETS.band.shares, prepend=0, append=1) * 1e6).astype(np.int64)
    moved = np.roll(quiet_counts, 1)
    run = one(level=1e12, single=single)

    with np.errstate(all="raise", under="ignore"):
        for _ in range(5):
            assert not run.feed(quiet_counts[None])[0]
        assert run.feed(moved[None])[0]
        for _ in range(5):
            assert run.feed(moved[None])[0]

    assert np.isfinite(run.evidence.growth).all()
    assert np.isfinite(run.evidence.peak).all()


@pytest.mark.parametrize("single", [False, True])
def test_evidence_just_under_its_level_meets_the_largest_tick(single: bool) -> None:
    run = one(level=1e13, single=single)
    run.evidence.growth[:] = 0.99e13
    flood = EMPTY.copy()
    flood[0, -1] = 10**6

    with np.errstate(over="raise", invalid="raise"):
        assert run.feed(flood)[0]

    assert np.isfinite(run.evidence.peak[0])
    assert run.evidence.growth.max() == 0


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf")])
def test_a_clock_that_jumped_is_refused(seconds: float) -> None:
    with pytest.raises(ValueError, match="expected 0 or more, of the monotonic clock"):
        one().feed(EMPTY, seconds=seconds)


@pytest.mark.parametrize("counts", [np.full((1, BINS), -1), np.full((1, BINS), np.nan)])
def test_counts_that_are_no_counts_are_refused(counts: np.ndarray) -> None:
    with pytest.raises(ValueError, match="expected whole numbers from 0"):
        tempered(counts, np.ones(1), np.dtype(np.float64))


@pytest.mark.parametrize("tau", [0.9, float("nan"), float("inf")])
def test_a_design_effect_under_one_is_refused(tau: float) -> None:
    with pytest.raises(ValueError, match="design effect"):
        tempered(EMPTY, np.asarray([tau]), np.dtype(np.float64))


@pytest.mark.parametrize("level", [0.0, -1.0, float("nan"), 1e15])
def test_a_level_that_the_type_cannot_hold_is_refused(level: float) -> None:
    with pytest.raises(ValueError, match="use float64 or a larger budget"):
        make_table([BETS], level=level, dtype=np.float32)


def test_a_step_changes_nothing_that_it_was_given() -> None:
    table = make_table([BETS], level=1.0, dtype=np.float64)
    before = no_evidence(2, table.weights.shape[1], np.float64)
    copies = [np.copy(getattr(before, name)) for name in ("growth", "raised", "peak", "alarms")]
    counts = drawn(np.random.default_rng(0), ticks=1, streams=2, mean=3.0)[0].astype(np.float64)

    after, outcome = advance(before, Tick(3, 5.0, counts), table, placement(np.zeros(2, int)))

    assert outcome.fired.all()
    assert (after.raised == 3).all()
    for name, copy in zip(("growth", "raised", "peak", "alarms"), copies, strict=True):
        np.testing.assert_array_equal(getattr(before, name), copy)


def test_a_null_of_everything_never_has_evidence() -> None:
    wide = bets_of(a_band(np.random.default_rng(0), 3, tau=3.0))
    run = a_run([wide], np.zeros(1, dtype=np.int64), level=1.0)

    run.feed(np.full((1, len(wide.band.counts)), 100), seconds=100.0)

    assert wide.targets == ()
    assert run.evidence.alarms[0] == 0


def test_other_rows_are_picked_with_their_evidence() -> None:
    run = one(streams=3)
    for some in drawn(np.random.default_rng(9), ticks=4, streams=3, mean=1.0):
        run.feed(some)

    some = core.picked(run.evidence, np.asarray([2, -1, 0]), len(BETS.targets) + 2)

    width = len(BETS.targets)
    np.testing.assert_array_equal(some.growth[0, :width], run.evidence.growth[2])
    np.testing.assert_array_equal(some.growth[2, :width], run.evidence.growth[0])
    assert (some.growth[1].any(), some.raised[1]) == (False, -1)
    assert (some.raised[[0, 2]] == run.evidence.raised[[2, 0]]).all()
