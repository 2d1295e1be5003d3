"""The intake's workers: room, refusal, death and replacement, and the end."""

from __future__ import annotations

import asyncio
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
from collector.ingest.passing import SMALLEST_BYTES, lend, read, readable
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
    worker = await asyncio.wrap_future(real._pool.submit(os.getpid))
    os.kill(worker, signal.SIGSTOP)
    waiting = [asyncio.create_task(real.submit(LINE, DEFAULTS)) for _ in range(2)]
    await asyncio.sleep(0)
    os.kill(worker, signal.SIGKILL)

    results = await asyncio.gather(*waiting, return_exceptions=True)
    after = await real.submit(LINE, DEFAULTS)

    assert [type(result) for result in results] == [IntakeError, IntakeError]
    assert (after.accepted, real.deaths, real.waiting) == (1, 1, 0)


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


def lent_bodies() -> int:
    """Return how many bodies this process holds for its workers."""
    held = Path("/proc/self/fd").iterdir()
    names = [os.readlink(it) for it in held if it.is_symlink()]
    return sum("fusewire-body" in name for name in names)


@pytest.mark.anyio
async def test_a_large_body_is_lent_to_its_worker_and_given_back(real: Intake) -> None:
    await real.start()
    large = b"\n".join([LINE] * (SMALLEST_BYTES // len(LINE) + 1))
    expected = decode(large, DEFAULTS, Limits())

    task = asyncio.create_task(real.submit(large, DEFAULTS))
    await asyncio.sleep(0)
    while_decoded = lent_bodies()
    decoded = await task

    assert real.lends
    assert (while_decoded, lent_bodies()) == (1, 0)
    assert (decoded.accepted, decoded.rejected) == (expected.accepted, expected.rejected)
    assert [batch.size for batch in decoded.batches] == [batch.size for batch in expected.batches]


@pytest.mark.anyio
async def test_a_large_body_is_given_back_when_its_worker_dies(real: Intake) -> None:
    await real.start()
    large = b" " * SMALLEST_BYTES + LINE
    worker = await asyncio.wrap_future(real._pool.submit(os.getpid))
    os.kill(worker, signal.SIGSTOP)
    task = asyncio.create_task(real.submit(large, DEFAULTS))
    await asyncio.sleep(0)
    os.kill(worker, signal.SIGKILL)

    with pytest.raises(IntakeError):
        await task
    after = await real.submit(large, DEFAULTS)

    assert after.accepted == 1
    assert lent_bodies() == 0


@pytest.mark.anyio
async def test_a_body_goes_by_the_pipe_where_workers_cannot_read_what_is_lent() -> None:
    pool = HeldPool()
    intake = an_intake(pool)
    starting = asyncio.create_task(intake.start())
    await asyncio.sleep(0)
    pool.futures[0].set_result("piped")
    await starting

    task = asyncio.create_task(intake.submit(b" " * SMALLEST_BYTES, DEFAULTS))
    await asyncio.sleep(0)

    assert not intake.lends
    assert lent_bodies() == 0
    pool.futures[1].set_result(Decoded())
    await task


@pytest.mark.anyio
async def test_a_large_body_of_a_caller_who_left_is_given_back() -> None:
    pool = HeldPool()
    intake = an_intake(pool)
    intake.lends = True
    task = asyncio.create_task(intake.submit(b" " * SMALLEST_BYTES, DEFAULTS))
    await asyncio.sleep(0)
    held = lent_bodies()

    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await asyncio.sleep(0)

    assert (held, lent_bodies()) == (1, 0)


def test_a_body_that_is_not_all_there_is_not_read() -> None:
    lent = lend(b"body")
    assert lent is not None

    try:
        assert read(lent.path, 4) == b"body"
        assert readable(lent.path, 4) == "piped"  # not what a probe holds
        with pytest.raises(OSError, match="4 bytes of a body, expected 5"):
            read(lent.path, 5)
    finally:
        lent.close()

    assert readable(lent.path, 4) == "piped"
