"""Dynamo: the front end's page, and a worker's where no engine passes its own families through."""

from __future__ import annotations

from typing import Final

from collector.sources.engine.rows import Alias, Engine, Row, Term, histogram, plain, summed

_FRONT, _PART = "dynamo_frontend_", "dynamo_component_"
_USAGE = f"{_PART}kvstats_gpu_cache_usage_percent"  # 0..1 in spite of its name

DYNAMO: Final = Engine(
    name="dynamo",
    prefix="dynamo",
    front=True,
    multiprocess=True,
    rows=(
        plain("requests_running", f"{_FRONT}inflight_requests", f"{_PART}inflight_requests"),
        plain("requests_waiting", f"{_FRONT}queued_requests"),
        plain("request_slots", f"{_FRONT}model_max_num_seqs"),
        plain("kv_cache_usage_ratio", _USAGE, across="max"),
        plain("kv_cache_usage_mean_ratio", _USAGE, across="mean"),
        Row(
            "kv_cache_capacity_tokens",
            (
                Alias(
                    (Term(f"{_FRONT}model_total_kv_blocks"),),
                    times=(Term(f"{_FRONT}model_kv_cache_block_size"),),
                    apart="model",
                ),
            ),
        ),
        summed("prompt_tokens_total", f"{_FRONT}input_sequence_tokens"),
        Row(
            "generation_tokens_total",
            (
                Alias((Term(f"{_FRONT}output_tokens_total"),)),
                Alias((Term(f"{_FRONT}output_sequence_tokens", take="sum"),)),
            ),
        ),
        Row(
            "requests_finished_total",
            (
                Alias((Term(f"{_FRONT}requests_total", part_label="status"),)),
                Alias((Term(f"{_PART}requests_total", part="success"),)),
            ),
        ),
        Row(
            "requests_failed_total",
            (Alias((Term(f"{_FRONT}requests_total", keep=(("status", frozenset({"error"})),)),)),),
        ),
        histogram("ttft_seconds", f"{_FRONT}time_to_first_token_seconds"),
        histogram("inter_token_seconds", f"{_FRONT}inter_token_latency_seconds"),
        histogram(
            "e2e_seconds", f"{_FRONT}request_duration_seconds", f"{_PART}request_duration_seconds"
        ),
        plain("prefix_cache_hit_ratio", f"{_PART}kvstats_gpu_prefix_cache_hit_rate", across="max"),
    ),
)
