"""Generation intake: ours, the bare typed decode of the same bytes, and json.loads."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from collector.ingest.decode import decode
from collector.ingest.records import Defaults, Limits, TierNames
from collector.ingest.shapes import Line
from tests.collector.ingest.recorded import the

GENERATIONS = 250
TOKENS = 64
PROMPT_CHARS = 600
REPEATS = 5
DEFAULTS = Defaults(
    arrival=datetime(2026, 11, 29, 18, 0, tzinfo=UTC), tiers={"chat": TierNames()}, tier="chat"
)


@dataclass(frozen=True)
class Measured:
    """Best of the repeats, seconds a generation."""

    name: str
    seconds: float


def chat_line(candidates: int) -> bytes:
    """Return a line of TOKENS tokens with `candidates` each, made of a recorded answer."""
    recorded = the("0.32.0-chat-logprobs-top20")
    response: dict[str, Any] = recorded.response
    entries = response["choices"][0]["logprobs"]["content"]
    made = [
        {**entry, "top_logprobs": entry["top_logprobs"][:candidates]}
        for entry in (entries * (TOKENS // len(entries) + 1))[:TOKENS]
    ]
    response["choices"][0]["logprobs"]["content"] = made
    text = (Path(__file__).read_text() * 2)[:PROMPT_CHARS]
    request = {**recorded.request, "messages": [{"role": "user", "content": text}]}
    line = {"latency_seconds": 1.5, "request": request, "response": response}
    return json.dumps(line, separators=(",", ":")).encode()


def best(name: str, work: Callable[[], object]) -> Measured:
    seconds = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    return Measured(name, min(seconds) / GENERATIONS)


@pytest.mark.bench
@pytest.mark.parametrize("candidates", [1, 5, 20])
def test_generation_intake(candidates: int) -> None:
    line = chat_line(candidates)
    body = b"\n".join([line] * GENERATIONS)
    typed = msgspec.json.Decoder(Line)

    rows = [
        best("intake", lambda: decode(body, DEFAULTS, Limits())),
        best("typed decode alone", lambda: [typed.decode(line) for _ in range(GENERATIONS)]),
        best("json.loads alone", lambda: [json.loads(line) for _ in range(GENERATIONS)]),
    ]

    print(f"\nintake, {TOKENS} tokens x top {candidates}, {len(line):,} bytes a line, one core")
    for row in rows:
        share = rows[1].seconds / row.seconds
        print(
            f"  {row.name:<20} {1 / row.seconds:>9,.0f} generations/s "
            f"{row.seconds * 1e6:>7.0f} us  {share:>5.2f} of the typed decode"
        )
