"""Text Generation Inference 0.3 to 3.3, and LoRAX, which is a fork of it."""

from __future__ import annotations

from typing import Final

from collector.sources.engine.rows import (
    Alias,
    Engine,
    Evidence,
    Row,
    Term,
    histogram,
    plain,
    renamed,
    summed,
)

_FAILURE = "tgi_request_failure"
_REFUSED = frozenset({"overloaded"})
_NOT_OURS = frozenset({"overloaded", "validation", "template", "dropped"})  # the client's doing
_CALLS = "tgi_batch_inference_duration"
_FORWARD = "tgi_batch_forward_duration"

TGI: Final = Engine(
    name="tgi",
    prefix="tgi",
    rows=(
        plain("requests_running", "tgi_batch_current_size"),
        plain("requests_waiting", "tgi_queue_size"),
        plain("batch_tokens", "tgi_batch_current_max_tokens"),
        plain("batch_token_budget", "tgi_batch_max_total_tokens"),
        Row(
            "kv_cache_usage_ratio",
            (Alias((Term("tgi_batch_current_max_tokens"),), over_signal="batch_token_budget"),),
        ),
        Row(
            "kv_cache_usage_mean_ratio",
            (Alias((Term("tgi_batch_current_max_tokens"),), over_signal="batch_token_budget"),),
        ),
        Row("kv_cache_capacity_tokens", (Alias((), same_as="batch_token_budget"),)),
        summed("prompt_tokens_total", "tgi_request_input_length"),
        summed("generation_tokens_total", "tgi_request_generated_tokens"),
        Row(
            "requests_finished_total",
            (
                Alias(
                    (
                        Term("tgi_request_success", part="success", optional=True),
                        Term(_FAILURE, part_label="err", optional=True),
                    )
                ),
            ),
        ),
        Row("requests_rejected_total", (Alias((Term(_FAILURE, keep=(("err", _REFUSED),)),)),)),
        Row("requests_failed_total", (Alias((Term(_FAILURE, drop=(("err", _NOT_OURS),)),)),)),
        plain("engine_steps_total", "tgi_batch_inference_count"),  # tokens come at the end only
        histogram("inter_token_seconds", _CALLS, keep={"method": "decode"}),
        histogram("queue_seconds", "tgi_request_queue_duration"),
        histogram("e2e_seconds", "tgi_request_duration"),
        histogram("prefill_seconds", _FORWARD, keep={"method": "prefill"}),
    ),
    evidence=(Evidence("tgi_batch_max_total_tokens", since="2.3.1"),),
    first_token=(
        Term("tgi_request_validation_duration", take="sum"),
        Term("tgi_request_queue_duration", take="sum"),
        Term(_CALLS, take="sum", keep=(("method", frozenset({"prefill"})),)),
    ),
)

LORAX: Final = renamed(TGI, "lorax", "tgi_", "lorax_")
