"""When what is there is taken out of the garbage collector's sight."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from collector.settling import AFTER_SECONDS, AGAIN_SECONDS, Settling


class Clock:
    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture(autouse=True)
def thawed() -> Iterator[None]:
    yield
    gc.unfreeze()


def test_it_settles_once_a_while_after_a_start() -> None:
    clock = Clock()
    settling = Settling(monotonic=clock)

    settling.look()
    before_start = settling.times
    settling.changed()
    clock.seconds += AFTER_SECONDS - 1
    settling.look()
    too_soon = settling.times
    clock.seconds += 1
    settling.look()
    settling.look()

    assert (before_start, too_soon, settling.times) == (0, 0, 1)
    assert gc.get_freeze_count() > 1000


def test_targets_that_come_and_go_all_the_time_make_it_settle_seldom() -> None:
    clock = Clock()
    settling = Settling(monotonic=clock)

    for _ in range(100):
        settling.changed()
        clock.seconds += AGAIN_SECONDS / 50
        settling.look()

    assert settling.times == 2


def test_rings_that_were_settled_are_freed_by_the_next_settling() -> None:
    clock = Clock()
    settling = Settling(monotonic=clock)
    freed = []

    class Ring:
        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            freed.append(True)

    kept = [Ring()]
    settling.changed()
    clock.seconds += AFTER_SECONDS
    settling.look()
    kept.clear()
    gc.collect()
    before = list(freed)
    settling.changed()
    clock.seconds += AGAIN_SECONDS
    settling.look()

    assert (before, freed) == ([], [True])
