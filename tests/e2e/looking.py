"""What the drive sees of the running service, and the most of it that was seen."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache

import httpx2
import msgspec

from tests.e2e.load import TIER


class Value(msgspec.Struct):
    value: float | None


class Finding(msgspec.Struct):
    code: str
    text: str


class Target(msgspec.Struct):
    id: str
    version: str
    up: bool | None
    signals: dict[str, Value]
    findings: list[Finding] = []


class Progress(msgspec.Struct):
    scope: str
    stage: str
    requests: int


class Tier(msgspec.Struct):
    tier: str
    targets: list[Target]
    baselines: list[Progress]


class Verdict(msgspec.Struct):
    level: str
    signal: str
    cause: str
    reason: str


class Breaker(msgspec.Struct):
    tier: str
    target: str
    shown_state: str
    effective_ratio: float


@dataclass(slots=True)
class Seen:
    """The most of everything that was seen."""

    version: str = ""
    kv_cache_usage_ratio: float = 0.0
    requests_waiting: float = 0.0
    preemptions_total: float = 0.0
    allocator: str = ""  # what the probes inside vLLM said
    lowest_admit_ratio: float = 1.0
    tripped: bool = False
    tripped_at: float = 0.0
    recovered: bool = False
    baselines: dict[str, str] = field(default_factory=dict)
    verdicts: dict[str, str] = field(default_factory=dict)  # cause and level to the first reason


def say(text: str) -> None:
    """Print a line with the seconds since the start."""
    sys.stdout.write(f"{time.monotonic() - began():6.1f}s  {text}\n")
    sys.stdout.flush()


@cache
def began() -> float:
    """Return when this was first asked: the start of the run."""
    return time.monotonic()


async def look(client: httpx2.AsyncClient, service: str, seen: Seen) -> str:
    """Look at the service once; return what it shows in a line."""
    tiers, breakers, verdicts = await asyncio.gather(
        client.get(f"{service}/v1/tiers"),
        client.get(f"{service}/v1/breakers"),
        client.get(f"{service}/v1/verdicts", params={"at_least": "warning"}),
    )
    (tier,) = msgspec.json.decode(tiers.content, type=list[Tier])
    values = {name: one.value for name, one in tier.targets[0].signals.items()}
    seen.version = tier.targets[0].version
    for name in ("kv_cache_usage_ratio", "requests_waiting", "preemptions_total"):
        setattr(seen, name, max(getattr(seen, name), values.get(name) or 0.0))
    said = {finding.code: finding.text for finding in tier.targets[0].findings}
    seen.allocator = said.get("no_cuda", seen.allocator)
    seen.baselines.update({one.scope: f"{one.stage}, {one.requests}" for one in tier.baselines})
    for verdict in msgspec.json.decode(verdicts.content, type=list[Verdict]):
        name = f"{verdict.cause} {verdict.level}"
        if verdict.cause and name not in seen.verdicts:
            seen.verdicts[name] = f"{verdict.signal}: {verdict.reason}"
            say(f"verdict {name}: {seen.verdicts[name]}")
    found = msgspec.json.decode(breakers.content, type=list[Breaker])
    ratio = min((one.effective_ratio for one in found if one.tier == TIER), default=1.0)
    seen.lowest_admit_ratio = min(seen.lowest_admit_ratio, ratio)
    seen.recovered = seen.tripped and ratio >= 1
    if ratio < 1 and not seen.tripped:
        seen.tripped, seen.tripped_at = True, time.monotonic()
    states = ", ".join(f"{one.target or 'tier'} {one.shown_state}" for one in found)
    return (
        f"kv {values.get('kv_cache_usage_ratio') or 0:.2f}"
        f"  running {values.get('requests_running') or 0:g}"
        f"  waiting {values.get('requests_waiting') or 0:g}  admits {ratio:.2f}  [{states}]"
    )


async def watch(
    client: httpx2.AsyncClient, service: str, seen: Seen, *, until: Callable[[], bool]
) -> None:
    """Look once a second until `until()`; print a line every third time."""
    looks = 0
    while not until():
        line = await look(client, service, seen)
        if looks % 3 == 0:
            say(line)
        looks += 1
        await asyncio.sleep(1)


def after(seconds: float) -> Callable[[], bool]:
    """Return a test for whether `seconds` from now have passed."""
    deadline = time.monotonic() + seconds
    return lambda: time.monotonic() >= deadline
