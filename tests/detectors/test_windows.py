"""Rolling counts: exact, bounded, and the same whoever counted."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from detectors.records import TIER_SCOPE, IntArray, Stream
from detectors.windows import (
    FORGET_SECONDS,
    MAX_STREAMS,
    PARTS,
    DriftMemory,
    Span,
    counted,
    empty,
    with_streams,
)
from tests.detectors.panels import SIGNAL

SPAN = Span(window_requests=100, window_seconds=600.0)


def named(count: int, prefix: str = "v") -> tuple[Stream, ...]:
    return tuple(Stream("chat", TIER_SCOPE, SIGNAL, f"{prefix}{i}") for i in range(count))


def fed(ticks: list[IntArray], *, seconds: float = 5.0) -> DriftMemory:
    memory = with_streams(empty(), named(1), 4, 0.0)
    rows = np.asarray([0])
    for number, counts in enumerate(ticks):
        memory = counted(memory, rows, counts[None, :], now=seconds * number, span=SPAN)
    return memory


@given(st.lists(st.lists(st.integers(0, 60), min_size=4, max_size=4), min_size=1, max_size=60))
def test_a_window_is_the_sum_of_the_newest_ticks_and_holds_three_quarters_when_full(
    rows: list[list[int]],
) -> None:
    ticks = [np.asarray(row, dtype=np.int64) for row in rows]

    window = fed(ticks).parts[0].sum(axis=0)

    suffixes = [np.sum(ticks[start:], axis=0) for start in range(len(ticks))]
    assert any(np.array_equal(window, suffix) for suffix in suffixes)
    total = int(np.sum(ticks))
    assert window.sum() >= min(total, SPAN.window_requests * (PARTS - 1) // PARTS)


def test_counts_older_than_the_span_are_dropped() -> None:
    one = np.asarray([1, 0, 0, 0], dtype=np.int64)

    memory = fed([one] * 20, seconds=100.0)

    assert memory.parts.sum() < 20


def test_streams_that_no_panel_has_any_more_are_forgotten() -> None:
    memory = with_streams(empty(), named(3), 4, 0.0)
    rows = np.arange(3)
    memory = counted(memory, rows, np.ones((3, 4), dtype=np.int64), now=0.0, span=SPAN)

    later = with_streams(memory, named(1, "new"), 4, FORGET_SECONDS + 1)
    back = with_streams(memory, named(2), 4, FORGET_SECONDS + 1)

    assert later.streams == named(1, "new")
    assert back.streams == named(2)


def test_a_new_stream_leaves_the_windows_of_the_others_as_they_are() -> None:
    memory = with_streams(empty(), named(2), 4, 0.0)
    counts = np.arange(8, dtype=np.int64).reshape(2, 4)
    memory = counted(memory, np.arange(2), counts, now=0.0, span=SPAN)

    wider = with_streams(memory, named(3), 6, 5.0)

    assert np.array_equal(wider.parts[:2, :, :4], memory.parts)
    assert wider.parts.shape == (3, PARTS, 6)
    assert wider.parts[2].sum() == 0


def test_ten_thousand_ticks_with_ever_new_streams_leave_bounded_memory() -> None:
    memory, one = empty(), np.ones((1, 4), dtype=np.int64)
    most = 0
    for number in range(10_000):
        now = 60.0 * number
        streams = named(1, f"day{number // 10}-")
        memory = with_streams(memory, streams, 4, now)
        rows = np.asarray([memory.streams.index(streams[0])])
        memory = counted(memory, rows, one, now=now, span=SPAN)
        most = max(most, len(memory.streams))

    assert most <= FORGET_SECONDS / 600 + 2
    assert memory.parts.sum() <= most * 2 * SPAN.window_requests


def test_the_number_of_streams_is_bounded() -> None:
    memory = with_streams(empty(), named(MAX_STREAMS), 2, 0.0)

    more = with_streams(memory, named(10, "new"), 2, 1.0)

    assert len(more.streams) == MAX_STREAMS
    assert set(named(10, "new")) <= set(more.streams)
