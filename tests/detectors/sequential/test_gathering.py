"""Each part of a tick counts once, whoever sends it, in whatever order, however often."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from detectors.sequential import gathering as core
from detectors.sequential.gathering import Gathering, Part, closed, forgotten, gathered


def a_part(worker: str, sequence: int, number: int, value: int = 1) -> Part:
    return Part(worker, sequence, number, np.full((2, 3), value))


def sums(ended: tuple[tuple[int, np.ndarray], ...]) -> dict[int, int]:
    return {number: int(counts[0, 0]) for number, counts in ended}


@given(
    order=st.permutations([(w, s) for w in "ab" for s in range(5)]),
    again=st.lists(st.integers(0, 9), max_size=8),
)
@settings(max_examples=40, deadline=None)
def test_order_and_repetition_do_not_matter(order: list[tuple[str, int]], again: list[int]) -> None:
    parts = [a_part(worker, sequence, 10 + sequence, 2**sequence) for worker, sequence in order]

    found = Gathering(oldest=10)
    for part in [*parts, *(parts[place] for place in again)]:
        found = gathered(found, part)
    _, ended = closed(found, 100)

    assert sums(ended) == {10 + s: 2 * 2**s for s in range(5)}
    assert found.repeated == len(again)


def test_ticks_are_closed_in_order_behind_the_watermark() -> None:
    found = Gathering(oldest=0)
    for number in (3, 1, 0, 2):
        found = gathered(found, a_part("a", number, number))

    found, ended = closed(found, 3)

    assert list(sums(ended)) == [0, 1]
    assert (found.oldest, sorted(found.counts)) == (2, [2, 3])


def test_late_counts_enter_the_oldest_open_tick() -> None:
    found, _ = closed(gathered(Gathering(oldest=0), a_part("a", 0, 0)), 5)

    found = gathered(found, a_part("b", 0, 1, value=7))
    found, ended = closed(found, 10)

    assert sums(ended) == {4: 7}
    assert found.late == 1


def test_closed_numbers_rise_whatever_comes() -> None:
    rng = np.random.default_rng(0)
    found, numbers, total = Gathering(oldest=0), [], 0
    for step in range(200):
        found = gathered(found, a_part("a", step, int(rng.integers(-5, 10)) + step))
        found, ended = closed(found, step)
        numbers += [number for number, _ in ended]
        total += sum(sums(ended).values())
    found, ended = closed(found, 1000)

    assert all(left < right for left, right in pairwise(numbers))
    assert total + sum(sums(ended).values()) == 200


def test_a_part_of_a_clock_far_ahead_is_refused_and_counted() -> None:
    found = gathered(Gathering(oldest=0), a_part("a", 0, core.AHEAD + 1))

    assert (found.refused, dict(found.counts)) == (1, {})


def test_the_memory_of_parts_and_workers_is_bounded() -> None:
    found = Gathering(oldest=0)
    for sequence in range(1000):
        found = gathered(found, a_part("a", sequence, 0))
    for worker in range(core.MAX_WORKERS + 5):
        found = gathered(found, a_part(f"w{worker}", 0, 0))

    assert len(found.workers["a"].come) <= core.REMEMBERED
    assert len(found.workers) == core.MAX_WORKERS
    assert found.refused == 6
    assert gathered(found, a_part("a", 3, 0)).repeated == 1  # too old to tell: taken as seen
    assert "a" not in forgotten(found, "a").workers
