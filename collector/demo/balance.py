"""Keeps played counters consistent: who got a first token has finished, or runs.

Looped and reordered pages add what was added in the recording, and show a number of running
requests that did not come about by that. Between two of them requests would be lost, or finish
that never began. So after each page the difference is made good: requests of average length are
finished, or get their first token.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass

BEGUN = "vllm:time_to_first_token_seconds"
FINISHED = "vllm:e2e_request_latency_seconds"
RUNNING = "vllm:num_requests_running"
SUCCESS = "vllm:request_success_total"
_BUCKET = re.compile(r'(?P<name>[^{]+)_bucket\{.*le="(?P<bound>[^"]+)"')
# Histograms that this engine observes once for each request that finishes.
OF_A_REQUEST = (
    FINISHED,
    "vllm:request_decode_time_seconds",
    "vllm:request_generation_tokens",
    "vllm:request_inference_time_seconds",
    "vllm:request_prefill_time_seconds",
    "vllm:request_prompt_tokens",
    "vllm:request_queue_time_seconds",
    "vllm:request_time_per_output_token_seconds",
)


@dataclass(frozen=True, slots=True)
class _Heads:
    """The samples of one histogram: its buckets with their upper bounds, its count, its sum."""

    buckets: tuple[tuple[float, str], ...]
    count: str
    sum: str


class Balance:
    """Corrects the counters of one page; `heads` are the samples of every page."""

    def __init__(self, heads: Iterable[str]) -> None:
        listed = list(heads)
        histograms = _histograms(listed)
        self._begun = histograms[BEGUN]
        self._finished = [histograms[name] for name in OF_A_REQUEST if name in histograms]
        self._ends = histograms[FINISHED]
        self._success = [head for head in listed if head.startswith(f"{SUCCESS}{{")]

    def settle(self, shown: MutableMapping[str, float], running: float) -> None:
        """Change `shown` so that first tokens less finished requests are those running."""
        left = round(shown[self._begun.count] - shown[self._ends.count] - running)
        if left < 0:
            _observe(shown, self._begun, -left)
        elif left > 0:
            for heads in self._finished:
                _observe(shown, heads, left)
            usual = max(self._success, key=lambda head: shown[head], default=None)
            if usual is not None:
                shown[usual] += left


def running_of(gauges: Mapping[str, str]) -> float:
    """Return how many requests a page's gauges say are running."""
    return sum(float(value) for head, value in gauges.items() if head.startswith(f"{RUNNING}{{"))


def _histograms(heads: Sequence[str]) -> dict[str, _Heads]:
    """Return the histograms among the samples by name; these pages have one series of each."""
    buckets: defaultdict[str, list[tuple[float, str]]] = defaultdict(list)
    ends: dict[str, str] = {}
    for head in heads:
        found = _BUCKET.match(head)
        if found is not None:
            buckets[found["name"]].append((float(found["bound"]), head))
        else:
            ends[head.partition("{")[0]] = head
    return {
        name: _Heads(tuple(sorted(known)), ends[f"{name}_count"], ends[f"{name}_sum"])
        for name, known in buckets.items()
    }


def _observe(shown: MutableMapping[str, float], heads: _Heads, requests: int) -> None:
    """Add so many observations of the mean so far."""
    mean = shown[heads.sum] / shown[heads.count] if shown[heads.count] else 0.0
    for bound, head in heads.buckets:
        if bound >= mean or math.isinf(bound):
            shown[head] += requests
    shown[heads.count] += requests
    shown[heads.sum] += requests * mean
