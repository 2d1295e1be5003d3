"""The plain HTTP client of the demo: three upstreams that send recorded prompts at a steady rate.

It knows nothing of Fusewire: it sees answers, and 503 with `Retry-After` where it is shed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random

import httpx2

from collector.demo.recorded import Exchange

UPSTREAM_HEADER = "x-upstream"
KEPT_SECONDS = 300  # one row a second is kept for so long
_IN_FLIGHT = 64
_STEP_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Counts:
    """What became of the requests that were sent; `skipped` were never sent (all busy)."""

    answered: int = 0
    shed: int = 0  # 503 with Retry-After
    refused: int = 0  # any other status
    failed: int = 0  # no answer at all
    skipped: int = 0

    def minus(self, other: Counts) -> Counts:
        return Counts(
            self.answered - other.answered,
            self.shed - other.shed,
            self.refused - other.refused,
            self.failed - other.failed,
            self.skipped - other.skipped,
        )


@dataclass(slots=True)
class Upstream:
    """One caller: how fast it sends, and the set of recordings that its prompts come from."""

    segment: str
    requests_per_second: float
    prompts: str
    due: float = 0.0


@dataclass(slots=True)
class _Seconds:
    """Counts by whole second since the start, the newest `KEPT_SECONDS` of them."""

    rows: deque[tuple[int, Counts]] = field(default_factory=lambda: deque(maxlen=KEPT_SECONDS))

    def close(self, second: int, counts: Counts) -> None:
        self.rows.append((second, counts))


class Client:
    """Sends until it is cancelled; `totals` and `by_second` tell what happened."""

    def __init__(
        self,
        http: httpx2.AsyncClient,
        *,
        url: str,
        upstreams: Sequence[Upstream],
        sets: Mapping[str, Sequence[Exchange]],
        rng: Random,
        monotonic: Callable[[], float],
    ) -> None:
        self._http = http
        self._url = url
        self._upstreams = {upstream.segment: upstream for upstream in upstreams}
        self._sets = sets
        self._rng = rng
        self._monotonic = monotonic
        self._sending: set[asyncio.Task[None]] = set()
        self._seconds = _Seconds()
        self.totals = Counts()

    @property
    def by_second(self) -> tuple[tuple[int, Counts], ...]:
        """Counts of each whole second that has passed, oldest first."""
        return tuple(self._seconds.rows)

    @property
    def last_second(self) -> Counts:
        return self._seconds.rows[-1][1] if self._seconds.rows else Counts()

    def send_prompts(self, segment: str, prompts: str) -> None:
        """Let the upstream `segment` draw its prompts from the set `prompts` from now on."""
        if prompts not in self._sets:
            msg = f"prompts {prompts!r}: expected one of {list(self._sets)}"
            raise ValueError(msg)
        self._upstreams[segment].prompts = prompts

    async def run(self, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        """Send until cancelled; what is in flight then is dropped."""
        started = before = self._monotonic()
        second, closed = 0, Counts()
        try:
            while True:
                await sleep(_STEP_SECONDS)
                now = self._monotonic()
                self.send_due(now - before)
                before = now
                if int(now - started) > second:
                    self._seconds.close(second, self.totals.minus(closed))
                    second, closed = int(now - started), self.totals
        finally:
            for task in self._sending:
                task.cancel()

    def send_due(self, elapsed_seconds: float) -> None:
        """Start the requests that `elapsed_seconds` made due, drawn with replacement."""
        for upstream in self._upstreams.values():
            upstream.due += upstream.requests_per_second * elapsed_seconds
            while upstream.due >= 1:
                upstream.due -= 1
                self._send_one(upstream)

    def _send_one(self, upstream: Upstream) -> None:
        if len(self._sending) >= _IN_FLIGHT:
            self.totals = replace(self.totals, skipped=self.totals.skipped + 1)
            return
        drawn = self._rng.choice(self._sets[upstream.prompts])
        task = asyncio.create_task(self._send(upstream.segment, drawn.request))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _send(self, segment: str, body: bytes) -> None:
        headers = {UPSTREAM_HEADER: segment, "content-type": "application/json"}
        try:
            response = await self._http.post(self._url, content=body, headers=headers)
        except httpx2.HTTPError:
            self.totals = replace(self.totals, failed=self.totals.failed + 1)
            return
        if response.status_code == httpx2.codes.OK:
            self.totals = replace(self.totals, answered=self.totals.answered + 1)
        elif (
            response.status_code == httpx2.codes.SERVICE_UNAVAILABLE
            and "retry-after" in response.headers
        ):
            self.totals = replace(self.totals, shed=self.totals.shed + 1)
        else:
            self.totals = replace(self.totals, refused=self.totals.refused + 1)
