"""Counts come back as they were counted, in order, and merge to minutes without loss."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from collector.store import ticks
from collector.store.packing import pack, unpack
from collector.store.retention import Ages, sweep
from collector.store.session import StoreError
from collector.store.store import Store
from detectors.records import TIER_SCOPE, IntArray, Scope, Tick
from detectors.signals import REQUEST_SIGNALS, grid_of
from tests.builders import START, a_tick

pytestmark = pytest.mark.anyio

LANE = ("chat", TIER_SCOPE, "v1")
RNG = np.random.default_rng(7)


def counted(number: int, **changes: object) -> Tick:
    """Return a tick of about 40 requests with two signals."""
    values = {
        "prompt_tokens": RNG.integers(1, 5000, 40).astype(np.float64),
        "output_looping": np.asarray([0.0] * 39 + [1.0]),
    }
    return replace(a_tick(values, number=number), **changes)  # type: ignore[arg-type]  # fields of Tick


def same(left: Tick, right: Tick) -> bool:
    """Whether two ticks are equal, arrays and all."""
    assert left.counts.keys() == right.counts.keys()
    for signal, counts in left.counts.items():
        assert_array_equal(counts, right.counts[signal])
    return replace(left, counts={}) == replace(right, counts={})


def total(found: list[Tick], signal: str = "prompt_tokens") -> IntArray:
    summed: IntArray = np.stack([tick.counts[signal] for tick in found]).sum(axis=0)
    return summed


async def test_ticks_come_back_in_order_of_time(store: Store) -> None:
    kept = [counted(number) for number in range(5)]
    await store.write(ticks.append, [kept[3], kept[0], kept[4]])
    await store.write(ticks.append, [kept[2], kept[1]])

    found = await store.read(ticks.load, LANE)

    assert all(same(*pair) for pair in zip(found, kept, strict=True))


async def test_only_the_lane_and_span_asked_for_is_read(store: Store) -> None:
    other_scope = counted(1, scope=Scope("segment", "batch"))
    other_variant = counted(1, variant="v2")
    await store.write(
        ticks.append, [*(counted(number) for number in range(5)), other_scope, other_variant]
    )

    found = await store.read(
        ticks.load,
        LANE,
        since=START + timedelta(seconds=5),
        until=START + timedelta(seconds=15),
    )

    assert [tick.number for tick in found] == [1, 2]


async def test_a_tick_written_again_is_kept_once(store: Store) -> None:
    tick = counted(1)
    await store.write(ticks.append, [tick])

    await store.write(ticks.append, [tick])

    (found,) = await store.read(ticks.load, LANE)
    assert same(found, tick)


async def test_two_parts_of_one_tick_add(store: Store) -> None:
    first = counted(1)
    second = counted(1, start=first.start + timedelta(seconds=3))
    await store.write(ticks.append, [first])

    await store.write(ticks.append, [second])

    (found,) = await store.read(ticks.load, LANE)
    assert same(found, first.plus(second))


async def test_more_rows_than_fit_are_merged_evenly(store: Store) -> None:
    kept = [counted(number) for number in range(10)]
    await store.write(ticks.append, kept)

    found = await store.read(ticks.load, LANE, most=4)

    assert [tick.number for tick in found] == [0, 3, 6, 9]
    assert [tick.duration_seconds for tick in found] == [15, 15, 15, 5]
    assert sum(tick.requests for tick in found) == 400
    assert_array_equal(total(found), total(kept))


async def test_requests_are_counted_by_lane(store: Store) -> None:
    segment = counted(2, scope=Scope("segment", "batch"))
    await store.write(ticks.append, [counted(1), counted(2), segment])

    found = await store.read(ticks.count_requests)

    assert found == {LANE: 80, ("chat", Scope("segment", "batch"), "v1"): 40}


async def test_the_end_of_the_newest_tick_shows_the_gap(store: Store) -> None:
    before = await store.read(ticks.newest_end)
    await store.write(ticks.append, [counted(1), counted(2)])

    assert before is None
    assert await store.read(ticks.newest_end) == START + timedelta(seconds=15)


async def test_old_ticks_merge_to_minutes_without_loss(store: Store) -> None:
    segment = Scope("segment", "batch")
    kept = [counted(number) for number in range(30)]
    await store.write(ticks.append, [*kept, *(replace(tick, scope=segment) for tick in kept)])
    noon = START + timedelta(hours=24, seconds=125)

    swept = await sweep(store, Ages(), now=noon)
    again = await sweep(store, Ages(), now=noon)

    found = await store.read(ticks.load, LANE)
    assert (swept.merged_ticks, again.merged_ticks) == (48, 0)
    assert [tick.duration_seconds for tick in found] == [60, 60, *[5] * 6]
    assert [tick.number for tick in found][:3] == [0, 12, 24]
    assert_array_equal(total(found), total(kept))
    assert len(await store.read(ticks.load, ("chat", segment, "v1"))) == 8


async def test_minutes_are_removed_at_their_age(store: Store) -> None:
    await store.write(ticks.append, [counted(number) for number in range(24)])

    swept = await sweep(store, Ages(), now=START + timedelta(days=35, seconds=61))

    assert (swept.merged_ticks, swept.ticks) == (24, 2)
    assert await store.read(ticks.load, LANE) == []


async def test_nothing_to_append_is_fine(store: Store) -> None:
    await store.write(ticks.append, [])

    assert await store.read(ticks.load, LANE) == []


@given(st.data())
def test_counts_of_any_size_come_back(data: st.DataObject) -> None:
    row = data.draw(st.sampled_from(REQUEST_SIGNALS))
    counts = np.zeros(grid_of(row.name).bins, dtype=np.int64)
    places = data.draw(st.dictionaries(st.integers(0, len(counts) - 1), st.integers(0, 2**62)))
    for place, value in places.items():
        counts[place] = value

    found = unpack(pack({row.name: counts}))

    assert_array_equal(found[row.name], counts)


def test_a_full_row_is_small() -> None:
    values = {
        row.name: grid_of(row.name).array.mean() + RNG.normal(0, 1, 200) for row in REQUEST_SIGNALS
    }
    counts = a_tick(values).counts

    assert len(pack(counts)) < 5_000


def test_counts_on_another_grid_are_left_out() -> None:
    known = pack({"prompt_tokens": np.ones(grid_of("prompt_tokens").bins, dtype=np.int64)})
    plain = zstandard.ZstdDecompressor().decompress(known[1:])
    older = plain.replace(b"size-v1", b"size-v0")
    gone = plain.replace(b"prompt_tokens", b"prompt_gizmos")

    assert unpack(b"\x01" + zstandard.ZstdCompressor().compress(older)) == {}
    assert unpack(b"\x01" + zstandard.ZstdCompressor().compress(gone)) == {}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "counts of version none, this build reads 01"),
        (b"\x02abc", "counts of version 02"),
        (b"\x01abc", "cannot be read back"),
        (b"\x01" + zstandard.ZstdCompressor().compress(b"\xc1"), "cannot be read back"),
    ],
)
def test_damaged_counts_are_said(data: bytes, message: str) -> None:
    with pytest.raises(StoreError, match=message):
        unpack(data)
