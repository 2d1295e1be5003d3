"""The intake's workers: room, refusal, death and replacement, and the end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor, Future
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from collector.ingest.decode import decode
from collector.ingest.intake import Intake, IntakeBusy, IntakeError, open_and_decode
from collector.ingest.passing import SMALLEST_BYTES, Lender, read, readable
from collector.ingest.records import BodyError, Decoded, Limits
from tests.collector.ingest.recorded import DEFAULTS, corpus, the

LINE = the("0.32.0-chat-logprobs-top5").line()


class HeldPool(Executor):
    """A pool whose work ends when the test says so."""

    def __init__(self) -> None:
        self.futures: list[Future[Any]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.futures.append(future)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        for future in self.futures:
            future.cancel()


def an_intake(pool: HeldPool, **settings: Any) -> Intake:
    return Intake(monotonic=time.monotonic, make_pool=lambda _: pool, **settings)


@pytest.fixture(scope="module")
async def real() -> AsyncIterator[Intake]:
    intake = Intake(monotonic=time.monotonic)
    yield intake
    await intake.close()


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.anyio
async def test_a_body_is_decoded_in_another_process(real: Intake) -> None:
    await real.start()

    decoded = await real.submit(corpus("b-json"), DEFAULTS)

    assert (decoded.accepted, decoded.generations) == (120, 120)
    assert real.waiting == 0


@pytest.mark.anyio
async def test_a_body_that_cannot_be_opened_comes_back_as_its_error(real: Intake) -> None:
    with pytest.raises(BodyError, match="not valid gzip"):
        await real.submit(LINE, DEFAULTS, encoding="gzip")


@pytest.mark.anyio
async def test_a_worker_that_dies_is_replaced_and_its_bodies_are_reported(real: Intake) -> None:
    worker, deaths = await asyncio.wrap_future(real._pool.submit(os.getpid)), real.deaths
    os.kill(worker, signal.SIGSTOP)
    waiting = [asyncio.create_task(real.submit(LINE, DEFAULTS)) for _ in range(2)]
    await asyncio.sleep(0)
    os.kill(worker, signal.SIGKILL)

    results = await asyncio.gather(*waiting, return_exceptions=True)
    after = await real.submit(LINE, DEFAULTS)

    assert [type(result) for result in results] == [IntakeError, IntakeError]
    assert (after.accepted, real.deaths - deaths, real.waiting) == (1, 1, 0)


@pytest.mark.anyio
async def test_a_full_intake_refuses_at_once_and_takes_again_when_there_is_room() -> None:
    pool = HeldPool()
    intake = an_intake(pool, most_waiting=1)
    held = [asyncio.create_task(intake.submit(LINE, DEFAULTS)) for _ in range(2)]
    await asyncio.sleep(0)

    with pytest.raises(IntakeBusy) as caught:
        await intake.submit(LINE, DEFAULTS)
    pool.futures[0].set_result(Decoded(accepted=1))
    first = await held[0]
    third = asyncio.create_task(intake.submit(LINE, DEFAULTS))
    await asyncio.sleep(0)

    assert 1.0 <= caught.value.retry_after_seconds <= 30.0
    assert first.accepted == 1
    assert (len(pool.futures), intake.waiting) == (3, 2)
    for future in pool.futures[1:]:
        future.set_result(Decoded())
    await asyncio.gather(held[1], third)


@pytest.mark.anyio
async def test_bytes_are_bounded_too_but_one_body_always_fits() -> None:
    pool = HeldPool()
    intake = an_intake(pool, most_waiting_bytes=10)
    held = asyncio.create_task(intake.submit(LINE, DEFAULTS))
    await asyncio.sleep(0)

    with pytest.raises(IntakeBusy):
        await intake.submit(b"{}", DEFAULTS)

    pool.futures[0].set_result(Decoded())
    await held
    assert intake.waiting == 0


@pytest.mark.anyio
async def test_a_caller_who_leaves_does_not_free_the_place_of_running_work() -> None:
    pool = HeldPool()
    intake = an_intake(pool)
    task = asyncio.create_task(intake.submit(LINE, DEFAULTS))
    await asyncio.sleep(0)
    pool.futures[0].set_running_or_notify_cancel()

    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    while_running = intake.waiting
    pool.futures[0].set_result(Decoded())
    await asyncio.sleep(0)

    assert (while_running, intake.waiting) == (1, 0)


@pytest.mark.anyio
async def test_a_mapping_proxy_of_tiers_can_be_sent(real: Intake) -> None:
    defaults = replace(DEFAULTS, tiers=MappingProxyType(dict(DEFAULTS.tiers)))

    assert (await real.submit(LINE, defaults)).accepted == 1


def test_the_work_of_a_worker_keeps_the_limits() -> None:
    with pytest.raises(BodyError, match="more than 10 bytes"):
        open_and_decode(LINE, "", DEFAULTS, Limits(max_batch_bytes=10))


def held_bodies() -> int:
    """Return how many pieces of memory this process holds for bodies."""
    found = 0
    for it in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the one that lists them
            found += "fusewire-body" in str(it.readlink())
    return found


def large(line: bytes = LINE) -> bytes:
    return b"\n".join([line] * (SMALLEST_BYTES // len(line) + 1))


@pytest.mark.anyio
async def test_a_large_body_is_lent_to_its_worker_and_its_memory_used_again(real: Intake) -> None:
    await real.start()
    expected = decode(large(), DEFAULTS, Limits())

    decoded = [await real.submit(large(), DEFAULTS) for _ in range(3)]

    assert real.lends
    assert 1 <= held_bodies() <= 2  # one that is kept, and one more after a death
    assert [found.accepted for found in decoded] == [expected.accepted] * 3
    assert [batch.size for batch in decoded[2].batches] == [it.size for it in expected.batches]


@pytest.mark.anyio
async def test_nothing_of_a_longer_body_is_read_with_the_next(real: Intake) -> None:
    await real.start()
    longer, shorter = b" " * (2 * SMALLEST_BYTES) + LINE, b" " * SMALLEST_BYTES + LINE

    found = [(await real.submit(body, DEFAULTS)).accepted for body in (longer, shorter)]

    assert found == [1, 1]


@pytest.mark.anyio
async def test_a_worker_that_dies_over_a_large_body_is_replaced(real: Intake) -> None:
    await real.start()
    worker = await asyncio.wrap_future(real._pool.submit(os.getpid))
    os.kill(worker, signal.SIGSTOP)
    tasks = [asyncio.create_task(real.submit(large(), DEFAULTS)) for _ in range(4)]
    await asyncio.sleep(0)
    os.kill(worker, signal.SIGKILL)

    results = await asyncio.gather(*tasks, return_exceptions=True)
    after = await real.submit(large(), DEFAULTS)

    assert [type(result) for result in results] == [IntakeError] * 4
    assert after.accepted > 0
    assert held_bodies() <= 2  # no more is kept


@pytest.mark.anyio
async def test_the_end_of_an_intake_lets_all_memory_go() -> None:
    before = held_bodies()
    intake = Intake(monotonic=time.monotonic)
    await intake.start()
    await intake.submit(large(), DEFAULTS)

    await intake.close()

    assert held_bodies() == before


@pytest.mark.anyio
async def test_a_body_goes_by_the_pipe_where_workers_cannot_read_what_is_lent() -> None:
    pool = HeldPool()
    intake = an_intake(pool)
    starting = asyncio.create_task(intake.start())
    await asyncio.sleep(0)
    pool.futures[0].set_result(False)
    await starting
    before = held_bodies()

    task = asyncio.create_task(intake.submit(large(), DEFAULTS))
    await asyncio.sleep(0)

    assert not intake.lends
    assert held_bodies() == before
    pool.futures[1].set_result(Decoded())
    await task
    await intake.close()


@pytest.mark.anyio
async def test_the_memory_of_a_caller_who_left_is_used_again() -> None:
    pool = HeldPool()
    intake = an_intake(pool)
    intake.lends = True
    before = held_bodies()
    for _ in range(3):
        task = asyncio.create_task(intake.submit(large(), DEFAULTS))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await asyncio.sleep(0)

    assert held_bodies() - before == 1
    await intake.close()
    assert held_bodies() == before


def test_a_body_that_is_not_all_there_is_not_read() -> None:
    lender = Lender(kept=0)
    lent = lender.lend(b"body")
    assert lent is not None

    body = read(lent.path, 4)
    is_probe = readable(lent.path, 4)
    with pytest.raises(OSError, match="4 bytes of a body, expected 5"):
        read(lent.path, 5)
    lender.take_back(lent)

    assert (body, is_probe) == (b"body", False)
    assert not readable(lent.path, 4)  # gone
