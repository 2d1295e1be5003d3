"""The history: exact sums, bounded, finer the newer, and the start of a change."""

from __future__ import annotations

import numpy as np

from detectors.sequential import history
from detectors.sequential.history import History, onset, remembered, window
from detectors.sequential.targets import Target
from tests.detectors.sequential.drawn import a_band, bets_of, by_tick

BETS = bets_of(a_band(np.random.default_rng(0), 20_000))
SHIFT = BETS.log_bets[:, BETS.targets.index(Target("shift", 0.5))]


def filled(ticks: int, *, streams: int = 3, bins: int = 5) -> tuple[History, np.ndarray]:
    counts = np.random.default_rng(1).integers(0, 400, size=(ticks, streams, bins))
    found = History()
    for number, some in enumerate(counts):
        found = remembered(found, number, some)
    return found, counts


def test_nothing_is_lost_until_the_oldest_block_goes() -> None:
    found, counts = filled(1500)

    total = sum(block.counts.astype(np.int64) for block in found.blocks)
    np.testing.assert_array_equal(total, counts.sum(axis=0))
    assert sum(block.ticks for block in found.blocks) == 1500


def test_the_history_is_bounded_and_reaches_back_hours() -> None:
    found, counts = filled(6000)

    held = sum(block.ticks for block in found.blocks)
    assert len(found.blocks) <= 40
    assert held >= 2048
    total = sum(block.counts.astype(np.int64) for block in found.blocks)
    np.testing.assert_array_equal(total, counts[-held:].sum(axis=0))


def test_counts_of_quiet_ticks_take_a_byte() -> None:
    found = remembered(History(), 0, np.full((10, 4), 200))

    assert found.held_bytes == 40
    assert remembered(found, 1, np.full((10, 4), 300)).held_bytes == 120


def test_a_block_is_shorter_than_what_came_after_it() -> None:
    found, _ = filled(2000)

    for place, block in enumerate(found.blocks[:-1]):
        assert block.ticks <= sum(newer.ticks for newer in found.blocks[place + 1 :])


def test_a_window_holds_what_was_asked_or_a_little_more() -> None:
    found, counts = filled(100)

    np.testing.assert_array_equal(window(found, 1, 3), counts[-3:, 1].sum(axis=0))
    several = window(found, 1, 30).sum()
    assert counts[-30:, 1].sum() <= several <= counts[-40:, 1].sum()
    assert window(History(), 0, 3).tolist() == []


def test_the_start_of_a_change_is_found_to_the_tick() -> None:
    rng = np.random.default_rng(2)
    values = rng.normal(size=(1, 300 * 50))
    values[:, 294 * 50 :] += 0.7
    found = History()
    for number, some in enumerate(by_tick(values, BETS.band, 50)):
        found = remembered(found, number, some)

    start = onset(found, 0, SHIFT)

    assert start is not None
    assert abs(start.number - 294) <= 1
    assert start.requests == (300 - start.number) * 50
    assert not start.whole


def test_a_change_older_than_the_history_is_said_to_be_older() -> None:
    found = History()
    values = np.random.default_rng(3).normal(1.0, 1, size=(1, 200))
    for number, some in enumerate(by_tick(values, BETS.band, 20)):
        found = remembered(found, number, some)

    start = onset(found, 0, SHIFT)

    assert start is not None
    assert start.whole
    assert onset(History(), 0, SHIFT) is None


def test_other_rows_are_picked_and_new_ones_are_empty() -> None:
    found, counts = filled(20)

    some = history.picked(found, np.asarray([2, -1]), 7)

    np.testing.assert_array_equal(window(some, 0, 20)[:5], counts[:, 2].sum(axis=0))
    assert window(some, 0, 20)[5:].sum() == 0
    assert window(some, 1, 20).sum() == 0


def test_an_old_history_is_not_changed_by_a_new_tick() -> None:
    found, counts = filled(8)
    before = [block.counts.copy() for block in found.blocks]

    remembered(found, 8, counts[0])

    for block, copy in zip(found.blocks, before, strict=True):
        np.testing.assert_array_equal(block.counts, copy)
