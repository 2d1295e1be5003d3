"""An alarm stands until traffic is surely back, and no longer."""

from __future__ import annotations

import numpy as np

from detectors.records import IntArray
from detectors.sequential.band import make_band
from detectors.sequential.evidence import make_table, placement
from detectors.sequential.settling import settled
from detectors.sequential.watch import Plan, Watch, start, step
from tests.detectors.sequential.drawn import PAGE_GATE, bets_of, by_tick, counted

BETS = bets_of(
    make_band(counted(np.random.default_rng(0).normal(size=100_000)), gate=PAGE_GATE, tau=1.2)
)
PLAN = Plan(
    keys=("a",),
    tables={"page": make_table([BETS], level=1e9, dtype=np.float32)},
    placed=placement(np.zeros(1, dtype=np.int64)),
    tau=np.full(1, 1.2),
)


def drawn(ticks: int, size: int, *, mean: float = 0.0, seed: int = 1) -> IntArray:
    values = np.random.default_rng(seed).normal(mean, 1, size=(1, ticks * size))
    return by_tick(values, BETS.band, size)


def fed(watch: Watch, counts: IntArray) -> tuple[Watch, list[bool]]:
    """Return the memory, and whether the stream stood in an alarm after each tick."""
    stood = []
    for some in counts:
        number = 0 if watch.number is None else watch.number + 1
        watch, _ = step(watch, PLAN, number=number, seconds=5.0, counts=some)
        watch = settled(watch, PLAN, "page", [BETS])
        stood.append(bool(watch.evidence["page"].raised[0] >= 0))
    return watch, stood


def test_an_alarm_ends_ten_minutes_after_the_change_of_a_busy_stream() -> None:
    watch, _ = fed(start(PLAN), drawn(50, 60))
    watch, changed = fed(watch, drawn(30, 60, mean=1.0, seed=2))

    watch, back = fed(watch, drawn(200, 60, seed=3))

    assert changed[-1]
    assert all(back[:118])
    assert 118 <= back.index(False) <= 160
    assert watch.evidence["page"].raised[0] == -1
    assert not any(back[back.index(False) :])


def test_an_alarm_of_a_quiet_stream_stands_longer_until_it_is_sure() -> None:
    watch, _ = fed(start(PLAN), drawn(50, 14))
    watch, _ = fed(watch, drawn(30, 14, mean=1.0, seed=2))

    _, back = fed(watch, drawn(700, 14, seed=3))

    assert all(back[:470])
    assert not back[-1]


def test_an_alarm_stands_while_the_change_does_or_nothing_comes() -> None:
    watch, _ = fed(start(PLAN), drawn(30, 60, mean=1.0))

    _, still = fed(watch, drawn(300, 60, mean=0.3, seed=2))
    _, empty = fed(watch, np.zeros((500, 1, len(BETS.band.counts)), dtype=np.int64))

    assert all(still)
    assert all(empty)
