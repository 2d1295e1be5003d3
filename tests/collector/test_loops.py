"""Work done again and again: watched, on its own schedule, never ending the process."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest

from collector.health import Health
from collector.logs import Lines
from collector.loops import Every, LoopLag, keep_running, repeat

pytestmark = pytest.mark.anyio


class Clock:
    """A clock that only `sleep` moves; it ends the loop after a number of turns."""

    def __init__(self, turns: int) -> None:
        self.now = 0.0
        self.slept: list[float] = []
        self._turns = turns

    async def sleep(self, seconds: float) -> None:
        if len(self.slept) == self._turns:
            raise asyncio.CancelledError
        self.slept.append(seconds)
        self.now += seconds


async def test_work_that_fails_is_counted_and_done_again() -> None:
    clock, health, done = Clock(3), Health(), []

    async def work() -> None:
        done.append(clock.now)
        if len(done) == 2:
            msg = "once"
            raise OSError(msg)

    with pytest.raises(asyncio.CancelledError):
        await repeat(
            Every("tick", 5.0, work), health=health, monotonic=lambda: clock.now, sleep=clock.sleep
        )

    assert done == [5.0, 10.0, 15.0]
    assert health.conditions["tick"].failures == 1
    assert health.conditions["tick"].problem == ""


async def test_a_turn_that_takes_too_long_costs_turns_and_is_not_made_up_for() -> None:
    clock, done = Clock(3), []

    async def slow() -> None:
        done.append(clock.now)
        clock.now += 12.0

    with pytest.raises(asyncio.CancelledError):
        await repeat(
            Every("tick", 5.0, slow),
            health=Health(),
            monotonic=lambda: clock.now,
            sleep=clock.sleep,
        )

    assert done == [5.0, 17.0, 29.0]
    assert min(clock.slept) >= 0.0


async def test_work_that_should_never_end_is_started_again_and_counted() -> None:
    clock, health, started = Clock(2), Health(), []

    async def dying() -> None:
        started.append(clock.now)
        msg = "unexpected"
        raise RuntimeError(msg)

    with pytest.raises(asyncio.CancelledError):
        await keep_running("webhooks", dying, health=health, sleep=clock.sleep)

    assert started == [0.0, 1.0, 2.0]
    assert health.conditions["webhooks"].failures == 3
    assert "unexpected" in health.conditions["webhooks"].problem


async def test_the_lag_of_the_loop_is_its_worst_since_it_was_asked() -> None:
    moments = iter([0.0, 0.05, 0.05, 0.35, 0.35])
    lag = LoopLag(lambda: next(moments), period_seconds=0.05)

    with pytest.raises((StopIteration, RuntimeError)):
        await lag.run()

    assert lag.take() == pytest.approx(0.25)
    assert lag.take() == 0.0


def test_a_log_line_is_a_phrase_and_its_facts() -> None:
    record = logging.makeLogRecord(
        {"name": "collector.x", "levelname": "INFO", "msg": "part broke", "part": "a b", "n": 3}
    )

    line = Lines().format(record)

    head, _, facts = line.partition(": part broke ")
    assert head.endswith("INFO collector.x")
    assert facts == f"part={json.dumps('a b')} n=3"
