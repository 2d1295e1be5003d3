"""TensorRT-LLM's own server (`trtllm-serve`); its page is `/prometheus/metrics`.

Names are from its documentation and code: no recorded page is known.
"""

from __future__ import annotations

from typing import Final

from collector.sources.engine.rows import Alias, Engine, Row, Term, histogram, plain, quotient

_USAGE = "trtllm_kv_cache_utilization"

TENSORRT: Final = Engine(
    name="trtllm",
    prefix="trtllm",
    rows=(
        plain("requests_running", "trtllm_num_requests_running"),
        plain("requests_waiting", "trtllm_num_requests_waiting"),
        plain("request_slots", "trtllm_max_num_active_requests"),
        plain("kv_cache_usage_ratio", _USAGE, across="max"),
        plain("kv_cache_usage_mean_ratio", _USAGE, across="mean"),
        Row(
            "kv_cache_capacity_tokens",
            (
                Alias(
                    (Term("trtllm_kv_cache_max_blocks"),),
                    times=(Term("trtllm_kv_cache_tokens_per_block"),),
                    apart="engine",
                ),
            ),
        ),
        plain("prompt_tokens_total", "trtllm_prompt_tokens_total"),
        plain("generation_tokens_total", "trtllm_generation_tokens_total"),
        Row(
            "requests_finished_total",
            (Alias((Term("trtllm_request_success_total", part_label="finished_reason"),)),),
        ),
        plain("requests_failed_total", "trtllm_request_error_total"),
        histogram("ttft_seconds", "trtllm_time_to_first_token_seconds"),
        histogram("inter_token_seconds", "trtllm_time_per_output_token_seconds"),
        histogram("queue_seconds", "trtllm_request_queue_time_seconds"),
        histogram("e2e_seconds", "trtllm_e2e_request_latency_seconds"),
        histogram("prefill_seconds", "trtllm_request_prefill_time_seconds"),
        histogram("decode_seconds", "trtllm_request_decode_time_seconds"),
        plain("prefix_cache_hit_ratio", "trtllm_kv_cache_hit_rate", across="max"),
        Row(
            "spec_decode_acceptance_ratio",
            (
                quotient(
                    "trtllm_spec_decode_num_accepted_tokens_total",
                    "trtllm_spec_decode_num_draft_tokens_total",
                ),
            ),
        ),
    ),
)
