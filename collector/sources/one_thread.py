"""Calls into a library that may never return: in a thread, one at a time, with a bound of time.

A driver that has lost its device can hang inside a call for good. The thread that is caught there
is a daemon, so it holds up neither the loop nor the end of the process, and no second one follows
it in.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class StuckError(Exception):
    """A call has not returned within its time; `seconds` is how long it has been waited for."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"no answer for {seconds:.0f} s")
        self.seconds = seconds


class OneThread:
    """Runs blocking work off the loop; while it has not come back, nothing else is begun."""

    def __init__(self, name: str, *, monotonic: Callable[[], float]) -> None:
        self._name = name
        self._monotonic = monotonic
        self._thread: threading.Thread | None = None
        self._since = 0.0
        self._back = threading.Event()  # of the newest work; its thread outlives it by a moment
        self._back.set()

    @property
    def busy(self) -> bool:
        return not self._back.is_set()

    async def run(self, work: Callable[[], T], *, timeout_seconds: float) -> T:
        """Return what `work` returns.

        Raises:
            StuckError: If it does not return in time, or an earlier one has not yet.
        """
        if self.busy:
            raise StuckError(self._monotonic() - self._since)
        return await self._begin(work, timeout_seconds)

    async def finish(self, work: Callable[[], T], *, timeout_seconds: float) -> None:
        """Run `work` as soon as what runs has come back, and wait for it for a while."""
        before = self._thread

        def last() -> None:
            if before is not None:
                before.join()
            work()

        with contextlib.suppress(StuckError):
            await self._begin(last, timeout_seconds)

    async def _begin(self, work: Callable[[], T], timeout_seconds: float) -> T:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        back = threading.Event()

        def body() -> None:
            found: list[T] = []
            try:
                found.append(work())
            finally:
                back.set()
                with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                    loop.call_soon_threadsafe(_settle, answer, found)

        self._since = self._monotonic()
        self._back = back
        self._thread = threading.Thread(target=body, name=self._name, daemon=True)
        self._thread.start()
        try:
            return await asyncio.wait_for(answer, timeout_seconds)
        except TimeoutError as error:
            raise StuckError(self._monotonic() - self._since) from error


def _settle(answer: asyncio.Future[T], found: list[T]) -> None:
    """Give the waiting side what was found, unless it has stopped waiting."""
    if answer.done():
        return
    if found:
        answer.set_result(found[0])
    else:
        answer.set_exception(RuntimeError("the call ended without an answer; see its traceback"))
