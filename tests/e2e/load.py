"""Bounded load on a real engine: clients that ask Fusewire's gate first and log what came back."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

import httpx2
import msgspec

MODEL = "tiny"
TIER = "tiny"
WORDS = ("alpha", "river", "seven", "cloud", "table", "north", "paper", "stone", "green", "clock")
LONGEST_WAIT_SECONDS = 1.0


class Exchange(msgspec.Struct):
    """A line for intake: the request as sent, the response as received."""

    at: str
    tier: str
    target: str
    latency_seconds: float
    request: msgspec.Raw
    response: msgspec.Raw


@dataclass(slots=True)
class Counts:
    """What the clients saw."""

    answered: int = 0
    refused: int = 0
    refused_with_retry_after: int = 0
    failed: int = 0
    accepted: int = 0
    rejected: int = 0
    statuses: dict[int, int] = field(default_factory=dict)


class _Accepted(msgspec.Struct):
    accepted: int
    rejected: list[msgspec.Raw]


class Load:
    """Clients that share a seed, a gate and a log."""

    def __init__(self, client: httpx2.AsyncClient, *, engine: str, fusewire: str) -> None:
        self.counts = Counts()
        self._client = client
        self._engine = engine
        self._fusewire = fusewire
        self._random = random.Random(1)
        self._lines: list[bytes] = []

    async def run(
        self, clients: int, *, tokens: tuple[int, int], until: Callable[[], bool]
    ) -> None:
        """Let `clients` send one request after another until `until()` is true."""

        async def one() -> None:
            while not until():
                if await self._admitted():
                    await self._generate(self._random.randint(*tokens))

        async with asyncio.TaskGroup() as group:
            for _ in range(clients):
                group.create_task(one())

    async def _admitted(self) -> bool:
        answer = await self._client.get(f"{self._fusewire}/v1/admit/{TIER}")
        if answer.is_success:
            return True
        retry = answer.headers.get("retry-after", "")
        self.counts.refused += 1
        self.counts.refused_with_retry_after += bool(retry)
        await asyncio.sleep(min(float(retry or 1), LONGEST_WAIT_SECONDS))
        return False

    async def _generate(self, tokens: int) -> None:
        prompt = " ".join(self._random.choices(WORDS, k=self._random.randint(4, 12)))
        body = msgspec.json.encode(
            {
                "model": MODEL,
                "prompt": prompt,
                "max_tokens": tokens,
                "temperature": 1.0,
                "logprobs": 5,
                "ignore_eos": True,
            }
        )
        began, at = time.monotonic(), datetime.now(UTC)  # noqa: TID251  # a client's own clock
        try:
            answer = await self._client.post(
                f"{self._engine}/v1/completions",
                content=body,
                headers={"content-type": "application/json"},
            )
        except httpx2.HTTPError:
            self.counts.failed += 1
            return
        if not answer.is_success:
            self.counts.failed += 1
            self.counts.statuses[answer.status_code] = (
                self.counts.statuses.get(answer.status_code, 0) + 1
            )
            return
        self.counts.answered += 1
        line = Exchange(
            at.isoformat(),
            TIER,
            "vllm",
            time.monotonic() - began,
            msgspec.Raw(body),
            msgspec.Raw(answer.content),
        )
        self._lines.append(msgspec.json.encode(line))
        if len(self._lines) >= 16:
            await self.flush()

    async def flush(self) -> None:
        """Post the logged generations to intake."""
        lines, self._lines = self._lines, []
        if not lines:
            return
        answer = await self._client.post(
            f"{self._fusewire}/v1/ingest/generations",
            content=b"\n".join(lines),
            headers={"content-type": "application/x-ndjson"},
        )
        found = msgspec.json.decode(answer.content, type=_Accepted)
        self.counts.accepted += found.accepted
        self.counts.rejected += len(found.rejected)
