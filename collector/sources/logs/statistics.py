"""The lines that engines write of themselves every few seconds: vLLM of all versions, SGLang.

Records stand anywhere in a line, behind progress bars or one glued to the other. Percent becomes a
ratio here. They are a cross-check of the metrics page and never its replacement.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

NEEDLES: Final = (b"Avg prompt t", b"token usage: ")
_F: Final = r"(\d{1,12}(?:\.\d{1,6})?)"
_N: Final = r"(\d{1,9})"
_VLLM: Final = re.compile(
    (
        rf"(?:(?:Engine |DP)(?P<engine>\d{{1,4}}): )?"
        rf"Avg prompt (?:throughput|tput): {_F} tok(?:en)?s/s, "
        rf"Avg generation (?:throughput|tput): {_F} tok(?:en)?s/s, "
        rf"(?:Reqs )?Running: {_N}(?: reqs)?, (?:Swapped: {_N} reqs, )?"
        rf"(?:Waiting|Pending): {_N}(?: reqs)?,[^%\n]{{0,200}}? KV cache us(?:age|ed): {_F}%"
        rf"(?:, CPU KV cache usage: {_F}%)?"
        rf"(?:,[^\n]{{0,60}}?\bPrefix cache hit rate: {_F}%)?"
    ).encode()
)
_SGLANG: Final = re.compile(
    rb"(?:Prefill|Decode) batch\b[^\n]{0,300}?token usage: (\d(?:\.\d{1,6})?)\b([^\n]{0,200})"
)
_RUNNING: Final = re.compile(rb"#running-req: (\d{1,9})")
_QUEUE: Final = re.compile(rb"#queue-req: (\d{1,9})")


@dataclass(frozen=True, slots=True)
class Statistics:
    """One record; `swapped` is of vLLM before V1, rates in tokens a second."""

    engine: str
    running: float
    waiting: float
    kv_cache_usage_ratio: float
    swapped: float = 0.0
    prompt_tokens_per_second: float | None = None
    generation_tokens_per_second: float | None = None
    prefix_cache_hit_ratio: float | None = None


def statistics(line: bytes) -> Iterator[Statistics]:
    """Yield the records in a line, in order; ANSI codes are gone already."""
    for found in _VLLM.finditer(line):
        prompt, generation, running, swapped, waiting, used, _, hits = found.groups()[1:]
        yield Statistics(
            engine=(found["engine"] or b"").decode(),
            running=float(running),
            waiting=float(waiting),
            kv_cache_usage_ratio=float(used) / 100,
            swapped=float(swapped or 0),
            prompt_tokens_per_second=float(prompt),
            generation_tokens_per_second=float(generation),
            prefix_cache_hit_ratio=None if hits is None else float(hits) / 100,
        )
    for found in _SGLANG.finditer(line):
        running, waiting = _RUNNING.search(found[0]), _QUEUE.search(found[0])
        if running is not None and waiting is not None:
            yield Statistics("", float(running[1]), float(waiting[1]), float(found[1]))
