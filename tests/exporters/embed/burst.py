"""A burst of requests, naively or through the kit: run alone, in a Python without Fusewire.

Arguments: the number of requests, and the kit's file for the kit. Prints one JSON line: what was
sent, retried and answered, and by how much Python's memory rose at most. Time is that of the event
loop, which never waits: where nothing is ready its clock jumps to the next timer.
"""

from __future__ import annotations

import asyncio
import json
import random
import runpy
import selectors
import sys
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any

WINDOW_SECONDS, WINDOW_REQUESTS = 1.0, 500
LATENCY_SECONDS = 0.01
TEXT_BYTES = 2_000


class Jumping(selectors.SelectSelector):
    """A selector that never sleeps: it moves the loop's clock instead."""

    def __init__(self) -> None:
        super().__init__()
        self.at = 1000.0

    def select(self, timeout: float | None = None) -> Any:
        self.at += max(timeout or 0.0, 0.0)
        return super().select(0)


@dataclass
class Refused:
    """An answer 429."""

    status_code: int = 429
    headers: dict[str, str] = field(default_factory=lambda: {"retry-after": "1"})


@dataclass
class Tier:
    """A fake server: so many requests a window, all others are answered 429."""

    clock: Jumping
    window: int = -1
    taken: int = 0
    answered: int = 0

    async def ask(self, text: str) -> int | Refused:
        await asyncio.sleep(LATENCY_SECONDS)
        window = int(self.clock.at / WINDOW_SECONDS)
        if window != self.window:
            self.window, self.taken = window, 0
        if self.taken >= WINDOW_REQUESTS:
            return Refused()
        self.taken += 1
        self.answered += 1
        return len(text)


def documents(count: int) -> Iterator[str]:
    """Yield texts as a batch job reads them: each is new memory."""
    for number in range(count):
        yield f"{number:08d}" * (TEXT_BYTES // 8)


async def naive(tier: Tier, count: int) -> dict[str, float]:
    """Queue everything at once, and try again after a fixed second."""
    sent = retried = 0

    async def one(text: str) -> int:
        nonlocal sent, retried
        while True:
            sent += 1
            answer = await tier.ask(text)
            if isinstance(answer, int):
                return answer
            retried += 1
            await asyncio.sleep(1.0)

    sizes = await asyncio.gather(*[one(text) for text in documents(count)])
    return {"sent": sent, "retried": retried, "done": len(sizes)}


async def kitted(tier: Tier, count: int, module: dict[str, Any]) -> dict[str, float]:
    """Send the same through the kit."""
    metrics = module["Metrics"]()
    pace = module["Pace"](
        module["Retries"](),
        metrics,
        monotonic=lambda: tier.clock.at,
        uniform=random.Random(1).uniform,
    )
    kit = module["ClientKit"](in_flight=8, queue_bound=100, metrics=metrics, pace=pace)
    done = 0
    results: AsyncIterator[Any] = kit.amap(tier.ask, documents(count))
    async for result in results:
        done += isinstance(result.value, int)
    samples = {
        sample.name: sample.value
        for family in (metrics.retries, metrics.limited, metrics.waiting, metrics.flying)
        for metric in family.collect()
        for sample in metric.samples
    }
    return {
        "sent": sum(
            sample.value
            for metric in metrics.requests.collect()
            for sample in metric.samples
            if sample.name.endswith("_total")
        ),
        "retried": samples["openai_api_rate_limit_retries_total"],
        "limited": samples["openai_api_rate_limited_total"],
        "left": samples["openai_api_queue_size"] + samples["openai_api_in_flight"],
        "done": done,
    }


def main() -> None:
    clock = Jumping()
    loop = asyncio.SelectorEventLoop(clock)
    loop.time = lambda: clock.at  # type: ignore[method-assign]  # the loop's clock is ours
    tier, count = Tier(clock), int(sys.argv[1])
    module = runpy.run_path(sys.argv[2]) if len(sys.argv) > 2 else {}
    work = kitted(tier, count, module) if module else naive(tier, count)
    tracemalloc.start()
    found = loop.run_until_complete(work)
    peak = tracemalloc.get_traced_memory()[1]
    loop.close()
    sys.stdout.write(json.dumps({**found, "answered": tier.answered, "peak_bytes": peak}))


if __name__ == "__main__":
    main()
