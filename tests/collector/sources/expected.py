"""Derives the expected signals of every recorded page, with prometheus-client and by hand.

Nothing here uses Fusewire's parser or alias table: lines are read one by one by prometheus-client
(a line that it refuses is left out), and what they mean is written down below from the catalogue of
metrics. Run `python -m tests.collector.sources.expected` to write `expected.json` anew, and read
the difference.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

PAGES = Path(__file__).parents[2] / "fixtures" / "metrics"
EXPECTED = Path(__file__).with_name("expected.json")
Labels: TypeAlias = dict[str, str]
Row: TypeAlias = tuple[Labels, float]


@dataclass
class Facts:
    """A page as prometheus-client reads it, line by line."""

    rows: dict[str, list[Row]] = field(default_factory=dict)
    typed: dict[str, str] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    cut: bool = False

    def get(self, name: str) -> list[Row]:
        return self.rows.get(name, [])


def normal(name: str) -> str:
    return re.sub(r"^(ray_)?(kserve_)?", "", name).replace(":", "_", 1)


def read_line(line: str) -> Sample | None:
    """Return what prometheus-client makes of one sample line, None if it refuses it."""
    try:
        families = list(text_string_to_metric_families(line + "\n"))
    except (ValueError, IndexError, KeyError):
        return None
    found = [sample for family in families for sample in family.samples]
    return found[0] if len(found) == 1 else None


def facts_of(text: str) -> Facts:
    facts = Facts()
    lines = text.split("\n")
    facts.cut = lines.pop() != ""
    for line in lines:
        if line.strip() == "# EOF":
            break
        header = re.match(r"#\s*(TYPE|HELP)\s+(\S+)\s*(\S*)", line)
        if header:
            word = header[3] if header[1] == "TYPE" else ""
            name = normal(header[2])
            for known in (name, name + "_total") if word == "counter" else (name,):
                facts.typed[known] = word or facts.typed.get(known, "")
        elif line.strip() and not line.startswith("#"):
            _add(facts, line)
    return facts


def _add(facts: Facts, line: str) -> None:
    sample = read_line(line)
    if sample is None:
        facts.refused.add(normal(line.partition("{")[0].strip()))
    elif "server" not in sample.labels and "worker_addr" not in sample.labels:
        facts.rows.setdefault(normal(sample.name), []).append((sample.labels, sample.value))


def by_series(rows: list[Row]) -> dict[str, Row]:
    """Merge copies of several processes by maximum."""
    merged: dict[str, Row] = {}
    for labels, value in rows:
        kept = {name: text for name, text in labels.items() if name != "pid"}
        key = json.dumps(kept, sort_keys=True)
        if key not in merged or value > merged[key][1]:
            merged[key] = (kept, value)
    return merged


def numbers(rows: list[Row]) -> list[float]:
    return [value for _, value in by_series(rows).values()]


def total(facts: Facts, *names: str) -> float | None:
    """Return the sum over the first family that has samples."""
    for name in names:
        found = numbers(facts.get(name))
        if found:
            return sum(found) if min(found) >= 0 else None
    return None


def histogram(facts: Facts, names: tuple[str, ...], **only: str) -> list[float] | None:
    """Return [finite bounds, total, sum, cumulative counts...] of the first family there."""
    for name in names:
        rows = [row for row in facts.get(name + "_bucket") if only.items() <= row[0].items()]
        sums = [row for row in facts.get(name + "_sum") if only.items() <= row[0].items()]
        counts = [row for row in facts.get(name + "_count") if only.items() <= row[0].items()]
        if not (rows or sums or counts):
            continue
        if facts.typed.get(name, "histogram") not in {"histogram", "untyped", ""}:
            return None
        if not (rows and sums and counts):
            return None
        buckets: dict[float, float] = {}
        for labels, value in by_series(rows).values():
            bound = float(labels["le"])
            buckets[bound] = buckets.get(bound, 0.0) + value
        finite = sorted(bound for bound in buckets if bound < math.inf)
        whole = [float(len(finite)), sum(numbers(counts)), sum(numbers(sums))]
        return whole + [buckets[bound] for bound in finite]
    return None


def quotient(facts: Facts, *pairs: tuple[str, str]) -> float | None:
    for over, of in pairs:
        if facts.get(over) and facts.get(of):
            below = sum(numbers(facts.get(of)))
            return sum(numbers(facts.get(over))) / below if below else None
    return None


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
    }


VLLM_HISTOGRAMS: dict[str, tuple[str, ...]] = {
    "ttft_seconds": ("vllm_time_to_first_token_seconds",),
    "inter_token_seconds": (
        "vllm_inter_token_latency_seconds",
        "vllm_time_per_output_token_seconds",
    ),
    "queue_seconds": ("vllm_request_queue_time_seconds", "vllm_time_in_queue_requests"),
    "e2e_seconds": ("vllm_e2e_request_latency_seconds",),
    "prefill_seconds": ("vllm_request_prefill_time_seconds",),
    "decode_seconds": ("vllm_request_decode_time_seconds",),
}
TGI_HISTOGRAMS: dict[str, tuple[str, dict[str, str]]] = {
    "inter_token_seconds": ("tgi_batch_inference_duration", {"method": "decode"}),
    "queue_seconds": ("tgi_request_queue_duration", {}),
    "e2e_seconds": ("tgi_request_duration", {}),
    "prefill_seconds": ("tgi_batch_forward_duration", {"method": "prefill"}),
}
Derive: TypeAlias = Callable[[Facts], dict[str, float | None]]


def expected_of(text: str) -> dict[str, object]:
    """Return the signals that a page must give at its first scrape."""
    facts = facts_of(text)
    names = {*facts.rows, *facts.typed, *facts.refused}
    vllm = [name for name in names if name.startswith("vllm_")]
    tgi = [name for name in names if name.startswith("tgi_")]
    if not vllm and not tgi:
        return {"engine": "", "values": {}, "histograms": {}}
    engine, derive = ("vllm", vllm_values) if vllm else ("tgi", tgi_values)
    values = {name: value for name, value in derive(facts).items() if value is not None}
    found = {
        signal: histogram(facts, families)
        for signal, families in VLLM_HISTOGRAMS.items()
        if engine == "vllm"
    }
    for signal, (family, only) in TGI_HISTOGRAMS.items() if engine == "tgi" else ():
        found[signal] = histogram(facts, (family,), **only)
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
