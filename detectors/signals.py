"""The canonical signals: one name, one unit, one meaning for every engine, and their grids.

Names are final (a metric, a configuration key and a signal that mean the same share it). Request
signals are counted on a `Grid`: fixed, versioned edges, so that counts of any two workers, ticks
or days add, and a baseline's thresholds are edges of the same grid.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from detectors.records import FloatArray, IntArray

Side: TypeAlias = Literal["input", "output", ""]
MAX_EDGES = 256


class Kind(StrEnum):
    """How a signal behaves over time."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"
    REQUEST = "request"


@dataclass(frozen=True)
class Grid:
    """Fixed edges of a request signal.

    Bin i counts values in (edges[i-1], edges[i]]; the first bin is open below, the last above, so
    there are ``len(edges) + 1`` bins. An edge is a possible value (0, 1, an integer), and a value
    equal to it falls below it: ties need no care.
    """

    name: str
    edges: tuple[float, ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.edges) <= MAX_EDGES:
            msg = f"grid {self.name}: {len(self.edges)} edges, expected 1 to {MAX_EDGES}"
            raise ValueError(msg)
        if any(not math.isfinite(edge) for edge in self.edges):
            msg = f"grid {self.name}: edges must be finite"
            raise ValueError(msg)
        if any(right <= left for left, right in zip(self.edges, self.edges[1:], strict=False)):
            msg = f"grid {self.name}: edges must rise"
            raise ValueError(msg)

    @property
    def bins(self) -> int:
        return len(self.edges) + 1

    @cached_property
    def array(self) -> FloatArray:
        return np.asarray(self.edges, dtype=np.float64)

    def count(self, values: FloatArray) -> IntArray:
        """Count `values` (any shape, unit of the signal) into the bins; NaN is not counted.

        Returns:
            Integers of shape ``(bins,)``. Infinite values fall into the outer bins.
        """
        flat = values[~np.isnan(values)]
        places = np.searchsorted(self.array, flat, side="left")
        return np.bincount(places, minlength=self.bins).astype(np.int64)


def _rounded(values: NDArray[np.floating[Any]], digits: int) -> tuple[float, ...]:
    """Return the distinct values, ascending, each to `digits` significant digits."""
    return tuple(sorted({float(f"{value:.{digits}g}") for value in values}))


def _size_edges() -> tuple[float, ...]:
    """Integers 0 to 32 one by one, then 14 edges an octave up to 2^20: every size of a prompt."""
    fine = np.arange(0, 33)
    coarse = np.rint(np.exp2(np.arange(5 + 1 / 14, 20 + 1e-9, 1 / 14)))
    return tuple(sorted({float(value) for value in np.concatenate([fine, coarse])}))


SIZE_GRID = Grid("size-v1", _size_edges())
RATIO_GRID = Grid(
    "ratio-v1",
    _rounded(np.concatenate([[0.0, 0.001, 0.002], np.arange(1, 201) / 200, [0.998, 0.999]]), 6),
)
NATS_GRID = Grid("nats-v1", _rounded(np.arange(0, 251) * 0.05, 6))  # 0 to 12.5, ln(270,000)
LOGPROB_GRID = Grid("logprob-v1", _rounded(np.arange(-250, 1) * 0.08, 6))  # -20 to 0
SMALL_NATS_GRID = Grid("small-nats-v1", _rounded(np.logspace(-6, 1.5, 240), 4))
SECONDS_GRID = Grid("seconds-v1", _rounded(np.logspace(-3, 4, 250), 4))
TEMPERATURE_GRID = Grid("temperature-v1", _rounded(np.arange(0, 201) / 100, 6))
FLAG_GRID = Grid("flag-v1", (0.0,))


@dataclass(frozen=True, slots=True)
class Signal:
    """One row of the table: `unit` is a suffix word; `label` names the label of its parts."""

    name: str
    kind: Kind
    unit: str
    help: str
    side: Side = ""
    grid: Grid | None = None
    label: str = ""


def _gauge(name: str, unit: str, text: str, label: str = "") -> Signal:
    return Signal(name, Kind.GAUGE, unit, text, label=label)


def _counter(name: str, unit: str, text: str, label: str = "") -> Signal:
    return Signal(name, Kind.COUNTER, unit, text, label=label)


def _histogram(name: str, text: str) -> Signal:
    return Signal(name, Kind.HISTOGRAM, "seconds", text)


def _input(name: str, unit: str, grid: Grid, text: str) -> Signal:
    return Signal(name, Kind.REQUEST, unit, text, side="input", grid=grid)


def _output(name: str, unit: str, grid: Grid, text: str) -> Signal:
    return Signal(name, Kind.REQUEST, unit, text, side="output", grid=grid)


_ROWS: tuple[Signal, ...] = (
    _gauge("requests_running", "requests", "Requests in the running batch."),
    _gauge("requests_waiting", "requests", "Requests queued before the batch."),
    _gauge("request_slots", "requests", "Most requests that may run at once."),
    _gauge("kv_cache_usage_ratio", "ratio", "Share of KV-cache blocks in use, fullest engine."),
    _gauge("kv_cache_usage_mean_ratio", "ratio", "The same, mean over the target's engines."),
    _gauge("kv_cache_capacity_tokens", "tokens", "Tokens that the KV cache holds."),
    _gauge("batch_tokens", "tokens", "Token budget that the running batch has reserved (TGI)."),
    _gauge("batch_token_budget", "tokens", "Most tokens that a batch may reserve (TGI)."),
    _counter("preemptions_total", "preemptions", "Requests put back for lack of KV blocks."),
    _counter("prompt_tokens_total", "tokens", "Prompt tokens taken in."),
    _counter("generation_tokens_total", "tokens", "Tokens generated."),
    _counter("engine_steps_total", "steps", "Engine steps, where tokens count at a request's end."),
    _gauge("generation_tokens_per_second", "tokens", "Tokens generated a second, lately."),
    _counter("requests_finished_total", "requests", "Requests finished.", label="reason"),
    _counter("requests_rejected_total", "requests", "Requests refused for overload."),
    _counter("requests_failed_total", "requests", "Requests that failed in the engine."),
    _counter("requests_lost_total", "requests", "Requests begun and never finished, estimated."),
    _counter("corrupted_requests_total", "requests", "Requests with NaN logits."),
    _histogram("ttft_seconds", "Time to first token."),
    _histogram("inter_token_seconds", "Time between output tokens."),
    _histogram("queue_seconds", "Time in the queue."),
    _histogram("e2e_seconds", "Time of a whole request."),
    _histogram("prefill_seconds", "Time in prefill."),
    _histogram("decode_seconds", "Time in decode."),
    _gauge("prefix_cache_hit_ratio", "ratio", "Prefix-cache hits over queries since start."),
    _gauge("spec_decode_acceptance_ratio", "ratio", "Draft tokens accepted since start."),
    _gauge("ttft_p50_seconds", "seconds", "Median time to first token over the last minute."),
    _gauge("ttft_p99_seconds", "seconds", "The same, 99th percentile."),
    _gauge("ttft_estimate_seconds", "seconds", "TTFT approximated: mean wait and prefill, 1 min."),
    _gauge("inter_token_p50_seconds", "seconds", "Median time between tokens, last minute."),
    _gauge("inter_token_p99_seconds", "seconds", "The same, 99th percentile."),
    _gauge("queue_p50_seconds", "seconds", "Median time in the queue, last minute."),
    _gauge("queue_p99_seconds", "seconds", "The same, 99th percentile."),
    _gauge("e2e_p50_seconds", "seconds", "Median time of a whole request, last minute."),
    _gauge("e2e_p99_seconds", "seconds", "The same, 99th percentile."),
    _gauge("lora_adapters_active", "adapters", "LoRA adapters that requests use now."),
    _gauge("context_tokens", "tokens", "Longest sequence that the engine takes."),
    _gauge("gpu_memory_used_bytes", "bytes", "GPU memory in use.", "device"),
    _gauge("gpu_memory_total_bytes", "bytes", "GPU memory there is.", "device"),
    _gauge("gpu_process_memory_bytes", "bytes", "GPU memory of the target's processes.", "device"),
    _gauge("gpu_utilization_ratio", "ratio", "Time with a kernel running.", "device"),
    _gauge("gpu_temperature_celsius", "celsius", "GPU temperature.", "device"),
    _gauge("gpu_power_watts", "watts", "GPU power draw.", "device"),
    _gauge("gpu_throttled", "", "1 while clocks are held down by heat or power.", "device"),
    _counter("gpu_xid_errors_total", "errors", "XID errors that were seen.", "device"),
    _counter("gpu_ecc_errors_total", "errors", "Uncorrected ECC errors.", "device"),
    _gauge("allocator_allocated_bytes", "bytes", "Bytes in live tensors.", "device"),
    _gauge("allocator_reserved_bytes", "bytes", "Bytes held from the driver.", "device"),
    _gauge("allocator_active_bytes", "bytes", "Allocated, or waiting for a stream.", "device"),
    _gauge(
        "allocator_inactive_split_bytes",
        "bytes",
        "Free pieces of split segments, that cannot be given back.",
        "device",
    ),
    _gauge("allocator_largest_free_bytes", "bytes", "Largest free block.", "device"),
    _counter("allocator_retries_total", "retries", "Flushes after a failed cudaMalloc.", "device"),
    _counter("allocator_ooms_total", "errors", "Out-of-memory errors raised.", "device"),
    _gauge("memory_working_set_bytes", "bytes", "Memory that the OOM killer looks at."),
    _gauge("memory_limit_bytes", "bytes", "Memory limit of the container or cgroup."),
    _gauge("memory_rss_bytes", "bytes", "Resident memory of the process or container."),
    _gauge("memory_anon_bytes", "bytes", "Anonymous memory, what no cache can be dropped of."),
    _gauge("memory_swap_bytes", "bytes", "Memory swapped out."),
    _counter("memory_ooms_total", "kills", "Processes that the kernel killed for memory."),
    _counter("restarts_total", "restarts", "Restarts of the container, by reason.", "reason"),
    _gauge("replicas_desired", "replicas", "Replicas that the autoscaler wants."),
    _gauge("replicas_current", "replicas", "Replicas there are."),
    _gauge("replicas_max", "replicas", "Most replicas that the autoscaler may make."),
    _gauge("replicas_min", "replicas", "Fewest replicas that the autoscaler may make."),
    _gauge("gpu_limit_gpus", "gpus", "GPUs that the container may use."),
    _gauge("scaling_limited", "", "1 while the autoscaler wants more than it may make."),
    _gauge("node_pressure", "", "1 while the node is short of something.", "reason"),
    _counter("log_events_total", "lines", "Log lines that match a known trouble.", "reason"),
    _counter("client_requests_total", "requests", "Requests that a client sent."),
    _counter("client_rate_limited_total", "requests", "Of those, answered 429."),
    _counter("client_retries_total", "requests", "Of those, sent again."),
    _gauge("client_queue_size", "requests", "Requests waiting in a client or broker."),
    _gauge("client_queue_bound", "requests", "Most requests that may wait there."),
    _gauge("client_streams_active", "streams", "Streams that a client or proxy holds open."),
    _gauge("client_quota_used_ratio", "ratio", "Share of the provider's quota used."),
    _histogram("vector_search_seconds", "Time of a vector search."),
    _gauge("vector_deleted_ratio", "ratio", "Share of the vectors that are deleted."),
    _gauge("probe_up", "", "1 if the last health probe was answered."),
    _gauge("probe_seconds", "seconds", "Time of a one-token generation."),
    _gauge("probe_memory_margin_ratio", "ratio", "Free share of memory at the probe."),
    _gauge("canary_divergence_nats", "nats", "Canary answers against the first ones."),
    _gauge("scrape_seconds", "seconds", "How long the last scrape took."),
    _gauge("up", "", "1 if the last scrape succeeded."),
    _input("prompt_tokens", "tokens", SIZE_GRID, "Prompt tokens of a request."),
    _input("prompt_chars", "characters", SIZE_GRID, "Characters of the prompt."),
    _input("prompt_nonprintable_ratio", "ratio", RATIO_GRID, "Control bytes in the prompt."),
    _input("prompt_whitespace_ratio", "ratio", RATIO_GRID, "White space in the prompt."),
    _input("prompt_digit_ratio", "ratio", RATIO_GRID, "Digits in the prompt."),
    _input("prompt_punctuation_ratio", "ratio", RATIO_GRID, "Punctuation in the prompt."),
    _input("prompt_nonascii_ratio", "ratio", RATIO_GRID, "Bytes beyond ASCII in the prompt."),
    _input("prompt_json_ratio", "ratio", RATIO_GRID, "Bytes of JSON structure in the prompt."),
    _input("prompt_compression_ratio", "ratio", RATIO_GRID, "Compressed over plain size."),
    _input("prompt_distinct_ratio", "ratio", RATIO_GRID, "Distinct 4-grams of the prompt."),
    _input("prompt_logprob_mean_nats", "nats", LOGPROB_GRID, "Mean logprob of prompt tokens."),
    _input("temperature", "", TEMPERATURE_GRID, "Sampling temperature asked for."),
    _input("max_tokens", "tokens", SIZE_GRID, "Most output tokens asked for."),
    _output("output_tokens", "tokens", SIZE_GRID, "Output tokens of a request."),
    _output("output_entropy_nats", "nats", NATS_GRID, "Mean token entropy, estimated."),
    _output("output_surprisal_mean_nats", "nats", NATS_GRID, "Mean -ln p of sampled tokens."),
    _output("output_surprisal_p90_nats", "nats", NATS_GRID, "90th percentile of -ln p."),
    _output("output_unlikely_ratio", "ratio", RATIO_GRID, "Tokens with p < 0.1."),
    _output("output_frozen_ratio", "ratio", RATIO_GRID, "Tokens with entropy < 0.05 nats."),
    _output("output_longest_sure_run_tokens", "tokens", SIZE_GRID, "Longest run of p > 0.99."),
    _output("output_distinct_ratio", "ratio", RATIO_GRID, "Distinct 4-grams of the output."),
    _output("output_compression_ratio", "ratio", RATIO_GRID, "Compressed over plain size."),
    _output("output_length_capped", "", FLAG_GRID, "1 if the answer was cut by a limit."),
    _output("output_scored", "", FLAG_GRID, "1 if the answer came with logprobs."),
    _output("output_looping", "", FLAG_GRID, "1 if the answer repeats itself surely."),
    _output("request_seconds", "seconds", SECONDS_GRID, "Latency that the sender measured."),
    _output("paired_divergence_nats", "nats", SMALL_NATS_GRID, "Shadow against production."),
)

SIGNALS: Mapping[str, Signal] = MappingProxyType({row.name: row for row in _ROWS})
REQUEST_SIGNALS: tuple[Signal, ...] = tuple(row for row in _ROWS if row.kind is Kind.REQUEST)
READING_SIGNALS: tuple[Signal, ...] = tuple(row for row in _ROWS if row.kind is not Kind.REQUEST)


NEIGHBOUR_SIGNALS: frozenset[str] = frozenset(  # never of an engine: of clients, brokers, stores
    row.name for row in READING_SIGNALS if row.name.startswith(("client_", "vector_"))
)


def request_signal(name: str) -> Signal:
    """Return the request signal `name`.

    Raises:
        KeyError: If there is no such request signal; the message lists them.
    """
    found = SIGNALS.get(name)
    if found is None or found.grid is None:
        known = ", ".join(row.name for row in REQUEST_SIGNALS)
        msg = f"{name!r} is not a request signal; known: {known}"
        raise KeyError(msg)
    return found


def grid_of(name: str) -> Grid:
    """Return the grid of the request signal `name` (`KeyError` as `request_signal`)."""
    grid = request_signal(name).grid
    assert grid is not None  # noqa: S101  # request_signal just checked it
    return grid
