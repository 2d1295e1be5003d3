"""Derives the expected signals of every recorded page, with prometheus-client and by hand.

Lines are read by `page_facts.py`, what they mean is written down below from the catalogue of
metrics; nothing of Fusewire's own is used. Run `python -m tests.collector.sources.expected` to
write `expected.json` anew, and read the difference.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

from tests.collector.sources.page_facts import (
    Facts,
    facts_of,
    histogram,
    numbers,
    quotient,
    total,
)

PAGES = Path(__file__).parents[2] / "fixtures" / "metrics"
EXPECTED = Path(__file__).with_name("expected.json")


def capacity(facts: Facts) -> float | None:
    engines: dict[str, float] = {}
    rows = facts.get("vllm_cache_config_info")
    sized = any("kv_cache_size_tokens" in labels for labels, _ in rows)
    for labels, _ in rows:
        try:
            if sized:
                tokens = float(labels["kv_cache_size_tokens"])
            else:
                tokens = float(labels["num_gpu_blocks"]) * float(labels["block_size"])
        except (KeyError, ValueError):
            return None
        engines[labels.get("engine", "")] = tokens
    return sum(engines.values()) if engines else None


def vllm_values(facts: Facts) -> dict[str, float | None]:
    usage = numbers(facts.get("vllm_kv_cache_usage_perc")) or numbers(
        facts.get("vllm_gpu_cache_usage_perc")
    )
    waiting = total(facts, "vllm_num_requests_waiting")
    if waiting is not None:
        waiting += total(facts, "vllm_num_requests_swapped") or 0.0
    reasons = facts.get("vllm_request_success_total")
    errors = [value for labels, value in reasons if labels.get("finished_reason") == "error"]
    values: dict[str, float | None] = {
        "requests_running": total(facts, "vllm_num_requests_running"),
        "requests_waiting": waiting,
        "kv_cache_usage_ratio": max(usage, default=None),
        "kv_cache_usage_mean_ratio": sum(usage) / len(usage) if usage else None,
        "kv_cache_capacity_tokens": capacity(facts),
        "preemptions_total": total(facts, "vllm_num_preemptions_total"),
        "prompt_tokens_total": total(facts, "vllm_prompt_tokens_total"),
        "generation_tokens_total": total(facts, "vllm_generation_tokens_total"),
        "generation_tokens_per_second": total(
            facts, "vllm_avg_generation_throughput_toks_per_s", "vllm_avg_generation_throughput"
        ),
        "requests_finished_total": total(facts, "vllm_request_success_total"),
        "requests_failed_total": sum(errors) if errors else None,
        "requests_rejected_total": total(facts, "vllm_admission_rejections_total"),
        "corrupted_requests_total": total(facts, "vllm_corrupted_requests_total"),
        "prefix_cache_hit_ratio": quotient(
            facts,
            ("vllm_prefix_cache_hits_total", "vllm_prefix_cache_queries_total"),
            ("vllm_gpu_prefix_cache_hits_total", "vllm_gpu_prefix_cache_queries_total"),
        ),
        "spec_decode_acceptance_ratio": quotient(
            facts,
            (
                "vllm_spec_decode_num_accepted_tokens_total",
                "vllm_spec_decode_num_draft_tokens_total",
            ),
        ),
    }
    values["requests_lost_total"] = lost(facts, values)
    return values


def lost(facts: Facts, values: dict[str, float | None]) -> float | None:
    """First tokens without an end: not running, and not preempted (V0 counts those again)."""
    first = histogram(facts, ("vllm_time_to_first_token_seconds",))
    ended = histogram(facts, ("vllm_e2e_request_latency_seconds",))
    running = values["requests_running"]
    if first is None or ended is None or running is None:
        return None
    preempted = values["preemptions_total"] or 0.0
    if any("engine" in labels for labels, _ in facts.get("vllm_num_requests_running")):
        preempted = min(preempted, values["requests_waiting"] or 0.0)
    return max(0.0, first[1] - ended[1] - running - preempted)


def tgi_values(facts: Facts) -> dict[str, float | None]:
    failures = facts.get("tgi_request_failure")
    by_reason = {labels["err"]: value for labels, value in failures}
    ours = [by_reason[reason] for reason in by_reason if reason in {"generation", "incomplete"}]
    success = total(facts, "tgi_request_success")
    return {
        "requests_running": total(facts, "tgi_batch_current_size"),
        "requests_waiting": total(facts, "tgi_queue_size"),
        "batch_tokens": total(facts, "tgi_batch_current_max_tokens"),
        "batch_token_budget": total(facts, "tgi_batch_max_total_tokens"),
        "kv_cache_capacity_tokens": total(facts, "tgi_batch_max_total_tokens"),
        "prompt_tokens_total": total(facts, "tgi_request_input_length_sum"),
        "generation_tokens_total": total(facts, "tgi_request_generated_tokens_sum"),
        "requests_finished_total": None
        if success is None and not failures
        else (success or 0.0) + sum(by_reason.values()),
        "requests_rejected_total": by_reason.get("overloaded"),
        "requests_failed_total": sum(ours) if ours else None,
        "engine_steps_total": total(facts, "tgi_batch_inference_count"),
    }


def sglang_values(facts: Facts) -> dict[str, float | None]:
    """Sum schedulers (`dp_rank`), of a scheduler's workers only the first."""

    def scheduler(*names: str) -> list[float]:
        for name in names:
            rows = facts.get(name)
            first = min((labels.get("tp_rank", "0") for labels, _ in rows), default="0")
            if rows:
                return [value for labels, value in rows if labels.get("tp_rank", "0") == first]
        return []

    running = scheduler("sglang_num_running_reqs", "sglang_num_requests_running")
    waiting = scheduler("sglang_num_queue_reqs", "sglang_num_requests_waiting")
    usage = scheduler("sglang_token_usage")
    hits = scheduler("sglang_cache_hit_rate")
    done = total(facts, "sglang_num_requests_total")
    aborted = total(facts, "sglang_num_aborted_requests_total")
    return {
        "requests_running": sum(running) if running else None,
        "requests_waiting": sum(waiting) if waiting else None,
        "request_slots": total(facts, "sglang_max_running_requests"),
        "context_tokens": total(facts, "sglang_context_len"),
        "kv_cache_usage_ratio": max(usage, default=None),
        "kv_cache_usage_mean_ratio": sum(usage) / len(usage) if usage else None,
        "kv_cache_capacity_tokens": total(facts, "sglang_max_total_num_tokens"),
        "prompt_tokens_total": total(facts, "sglang_prompt_tokens_total"),
        "generation_tokens_total": total(facts, "sglang_generation_tokens_total"),
        "requests_finished_total": None if done is None else done + (aborted or 0.0),
        "prefix_cache_hit_ratio": max(hits) if hits and max(hits) <= 1.0 else None,
        "engine_steps_total": total(
            facts,
            "sglang_inter_token_latency_seconds_count",
            "sglang_time_per_output_token_seconds_count",
        ),
    }


def llamacpp_values(facts: Facts) -> dict[str, float | None]:
    prompt = total(facts, "llamacpp_prompt_tokens_total")
    cached = total(facts, "llamacpp_prompt_tokens_cached_total")
    hits = cached / (cached + prompt) if cached is not None and prompt is not None else None
    return {
        "requests_running": total(facts, "llamacpp_requests_processing"),
        "requests_waiting": total(facts, "llamacpp_requests_deferred"),
        "prompt_tokens_total": prompt,
        "generation_tokens_total": total(facts, "llamacpp_tokens_predicted_total"),
        "prefix_cache_hit_ratio": hits,
        "engine_steps_total": total(facts, "llamacpp_n_decode_total"),
    }


def triton_values(facts: Facts) -> dict[str, float | None]:
    def of(family: str, label: str) -> dict[str, float]:
        return {labels.get(label, ""): value for labels, value in facts.get(family)}

    requests = of("nv_trt_llm_request_metrics", "request_type")
    blocks = of("nv_trt_llm_kv_cache_block_metrics", "kv_cache_block_type")
    usage = blocks["used"] / blocks["max"] if blocks else None
    success = of("nv_inference_request_success", "model")
    failure = of("nv_inference_request_failure", "reason")
    ours = [value for reason, value in failure.items() if reason not in {"REJECTED", "CANCELED"}]
    done = success.get("ensemble", sum(success.values())) if success else None
    return {
        "requests_running": requests.get("active"),
        "requests_waiting": requests.get("waiting"),
        "request_slots": requests.get("max"),
        "kv_cache_usage_ratio": usage,
        "kv_cache_usage_mean_ratio": usage,
        "kv_cache_capacity_tokens": blocks["max"] * blocks["tokens_per"] if blocks else None,
        "requests_finished_total": None if done is None else done + sum(failure.values()),
        "requests_rejected_total": failure.get("REJECTED"),
        "requests_failed_total": sum(ours) if ours else None,
    }


Families: TypeAlias = dict[str, tuple[tuple[str, ...], dict[str, str]]]
VLLM_HISTOGRAMS: Families = {
    "ttft_seconds": (("vllm_time_to_first_token_seconds",), {}),
    "inter_token_seconds": (
        ("vllm_inter_token_latency_seconds", "vllm_time_per_output_token_seconds"),
        {},
    ),
    "queue_seconds": (("vllm_request_queue_time_seconds", "vllm_time_in_queue_requests"), {}),
    "e2e_seconds": (("vllm_e2e_request_latency_seconds",), {}),
    "prefill_seconds": (("vllm_request_prefill_time_seconds",), {}),
    "decode_seconds": (("vllm_request_decode_time_seconds",), {}),
}
TGI_HISTOGRAMS: Families = {
    "inter_token_seconds": (("tgi_batch_inference_duration",), {"method": "decode"}),
    "queue_seconds": (("tgi_request_queue_duration",), {}),
    "e2e_seconds": (("tgi_request_duration",), {}),
    "prefill_seconds": (("tgi_batch_forward_duration",), {"method": "prefill"}),
}
SGLANG_HISTOGRAMS: Families = {
    "ttft_seconds": (("sglang_time_to_first_token_seconds",), {}),
    "inter_token_seconds": (("sglang_time_per_output_token_seconds",), {}),
    "e2e_seconds": (("sglang_e2e_request_latency_seconds",), {}),
}
# sums and counts as counters: family of the sums, of the counts, unit of the sums in seconds
COUNTED: dict[str, dict[str, tuple[str, str, float]]] = {
    "llamacpp": {
        "inter_token_seconds": (
            "llamacpp_tokens_predicted_seconds_total",
            "llamacpp_tokens_predicted_total",
            1.0,
        )
    },
    "triton": {
        "queue_seconds": ("nv_inference_queue_duration_us", "nv_inference_request_success", 1e-6),
        "e2e_seconds": ("nv_inference_request_duration_us", "nv_inference_request_success", 1e-6),
    },
}
Derive: TypeAlias = Callable[[Facts], dict[str, float | None]]
ENGINES: dict[str, tuple[str, Derive, Families]] = {
    "vllm_": ("vllm", vllm_values, VLLM_HISTOGRAMS),
    "tgi_": ("tgi", tgi_values, TGI_HISTOGRAMS),
    "sglang_": ("sglang", sglang_values, SGLANG_HISTOGRAMS),
    "llamacpp_": ("llamacpp", llamacpp_values, {}),
    "nv_": ("triton", triton_values, {}),
    "jetstream_": ("jetstream", lambda facts: {}, {}),
}


def counted(facts: Facts, sums: str, counts: str, scale: float) -> list[float] | None:
    """Return [0 bounds, total, sum] of the series that both counters have."""
    of = {json.dumps(labels, sort_keys=True): value for labels, value in facts.get(counts)}
    pairs = [
        (value * scale, of[json.dumps(labels, sort_keys=True)])
        for labels, value in facts.get(sums)
        if json.dumps(labels, sort_keys=True) in of
    ]
    return [0.0, sum(n for _, n in pairs), sum(it for it, _ in pairs)] if pairs else None


def expected_of(text: str) -> dict[str, object]:
    """Return the signals that a page must give at its first scrape."""
    facts = facts_of(text)
    names = {*facts.rows, *facts.typed, *facts.refused}
    prefix = next((it for it in ENGINES if any(name.startswith(it) for name in names)), "")
    if not prefix:
        return {"engine": "", "values": {}, "histograms": {}}
    engine, derive, families = ENGINES[prefix]
    values = {name: value for name, value in derive(facts).items() if value is not None}
    found = {signal: histogram(facts, known, **only) for signal, (known, only) in families.items()}
    for signal, (sums, counts, scale) in COUNTED.get(engine, {}).items():
        found[signal] = counted(facts, sums, counts, scale)
    kept = {signal: numbers for signal, numbers in found.items() if numbers is not None}
    return {"engine": engine, "values": values, "histograms": kept}


def pages() -> Iterator[Path]:
    return iter(sorted(PAGES.glob("*.txt")))


def derive_all() -> dict[str, object]:
    return {page.name: expected_of(page.read_bytes().decode()) for page in pages()}


def written() -> str:
    lines = (f"{json.dumps(name)}: {json.dumps(it)}" for name, it in derive_all().items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    EXPECTED.write_text(written())
