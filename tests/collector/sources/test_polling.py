"""The schedule: fixed, one read at a time, and a slow target loses its own slots only."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest

from collector.sources.polling import Schedule, poll
from detectors.records import Reading
from tests.builders import a_reading

pytestmark = pytest.mark.anyio


class Clock:
    """A clock that moves when someone sleeps, and stops the poll at `end`."""

    def __init__(self, end: float) -> None:
        self.seconds = 100.0
        self._end = 100.0 + end

    def monotonic(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.seconds += seconds
        if self.seconds > self._end:
            raise asyncio.CancelledError
        await asyncio.sleep(0)


class Fake:
    """A source whose reads take the given seconds, the last of them from then on."""

    name = "scrape:chat/a"

    def __init__(self, clock: Clock, *seconds: float, overloaded: Sequence[bool] = ()) -> None:
        self.begun: list[float] = []
        self._overloaded = list(overloaded)
        self._clock = clock
        self._seconds = list(seconds)

    async def read(self) -> Reading:
        self.begun.append(self._clock.seconds - 100.0)
        took = self._seconds.pop(0) if len(self._seconds) > 1 else self._seconds[0]
        self._clock.seconds += took
        overloaded = self._overloaded.pop(0) if self._overloaded else False
        problem = "answered 500" if overloaded else ""
        return replace(a_reading(seconds=self.begun[-1], problem=problem), overloaded=overloaded)


async def polled(
    *seconds: float, schedule: Schedule, end: float = 30.0, overloaded: Sequence[bool] = ()
) -> list[float]:
    """Poll a fake until `end` and return when its reads began."""
    clock = Clock(end)
    source = Fake(clock, *seconds, overloaded=overloaded)
    handled: list[Reading] = []

    async def handle(reading: Reading) -> None:
        handled.append(reading)

    with pytest.raises(asyncio.CancelledError):
        await poll(source, handle, schedule, monotonic=clock.monotonic, sleep=clock.sleep)
    assert len(handled) == len(source.begun)
    return source.begun


async def test_reads_keep_a_fixed_schedule_whatever_they_take() -> None:
    begun = await polled(0.5, 2.0, 4.9, 0.1, schedule=Schedule(5.0))

    assert begun == [0.0, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0]


async def test_a_slow_read_loses_its_slots_and_the_schedule_goes_on() -> None:
    begun = await polled(12.0, 0.1, schedule=Schedule(5.0))

    assert begun == [0.0, 15.0, 20.0, 25.0, 30.0]


async def test_a_server_too_weak_to_answer_is_read_less_often_until_it_answers() -> None:
    begun = await polled(
        0.1, schedule=Schedule(5.0), end=90.0, overloaded=[*[True] * 5, False, True, True]
    )

    assert begun == [0, 5, 10, 20, 40, 60, 65, 70, 75, 80, 85, 90]


async def test_sparing_a_server_lets_two_reads_fit_into_a_lease() -> None:
    short = await polled(
        0.1, schedule=Schedule(5.0, longest_seconds=10.0), end=60.0, overloaded=[True] * 99
    )
    rare = await polled(0.1, schedule=Schedule(60.0), end=300.0, overloaded=[True] * 99)

    assert short == [0, 5, 10, 20, 30, 40, 50, 60]
    assert rare == [0, 60, 120, 180, 240, 300]


async def test_a_slow_timeout_is_not_waited_for_on_top_of_the_time_that_it_took() -> None:
    begun = await polled(15.0, schedule=Schedule(5.0), end=100.0, overloaded=[True] * 99)

    assert begun == [0, 15, 30, 45, 65, 85]


async def test_a_page_slower_than_its_interval_is_told_and_a_failed_one_says_so_itself() -> None:
    clock = Clock(30.0)
    source = Fake(clock, 0.1, 7.0, 12.0, 0.1, overloaded=[False, False, True])
    handled: list[Reading] = []

    async def handle(reading: Reading) -> None:
        handled.append(reading)

    with pytest.raises(asyncio.CancelledError):
        await poll(source, handle, Schedule(5.0), monotonic=clock.monotonic, sleep=clock.sleep)

    assert [[it.code for it in reading.findings] for reading in handled] == [
        *([], ["slow_page"], [], [])
    ]
    assert "took 7.0 s, longer than its interval of 5 s" in handled[1].findings[0].text


async def test_the_first_read_waits_for_its_delay() -> None:
    begun = await polled(0.1, schedule=Schedule(10.0, delay_seconds=3.0))

    assert begun == [3.0, 13.0, 23.0]


async def test_jitter_spreads_starts_over_its_share_of_the_interval() -> None:
    rng = Random(1)

    delays = [Schedule.jittered(5.0, 0.5, rng).delay_seconds for _ in range(200)]

    assert 0.0 <= min(delays) < 0.1
    assert 2.4 < max(delays) <= 2.5
    assert Schedule.jittered(5.0, 0.0, rng).delay_seconds == 0.0


async def test_a_poll_stops_when_cancelled_and_reads_one_at_a_time() -> None:
    running = 0

    class Slow:
        name = "slow"

        async def read(self) -> Reading:
            nonlocal running
            running += 1
            assert running == 1
            await asyncio.sleep(0.02)
            running -= 1
            return a_reading()

    async def handle(reading: Reading) -> None:
        assert reading.up

    loop = asyncio.get_running_loop()
    task = asyncio.create_task(
        poll(Slow(), handle, Schedule(0.001), monotonic=loop.time, sleep=asyncio.sleep)
    )
    await asyncio.sleep(0.1)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
