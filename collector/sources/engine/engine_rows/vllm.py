"""vLLM, all versions from 0.2.3 on, both engines (V0, V1) and both front ends (Python, Rust)."""

from __future__ import annotations

from typing import Final

from collector.sources.engine.rows import (
    Alias,
    Engine,
    Evidence,
    Filter,
    Row,
    Term,
    histogram,
    plain,
    quotient,
)

_KV_USAGE = ("vllm_kv_cache_usage_perc", "vllm_gpu_cache_usage_perc")
_CONFIG = "vllm_cache_config_info"
_SUCCESS = "vllm_request_success_total"
_TPOT = "vllm_time_per_output_token_seconds"
_ANSWERED_5XX: Filter = (
    ("status", frozenset({"5xx"})),
    ("handler", frozenset({"/v1/completions", "/v1/chat/completions", "/v1/responses"})),
)
_THROUGHPUT = "vllm_avg_generation_throughput"

VLLM: Final = Engine(
    name="vllm",
    prefix="vllm",
    rows=(
        plain("requests_running", "vllm_num_requests_running"),
        Row(
            "requests_waiting",
            (
                Alias(
                    (
                        Term("vllm_num_requests_waiting"),
                        Term("vllm_num_requests_swapped", optional=True),  # V0: they wait too
                    )
                ),
            ),
        ),
        plain("kv_cache_usage_ratio", *_KV_USAGE, across="max"),
        plain("kv_cache_usage_mean_ratio", *_KV_USAGE, across="mean"),
        Row(
            "kv_cache_capacity_tokens",
            (
                Alias((Term(_CONFIG, factors=("kv_cache_size_tokens",)),)),  # right for hybrids
                Alias((Term(_CONFIG, factors=("num_gpu_blocks", "block_size")),)),
            ),
        ),
        plain("preemptions_total", "vllm_num_preemptions_total"),
        plain("prompt_tokens_total", "vllm_prompt_tokens_total"),
        plain("generation_tokens_total", "vllm_generation_tokens_total"),
        plain("generation_tokens_per_second", f"{_THROUGHPUT}_toks_per_s", _THROUGHPUT),
        Row("requests_finished_total", (Alias((Term(_SUCCESS, part_label="finished_reason"),)),)),
        plain("requests_rejected_total", "vllm_admission_rejections_total"),
        Row(
            "requests_failed_total",
            (
                Alias((Term(_SUCCESS, keep=(("finished_reason", frozenset({"error"})),)),)),
                Alias((Term("http_requests_total", keep=_ANSWERED_5XX),)),  # before 0.14
            ),
        ),
        plain("corrupted_requests_total", "vllm_corrupted_requests_total"),
        histogram("ttft_seconds", "vllm_time_to_first_token_seconds"),
        histogram("inter_token_seconds", "vllm_inter_token_latency_seconds", _TPOT),
        histogram(
            "queue_seconds", "vllm_request_queue_time_seconds", "vllm_time_in_queue_requests"
        ),
        histogram("e2e_seconds", "vllm_e2e_request_latency_seconds"),
        histogram("prefill_seconds", "vllm_request_prefill_time_seconds"),
        histogram("decode_seconds", "vllm_request_decode_time_seconds"),
        Row(
            "prefix_cache_hit_ratio",
            (
                quotient("vllm_prefix_cache_hits_total", "vllm_prefix_cache_queries_total"),
                quotient("vllm_gpu_prefix_cache_hits_total", "vllm_gpu_prefix_cache_queries_total"),
                Alias((Term("vllm_gpu_prefix_cache_hit_rate"),)),  # V0; -1 means off
            ),
            across="max",
        ),
        Row(
            "spec_decode_acceptance_ratio",
            (
                quotient(
                    "vllm_spec_decode_num_accepted_tokens_total",
                    "vllm_spec_decode_num_draft_tokens_total",
                ),
                Alias((Term("vllm_spec_decode_draft_acceptance_rate"),)),
            ),
            across="max",
        ),
    ),
    counts_losses=True,
    adapters="vllm_lora_requests_info",
    evidence=(
        Evidence("requests_total_counter", until="0.3.2"),
        Evidence("vllm_avg_prompt_throughput_toks_per_s", until="0.6.6"),
        Evidence("vllm_avg_generation_throughput_toks_per_s", until="0.6.6"),
        Evidence("vllm_request_params_best_of", since="0.4.2", until="0.6.2"),
        Evidence("vllm_num_requests_swapped", until="0.9.0"),
        Evidence("vllm_cpu_cache_usage_perc", until="0.9.0"),
        Evidence("vllm_cpu_prefix_cache_hit_rate", since="0.5.5", until="0.9.0"),
        Evidence("vllm_num_preemptions_total", since="0.4.3"),
        Evidence("vllm_request_queue_time_seconds", since="0.6.4"),
        Evidence("vllm_gpu_prefix_cache_queries_total", since="0.7.3", until="0.11.2"),
        Evidence("vllm_gpu_cache_usage_perc", until="0.11.2"),
        Evidence("vllm_kv_cache_usage_perc", since="0.9.2"),
        Evidence("vllm_inter_token_latency_seconds", since="0.10.2"),
        Evidence(_TPOT, until="0.14.0"),
        Evidence("vllm_request_time_per_output_token_seconds", since="0.11.0"),
        Evidence("vllm_external_prefix_cache_queries_total", since="0.11.1"),
        Evidence("vllm_request_prefill_kv_computed_tokens", since="0.13.0"),
        Evidence(_SUCCESS, since="0.14.0", label="finished_reason", value="error"),
        Evidence(_SUCCESS, since="0.18.0", label="finished_reason", value="repetition"),
        Evidence("vllm_prompt_tokens_by_source_total", since="0.16.0"),
        Evidence("vllm_prompt_tokens_recomputed_total", since="0.16.0", until="0.19.1"),
        Evidence("vllm_num_requests_waiting_by_reason", since="0.20.0"),
        Evidence(_CONFIG, since="0.24.0", label="kv_cache_size_tokens"),
        Evidence("vllm_request_num_preemptions", since="0.30.0"),
        Evidence("vllm_admission_rejections_total", since="0.32.0"),
        Evidence("vllm_prompt_tokens_cached_by_source_total", since="0.32.0"),
    ),
)
