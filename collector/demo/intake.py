"""The gateway's log of generations: a bounded queue, sent to Fusewire as NDJSON in batches."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime

import httpx2
import msgspec

MAX_QUEUED_LINES = 2_000
_BATCH_LINES = 250
_PAUSE_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class Generation:
    """One request that was answered, with bodies as they went over the wire."""

    at: datetime
    target: str
    segment: str
    latency_seconds: float
    request: bytes
    response: bytes


class _Line(msgspec.Struct):
    at: datetime
    tier: str
    target: str
    segment: str
    latency_seconds: float
    request: msgspec.Raw
    response: msgspec.Raw


def line_of(generation: Generation, *, tier: str) -> bytes:
    """Return the generation as one line of `POST /v1/ingest/generations`."""
    line = _Line(
        at=generation.at,
        tier=tier,
        target=generation.target,
        segment=generation.segment,
        latency_seconds=round(generation.latency_seconds, 6),
        request=msgspec.Raw(generation.request),
        response=msgspec.Raw(generation.response),
    )
    encoded = msgspec.json.encode(line)
    return encoded.replace(b"\n", b" ").replace(
        b"\r", b" "
    )  # raw ones are only white space in JSON


class IntakeQueue:
    """Holds lines until they are sent. A full queue drops, a failed batch is lost; both count."""

    def __init__(self, *, tier: str, bound: int = MAX_QUEUED_LINES) -> None:
        self._tier = tier
        self._bound = bound
        self._lines: deque[bytes] = deque()
        self.dropped = 0
        self.sent = 0
        self.lost = 0
        self.problem = ""

    def __len__(self) -> int:
        return len(self._lines)

    def offer(self, generation: Generation) -> None:
        """Queue a generation, or count it as dropped."""
        if len(self._lines) >= self._bound:
            self.dropped += 1
            return
        self._lines.append(line_of(generation, tier=self._tier))

    async def send_batch(self, http: httpx2.AsyncClient, url: str) -> int:
        """Send the oldest lines; return how many were taken from the queue."""
        batch = [self._lines.popleft() for _ in range(min(_BATCH_LINES, len(self._lines)))]
        if not batch:
            return 0
        headers = {"content-type": "application/x-ndjson"}
        try:
            response = await http.post(url, content=b"\n".join(batch) + b"\n", headers=headers)
            response.raise_for_status()
        except httpx2.HTTPError as error:
            self.lost += len(batch)
            self.problem = f"{type(error).__name__}: {error}"
        else:
            self.sent += len(batch)
            self.problem = ""
        return len(batch)

    async def run(
        self,
        http: httpx2.AsyncClient,
        url: str,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Send until cancelled."""
        while True:
            if await self.send_batch(http, url) < _BATCH_LINES:
                await sleep(_PAUSE_SECONDS)
