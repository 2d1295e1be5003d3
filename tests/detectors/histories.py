"""A tier under pressure, everything told: what most detectors of readings are tried on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from detectors.records import Histogram, Reading
from detectors.remarks import GpuProcess, Quantile
from tests.builders import a_reading

CYCLE = 450  # scrapes: half an hour of peace, a ramp, a plateau
RAMP = (200, 350)
P99 = "inter_token_p99_seconds"


def pressed(count: int, seed: int = 1) -> Iterator[Reading]:
    """Yield scrapes, 5 s apart, of a tier that fills up, chokes and recovers again and again."""
    rng = np.random.default_rng(seed)
    made = sent = again = retries = killed = searches = searching = 0.0
    for number in range(count):
        place = number % CYCLE
        fill = 0.5 + 0.48 * float(np.clip((place - RAMP[0]) / (RAMP[1] - RAMP[0]), 0, 1))
        fill += 0.002 * float(rng.random())
        choked = place >= RAMP[1]
        made += 40 if choked else 2_000
        sent += 50
        again += 20 if choked else 1
        retries += choked
        killed += place == RAMP[1]
        searches += 50
        searching += 50 * (5.0 if choked else 0.04)
        seconds = 5.0 * number
        if rng.random() < 0.03:
            yield a_reading(problem="timed out", seconds=seconds)
            continue
        gpu = {"gpu_memory_used_bytes": fill * 80e9, "gpu_memory_total_bytes": 80e9}
        values = {
            "up": 1.0,
            **gpu,
            "kv_cache_usage_ratio": fill,
            "gpu_process_memory_bytes": 15e9,
            "memory_working_set_bytes": fill * 32e9,
            "memory_rss_bytes": fill * 30e9,
            "memory_limit_bytes": 32e9,
            "allocator_reserved_bytes": 60e9,
            "allocator_allocated_bytes": 36e9 if choked else 57e9,
            "allocator_inactive_split_bytes": 18e9 if choked else 1e9,
            "allocator_largest_free_bytes": 1e9,
            "allocator_retries_total": retries,
            "restarts_total": killed,
            "generation_tokens_total": made,
            "requests_running": 8.0,
            "requests_waiting": 3.0,
            P99: 1.2 if choked else 0.06,
            "batch_tokens": 63_000.0 if choked else 20_000.0 + 100 * place,
            "batch_token_budget": 64_000.0,
            "client_requests_total": sent,
            "client_retries_total": again,
            "client_rate_limited_total": again,
            "client_queue_size": 900.0 if choked else 10.0,
            "client_queue_bound": 1000.0,
            "client_streams_active": 60.0 if choked else 5.0 + place % 7,
            "vector_deleted_ratio": 0.4 if choked else 0.1,
        }
        yield replace(
            a_reading(values, seconds=seconds),
            restarted=bool(rng.random() < 0.001),
            parts={
                **{it: {"0": value, "1": 0.9 * value} for it, value in gpu.items()},
                "restarts_total": {"OOMKilled": killed},
            },
            histograms={"vector_search_seconds": Histogram((), (), searches, searching)},
            quantiles={
                P99: Quantile(values[P99], *((1.0, 1.5) if choked else (0.05, 0.075)), 99, 60)
            },
            processes=tuple(
                GpuProcess("0", pid, 15e9, "python", "target")
                for pid in ((5, 6, 7, 8, 9) if choked else (7,))
            ),
        )
