"""Generation intake: ours, the bare typed decode of the same bytes, and json.loads."""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from collector.ingest.decode import decode
from collector.ingest.records import Defaults, Limits, TierNames
from collector.ingest.shapes import Line
from detectors.features import compression_of, distinct_gram_ratio, text_features
from tests.collector.ingest.recorded import the

GENERATIONS = 250
TOKENS = 64
PROMPT_CHARS = 600
PROMPT_BYTES = 4096
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
    response["id"] = ""  # the line is sent again and again, and counts each time
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
    body = b"\n".join(b'{"id":%d,' % number + line[1:] for number in range(GENERATIONS))
    typed = msgspec.json.Decoder(Line)

    def decode_and_drop() -> None:
        for _ in range(GENERATIONS):
            typed.decode(line)

    rows = [
        best("intake", lambda: decode(body, DEFAULTS, Limits())),
        best("typed decode, kept", lambda: [typed.decode(line) for _ in range(GENERATIONS)]),
        best("typed decode, dropped", decode_and_drop),
        best("json.loads alone", lambda: [json.loads(line) for _ in range(GENERATIONS)]),
    ]

    print(f"\nintake, {TOKENS} tokens x top {candidates}, {len(line):,} bytes a line, one core")
    for row in rows:
        share = rows[1].seconds / row.seconds
        print(
            f"  {row.name:<22} {1 / row.seconds:>9,.0f} generations/s "
            f"{row.seconds * 1e6:>7.0f} us  {share:>5.2f} of the typed decode, kept"
        )


@pytest.mark.bench
def test_prompt_features() -> None:
    prose = " ".join(prose_of_the_docs())[:PROMPT_BYTES].encode("ascii", "replace").decode()
    texts = {"prose": prose, "one sentence again and again": (prose[:300] * 20)[:PROMPT_BYTES]}

    print(f"\nprompt features, {PROMPT_BYTES:,} bytes of text, us")
    for kind, text in texts.items():
        data = text.encode()
        works: dict[str, Callable[[], object]] = {
            "all": partial(text_features, text),
            "hashed 4-grams": partial(distinct_gram_ratio, data),
            "compression": partial(compression_of, data),
            "peer: zlib level 1": partial(zlib.compress, data, 1),
            "peer: set of 4-grams": partial(gram_set, data),
        }
        shown = [
            f"{name} {best(name, partial(repeated, work)).seconds * 1e6:.1f}"
            for name, work in works.items()
        ]
        print(f"  {kind}: {', '.join(shown)}")


def gram_set(data: bytes) -> set[bytes]:
    return {data[i : i + 4] for i in range(len(data) - 3)}


def repeated(work: Callable[[], object]) -> None:
    for _ in range(GENERATIONS):
        work()


def prose_of_the_docs() -> list[str]:
    """Return prose of this repository: it repeats itself as little as a real prompt does."""
    docs = sorted((Path(__file__).parents[2] / "docs").glob("*.md"))
    return [path.read_text() for path in docs]
