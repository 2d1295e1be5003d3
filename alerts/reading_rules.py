"""The alerts on what detectors of readings find: rows that `rules.py` turns into rules.

Their condition is Fusewire's own rolled-up alert of a cause, which has its holds already: `level` 2
is what is raised, 1 also what merely warns, and then `for_seconds` is added.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, TypeAlias

Severity: TypeAlias = Literal["critical", "warning"]


@dataclass(frozen=True, slots=True)
class CauseAlert:
    """One alert on one or more causes of a tier; `{{ $labels.cause }}` says which."""

    name: str
    causes: tuple[str, ...]
    severity: Severity
    level: Literal[1, 2]
    summary: str
    description: str
    for_seconds: int = 0


CAUSE_ALERTS: tuple[CauseAlert, ...] = (
    CauseAlert(
        "LLMTargetDown",
        ("target_down",),
        "critical",
        2,
        "a target or neighbour does not answer its scrapes.",
        "Several scrapes in a row failed; the verdict's reason says how.",
    ),
    CauseAlert(
        "LLMLogitsCorrupted",
        ("logits_corrupted",),
        "critical",
        2,
        "an engine answers from corrupted numbers.",
        "Requests with NaN logits were counted: weights, memory or a kernel are broken.",
    ),
    CauseAlert(
        "LLMMemoryExhaustion",
        ("kv_cache_exhaustion", "gpu_memory_exhaustion", "memory_exhaustion"),
        "critical",
        2,
        "memory will be full in minutes ({{ $labels.cause }}).",
        "The floor of what is in use rises steadily and reaches the limit within the horizon of "
        "the forecast; the time and its interval stand in the verdict's reason.",
    ),
    CauseAlert(
        "LLMMemoryHigh",
        ("gpu_memory_high", "memory_high"),
        "warning",
        2,
        "memory stays high ({{ $labels.cause }}).",
        "A GPU is nearly full beyond what its engine reserved, or a container is near its limit.",
    ),
    CauseAlert(
        "LLMMemoryFragmented",
        ("memory_fragmented",),
        "warning",
        1,
        "the allocator's free memory is in pieces.",
        "Allocations will fail although memory is free; the verdict's reason names the setting to "
        "try.",
        60,
    ),
    CauseAlert(
        "LLMDuplicateModel",
        ("duplicate_model",),
        "warning",
        1,
        "several processes hold the same model on one GPU.",
        "The pids and what each holds stand in the verdict's reason.",
    ),
    CauseAlert(
        "LLMContainerRestarted",
        ("container_restarted",),
        "warning",
        1,
        "a container of the engine was restarted.",
        "The reason that the cluster gave, and how often, stand in the verdict's reason.",
    ),
    CauseAlert(
        "LLMThroughputCollapse",
        ("throughput_collapse", "token_latency_high"),
        "warning",
        2,
        "answers come far slower than usual ({{ $labels.cause }}).",
        "Requests run, and tokens come at a fraction of the usual speed, or with long gaps.",
    ),
    CauseAlert(
        "LLMBatchBudgetFull",
        ("batch_budget_full",),
        "warning",
        1,
        "the batch has reserved all that fits.",
        "The batch is at its token budget while requests wait, or the budget does not fit the "
        "memory.",
        60,
    ),
    CauseAlert(
        "LLMRetryStorm",
        ("retry_storm",),
        "warning",
        2,
        "a client's retries have become a load of their own.",
        "It is refused and asks again too soon; nothing at the engine ends that.",
    ),
    CauseAlert(
        "LLMStreamsHigh",
        ("streams_high",),
        "warning",
        1,
        "a proxy holds more streams than its memory allows.",
        "The bound comes from what each stream was seen to take, or from the configuration.",
        60,
    ),
    CauseAlert(
        "LLMVectorStoreSlow",
        ("vector_store_slow",),
        "warning",
        1,
        "prompts wait for the vector store.",
        "Its searches are slow or about to be; the engine is not to blame.",
        60,
    ),
)

ALERT_OF_READING_CAUSE: Mapping[str, str] = MappingProxyType(
    {cause: alert.name for alert in CAUSE_ALERTS for cause in alert.causes}
)
