"""Decodes bodies in worker processes, a bounded number at a time."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from multiprocessing.connection import wait
from typing import Literal, TypeAlias

from collector.ingest import passing
from collector.ingest.bodies import open_body
from collector.ingest.decode import decode
from collector.ingest.passing import Lender, Lent
from collector.ingest.records import MEBIBYTE, Decoded, Defaults, Limits, TierNames

_FIRST_GUESS_SECONDS = 0.5  # of one batch, before any was measured
_LONGEST_WAIT_SECONDS = 30.0
_MEMORY = 0.8  # share of the past in the running mean of seconds a batch


class IntakeBusy(RuntimeError):  # noqa: N818  # a state that passes, not an error of anyone's
    """No room for another body; nothing of it was taken. Try again after `retry_after_seconds`."""

    def __init__(self, retry_after_seconds: float) -> None:
        super().__init__(f"intake is full; try again in {retry_after_seconds:.0f} s")
        self.retry_after_seconds = retry_after_seconds


class IntakeError(RuntimeError):
    """The worker that held a body died; nothing of the body was taken."""


def open_and_decode(body: bytes, encoding: str, defaults: Defaults, limits: Limits) -> Decoded:
    """Do all the work on one body; runs in a worker.

    Raises:
        BodyError: If the body cannot be opened or is too large.
    """
    return decode(open_body(body, encoding, limits), defaults, limits)


def open_and_decode_otlp(
    body: bytes,
    encoding: str,
    defaults: Defaults,
    limits: Limits,
    *,
    kind: Literal["traces", "logs"],
    form: Literal["protobuf", "json"],
) -> Decoded:
    """Do all the work on one OTLP export; runs in a worker.

    Raises:
        BodyError: If the body cannot be opened, is too large, or is no export.
    """
    from collector.ingest.otlp import otlp_lines  # protobuf: only whoever is sent OTLP pays for it

    known = defaults.tiers.get(defaults.tier, TierNames())
    found = otlp_lines(open_body(body, encoding, limits), kind, form, known.targets)
    return replace(decode(found.body, defaults, limits), ignored=found.ignored)


def process_pool(workers: int) -> Executor:
    """Return worker processes that start clean, ignore the terminal, and end with their parent."""
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(workers, mp_context=context, initializer=_settle)


def _settle() -> None:
    os.setsid()  # a signal to the service's process group is not meant for its workers
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the service decides when to stop
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # means "reload" to the service
    threading.Thread(target=_end_with_parent, name="end-with-parent", daemon=True).start()


def _end_with_parent() -> None:
    """End this worker when the service is killed; without it, it would wait for work for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


Work: TypeAlias = Callable[[bytes, str, Defaults, Limits], Decoded]


class Intake:
    """Takes bodies while there is room, and gives back what was in them.

    At most `workers` bodies are decoded at once and `most_waiting` wait, with at most
    `most_waiting_bytes` between them (one body always fits).
    """

    def __init__(
        self,
        *,
        monotonic: Callable[[], float],
        workers: int = 1,
        limits: Limits | None = None,
        most_waiting: int = 16,
        most_waiting_bytes: int = 256 * MEBIBYTE,
        make_pool: Callable[[int], Executor] = process_pool,
    ) -> None:
        self.limits = limits or Limits()
        self.deaths = 0
        self.lends = False  # large bodies, instead of piping them
        self._monotonic = monotonic
        self._workers = workers
        self._most = workers + most_waiting
        self._most_bytes = most_waiting_bytes
        self._make_pool = make_pool
        self._pool = make_pool(workers)
        self._lender = Lender(kept=workers + 1)
        self._bodies = 0
        self._bytes = 0
        self._batch_seconds = _FIRST_GUESS_SECONDS

    @property
    def waiting(self) -> int:
        """Bodies that were taken and are not yet decoded."""
        return self._bodies

    async def start(self) -> None:
        """Start the workers now, so that the first body need not wait for them.

        It is tried whether they can read what is lent to them; before that bodies go by the pipe.
        """
        probe = self._lender.lend(passing.PROBE)
        if probe is None:
            await asyncio.wrap_future(self._pool.submit(os.getpid))
            return
        try:
            found = self._pool.submit(passing.readable, probe.path, probe.size)
            self.lends = await asyncio.wrap_future(found)
        finally:
            self._lender.take_back(probe)

    async def submit(
        self,
        body: bytes,
        defaults: Defaults,
        *,
        encoding: str = "",
        work: Work = open_and_decode,
    ) -> Decoded:
        """Decode `body` (as it came, in the content-encoding `encoding`) by `work` in a worker.

        Raises:
            IntakeBusy: If there is no room.
            IntakeError: If its worker died; the next body gets a new one.
            BodyError: If the body cannot be opened or is too large.
        """
        if self._bodies >= self._most or (
            self._bytes and self._bytes + len(body) > self._most_bytes
        ):
            raise IntakeBusy(self._retry_after())
        plain = replace(defaults, tiers=dict(defaults.tiers))  # mapping proxies cannot be sent
        pool = self._pool
        began = self._monotonic()
        try:
            decoded = await asyncio.wrap_future(self._send(work, body, encoding, plain))
        except (BrokenProcessPool, MemoryError) as error:
            self._replace(pool)
            msg = "the worker that decoded the body died; nothing of the body was taken"
            raise IntakeError(msg) from error
        took = self._monotonic() - began
        self._batch_seconds = _MEMORY * self._batch_seconds + (1 - _MEMORY) * took
        return decoded

    async def close(self) -> None:
        """Drop what waits, let what runs finish, and end the workers."""
        await asyncio.to_thread(self._pool.shutdown, wait=True, cancel_futures=True)
        self._lender.close()

    def _send(self, work: Work, body: bytes, encoding: str, defaults: Defaults) -> Future[Decoded]:
        """Send a body to a worker: a large one is lent to it, others go by the pipe."""
        fits = passing.SMALLEST_BYTES <= len(body) <= passing.LARGEST_BYTES
        lent = self._lender.lend(body) if self.lends and fits else None
        rest = (work, encoding, defaults, self.limits)
        try:
            if lent is None:
                future = self._pool.submit(work, body, *rest[1:])
            else:
                place = (lent.path, lent.size)
                future = self._pool.submit(passing.work_on_lent, place, *rest)
        except BaseException:
            if lent is not None:
                self._lender.take_back(lent)
            raise
        self._admit(future, len(body), lent)
        return future

    def _admit(self, future: Future[Decoded], size: int, lent: Lent | None) -> None:
        """Count a body in, and out when its work ends: a caller may leave before."""
        loop = asyncio.get_running_loop()
        self._bodies += 1
        self._bytes += size

        def leave(_: Future[Decoded]) -> None:
            if lent is not None:
                self._lender.take_back(lent)
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._leave, size)

        future.add_done_callback(leave)

    def _leave(self, size: int) -> None:
        self._bodies -= 1
        self._bytes -= size

    def _replace(self, pool: Executor) -> None:
        """Put a new pool in place of a broken one; of several callers only the first does."""
        if pool is self._pool:
            self.deaths += 1
            self._pool = self._make_pool(self._workers)
            pool.shutdown(wait=False)

    def _retry_after(self) -> float:
        seconds = self._batch_seconds * self._bodies / self._workers
        return min(max(seconds, 1.0), _LONGEST_WAIT_SECONDS)
