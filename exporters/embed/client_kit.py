"""Fusewire's client kit: put it between a batch job or proxy and the models that it calls.

One file on prometheus-client alone, Python 3.9 or newer: copy it into the client.

    kit = ClientKit(workers=8, in_flight=100, queue_bound=1000)
    for done in kit.map(ask, documents):         # in order, bounded, nothing lost
        ...                                      # done.item, done.value, done.error
    async for done in kit.amap(ask, documents):  # the same in asyncio: call, acall; stream, astream

`ask` is any function. Of what it returns or raises, a status (`status_code`, `status`, `code`, also
on `.response`) of 408, 429, 500, 502, 503, 504 or 529, and a lost connection or a timeout are
tried again: after Retry-After, with full jitter, within a budget of retries that is a share of the
calls. A 429 holds back every caller of the kit. What is given up comes back as it came. The kit
keeps nothing of what it carries and writes no logs.
"""

from __future__ import annotations

import asyncio
import math
import random
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Iterable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, closing, contextmanager
from datetime import timezone
from email.utils import parsedate_to_datetime
from functools import cached_property, partial
from typing import Any, Callable, NamedTuple, Optional

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge

RETRIED = frozenset({408, 429, 500, 502, 503, 504, 529})
LOST = ("ConnectionError", "NetworkError", "ProtocolError", "URLError", "TimeoutError", "Timeout")
TOO_MANY, BUDGET_MOST = 429, 100.0
SPREAD_SECONDS = 1.0  # callers that waited together do not go on together


class FullError(RuntimeError):
    """A bound is reached: of waiting calls, of open streams, or of what a stream holds."""


class Retries(NamedTuple):
    """How often and how long; `budget_ratio` is retries a call, over `reserve` to begin with."""

    attempts: int = 6
    base_seconds: float = 0.5
    most_seconds: float = 30.0
    patience_seconds: float = 300.0  # a longer Retry-After is given back to the caller
    budget_ratio: float = 0.1
    reserve: float = 10.0


class Refusal(NamedTuple):
    """What a call met that may be tried again; `retry_after` in seconds, None if not told."""

    status: int
    retry_after: Optional[float] = None


class Outcome(NamedTuple):
    """What came of one item: its value, or the error that ended it."""

    item: Any
    value: Any = None
    error: Optional[BaseException] = None

    def get(self) -> Any:  # noqa: ANN401  # whatever the caller's own function returns
        if self.error is not None:
            raise self.error
        return self.value


def retry_after_seconds(text: Optional[str], now: float) -> Optional[float]:
    """Read a Retry-After header: seconds, or an HTTP date against `now` (unix seconds)."""
    if not text:
        return None
    try:
        seconds = float(text)
    except ValueError:
        try:
            moment = parsedate_to_datetime(text)
        except (TypeError, ValueError, IndexError, OverflowError):
            return None
        seconds = moment.replace(tzinfo=moment.tzinfo or timezone.utc).timestamp() - now
    return max(seconds, 0.0) if math.isfinite(seconds) else None


def backoff_seconds(
    attempt: int, retries: Retries, uniform: Callable[[float, float], float]
) -> float:
    """Return a wait with full jitter: 0 to base * 2^attempt, at most `most_seconds`."""
    ceiling = min(retries.most_seconds, retries.base_seconds * 2.0 ** min(attempt, 60))
    return uniform(0.0, ceiling)


def status_of(value: object) -> Optional[int]:
    """Return the HTTP status that a result or an exception carries, if any."""
    for place in (value, getattr(value, "response", None)):
        for name in ("status_code", "status", "code"):
            status = getattr(place, name, None)
            if isinstance(status, int) and status in range(100, 600):
                return int(status)
    return None


def refusal_of(outcome: Outcome, now: float) -> Optional[Refusal]:
    """Return what may be tried again of an outcome, None if it is to be taken as it is."""
    met: object = outcome.error if outcome.error is not None else outcome.value
    status = status_of(met)
    if status is None:
        lost = any(it.__name__.endswith(LOST) for it in type(met).__mro__)
        return Refusal(0) if lost else None
    if status not in RETRIED:
        return None
    for place in (met, getattr(met, "response", None)):
        get = getattr(getattr(place, "headers", None), "get", None)
        told = (get("retry-after") or get("Retry-After")) if callable(get) else None
        if told is not None:
            return Refusal(status, retry_after_seconds(str(told), now))
    return Refusal(status)


class Metrics:
    """The families of the kit; two kits of one registry share one of these."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        count = partial(Counter, registry=registry)
        gauge = partial(Gauge, registry=registry)
        self.requests = count("openai_api_requests", "Requests sent, by status.", ("status",))
        self.limited = count("openai_api_rate_limited", "Of those, answered 429.")
        self.retries = count("openai_api_rate_limit_retries", "Of those, sent again.")
        self.spent = count("openai_api_retry_budget_spent", "Retries that the budget refused.")
        self.waiting = gauge("openai_api_queue_size", "Calls that wait.")
        self.bound = gauge("openai_api_queue_bound", "Most calls that may wait.")
        self.flying = gauge("openai_api_in_flight", "Calls in flight.")
        self.streams = gauge("stream_active_buffers", "Streams that are held open.")
        self.held = gauge("stream_buffer_bytes", "Bytes that open streams hold.")


class Pace:
    """When the next call may go out, and whether one more retry may. Thread-safe."""

    def __init__(
        self,
        retries: Retries,
        metrics: Metrics,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,  # noqa: TID251  # a clock to be passed in
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._retries, self._metrics = retries, metrics
        self._monotonic, self._wall, self._uniform = monotonic, wall, uniform
        self._lock = threading.Lock()
        self._until = -math.inf
        self._budget = retries.reserve

    def begin(self) -> None:
        """Note a new call: it earns its share of a retry."""
        with self._lock:
            self._budget = min(self._budget + self._retries.budget_ratio, BUDGET_MOST)

    def pause(self, seconds: float) -> None:
        """Hold back every call that has not gone out for so long."""
        with self._lock:
            self._until = max(self._until, self._monotonic() + seconds)

    def wait_seconds(self) -> float:
        """Return how long to wait before a call; 0 if it may go out."""
        with self._lock:
            left = self._until - self._monotonic()
        return left + self._uniform(0.0, min(left, SPREAD_SECONDS)) if left > 0.0 else 0.0

    def judge(self, outcome: Outcome, attempt: int) -> Optional[float]:
        """Count an attempt; return the wait before the next one, None if there is none."""
        refusal = refusal_of(outcome, self._wall())
        met: object = outcome.error if outcome.error is not None else outcome.value
        status = status_of(met) or ("error" if outcome.error is not None else "ok")
        self._metrics.requests.labels(str(status)).inc()
        if refusal is None:
            return None
        most, told = self._retries, refusal.retry_after
        wait = backoff_seconds(attempt, most, self._uniform) + (told or 0.0)
        if refusal.status == TOO_MANY:
            self._metrics.limited.inc()
        if refusal.status == TOO_MANY or told is not None:
            self.pause(min(wait if told is None else told, most.patience_seconds))
        if attempt + 1 >= most.attempts or wait > most.patience_seconds + most.most_seconds:
            return None
        with self._lock:
            if self._budget < 1.0:
                self._metrics.spent.inc()
                return None
            self._budget -= 1.0
        self._metrics.retries.inc()
        return wait


class StreamBuffer:
    """What one stream has brought and nobody has taken yet, of a bounded size."""

    def __init__(self, most_bytes: int, held: Gauge) -> None:
        self._most, self._held, self._size = most_bytes, held, 0
        self._chunks: list[bytes] = []

    def put(self, chunk: bytes) -> None:
        """Keep a chunk; `FullError` if the stream would hold more than it may."""
        if self._size + len(chunk) > self._most:
            msg = f"a stream holds {self._size:,} of {self._most:,} bytes: forward them first"
            raise FullError(msg)
        self._chunks.append(chunk)
        self._size += len(chunk)
        self._held.inc(len(chunk))

    def take(self) -> bytes:
        """Return what is held and let go of it: forward this."""
        taken = b"".join(self._chunks)
        self._chunks.clear()
        self._held.dec(self._size)
        self._size = 0
        return taken

    def close(self) -> None:
        self.take()


class ClientKit:
    """Calls anything within bounds, from threads (`map` has `workers`) or from one event loop."""

    def __init__(  # noqa: PLR0913  # a setting each, all named
        self,
        *,
        workers: int = 8,
        in_flight: int = 100,
        queue_bound: int = 1000,
        streams: int = 20,
        stream_bytes: int = 8_388_608,
        metrics: Optional[Metrics] = None,
        pace: Optional[Pace] = None,
        sleep: Optional[Callable[[float], object]] = None,
        errors: tuple[type[Exception], ...] = (Exception,),
    ) -> None:
        self.metrics = metrics or Metrics()
        self.pace = pace or Pace(Retries(), self.metrics)
        self.metrics.bound.set(queue_bound)
        self._workers, self._bound, self._stream_bytes = workers, queue_bound, stream_bytes
        self._in_flight, self._streams = in_flight, streams
        self._sleep, self._errors = sleep, errors
        self._waiting, self._lock, self._never = 0, threading.Lock(), threading.Event()
        self._flight = threading.BoundedSemaphore(in_flight)
        self._open = threading.BoundedSemaphore(streams)

    @cached_property
    def _aflight(self) -> asyncio.Semaphore:  # made in the loop that uses it: Python 3.9 binds it
        return asyncio.Semaphore(self._in_flight)

    @cached_property
    def _aopen(self) -> asyncio.Semaphore:
        return asyncio.Semaphore(self._streams)

    def _enter(self, most: float = math.inf) -> None:
        with self._lock:
            if self._waiting >= most:
                msg = f"{self._waiting:,} calls wait already, which is the bound; send less at once"
                raise FullError(msg)
            self._waiting += 1
            self.metrics.waiting.inc()
        self.pace.begin()

    def _leave(self) -> bool:
        with self._lock:
            self._waiting -= 1
            self.metrics.waiting.dec()
        return False

    def call(self, function: Callable[..., Any], *args: Any) -> Any:  # noqa: ANN401  # any function
        """Call until it is not refused, or given up; `FullError` if as many wait as may."""
        self._enter(self._bound)
        return self._call(self._never, function, *args)

    def _rest(self, over: threading.Event, seconds: float) -> None:
        """Wait; a call whose outcome nobody waits for any more ends here."""
        if over.is_set() or (over.wait(seconds) if self._sleep is None else self._sleep(seconds)):
            raise CancelledError

    def _call(self, over: threading.Event, function: Callable[..., Any], *args: Any) -> Any:  # noqa: ANN401
        waits, attempt, outcome = True, 0, Outcome(None)
        try:
            while True:
                with self._flight:
                    while (wait := self.pace.wait_seconds()) > 0.0:
                        self._rest(over, wait)
                    waits = waits and self._leave()
                    with self.metrics.flying.track_inprogress():
                        try:
                            outcome = Outcome(None, function(*args))
                        except self._errors as error:
                            outcome = Outcome(None, error=error)
                again = self.pace.judge(outcome, attempt)
                if again is None:
                    return outcome.get()
                self._rest(over, again)
                attempt += 1
        finally:
            del outcome  # an error, its traceback and this frame would hold each other
            waits = waits and self._leave()

    async def acall(self, function: Callable[..., Awaitable[Any]], *args: Any) -> Any:  # noqa: ANN401
        """Do as `call` does, in asyncio."""
        return await self._acall(self._bound, function, *args)

    async def _acall(self, most: float, function: Callable[..., Awaitable[Any]], *args: Any) -> Any:  # noqa: ANN401
        self._enter(most)
        waits, attempt, outcome = True, 0, Outcome(None)
        try:
            while True:
                async with self._aflight:
                    while (wait := self.pace.wait_seconds()) > 0.0:  # noqa: ASYNC110  # it may grow
                        await asyncio.sleep(wait)
                    waits = waits and self._leave()
                    with self.metrics.flying.track_inprogress():
                        try:
                            outcome = Outcome(None, await function(*args))
                        except self._errors as error:
                            outcome = Outcome(None, error=error)
                again = self.pace.judge(outcome, attempt)
                if again is None:
                    return outcome.get()
                await asyncio.sleep(again)
                attempt += 1
        finally:
            del outcome
            waits = waits and self._leave()

    def map(self, function: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Outcome]:
        """Call for each item; yields in their order, and draws no more of them than may wait."""
        pending: deque[tuple[Any, Future[Any]]] = deque()
        over = threading.Event()
        with ThreadPoolExecutor(self._workers, thread_name_prefix="client-kit") as pool:
            try:
                for item in items:
                    while len(pending) >= self._bound:
                        yield _outcome(*pending.popleft())
                    self._enter()
                    pending.append((item, pool.submit(self._call, over, function, item)))
                while pending:
                    yield _outcome(*pending.popleft())
            finally:
                over.set()
                for _, future in pending:
                    if future.cancel():
                        self._leave()

    async def amap(
        self, function: Callable[[Any], Awaitable[Any]], items: Iterable[Any]
    ) -> AsyncIterator[Outcome]:
        """Do as `map` does, in asyncio."""
        pending: deque[tuple[Any, asyncio.Future[Any]]] = deque()
        try:
            for item in items:
                while len(pending) >= self._bound:
                    await asyncio.wait([pending[0][1]])
                    yield _outcome(*pending.popleft())
                called = asyncio.ensure_future(self._acall(math.inf, function, item))
                pending.append((item, called))
            while pending:
                await asyncio.wait([pending[0][1]])
                yield _outcome(*pending.popleft())
        finally:
            for _, task in pending:
                task.cancel()

    @contextmanager
    def stream(self, timeout: Optional[float] = None) -> Iterator[StreamBuffer]:
        """Hold a stream open; waits while too many are, `FullError` after `timeout` seconds."""
        if not self._open.acquire(timeout=timeout):
            msg = f"{self._streams} streams are open, and none ended within {timeout} s"
            raise FullError(msg)
        try:
            with closing(self._buffer()) as buffer, self.metrics.streams.track_inprogress():
                yield buffer
        finally:
            self._open.release()

    @asynccontextmanager
    async def astream(self) -> AsyncIterator[StreamBuffer]:
        """Do as `stream` does, in asyncio; put `asyncio.wait_for` around what may not wait."""
        async with self._aopen:
            with closing(self._buffer()) as buffer, self.metrics.streams.track_inprogress():
                yield buffer

    def _buffer(self) -> StreamBuffer:
        return StreamBuffer(self._stream_bytes, self.metrics.held)


def _outcome(item: Any, future: Any) -> Outcome:  # noqa: ANN401
    error = future.exception()
    return Outcome(item, error=error) if error is not None else Outcome(item, future.result())
