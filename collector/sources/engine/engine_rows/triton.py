"""Triton Inference Server, with its TensorRT-LLM backend; engines inside it write their own names.

One family holds unlike statistics, told apart by a label, so a sum over it means nothing. A
pipeline (`ensemble`, `tensorrt_llm_bls`) counts each request, and so does every model inside it.
Durations are microseconds as counters: with the count of requests they give a mean, no quantiles.
"""

from __future__ import annotations

from typing import Final

from collector.sources.engine.rows import Alias, Engine, Filter, Row, Term, histogram

_KIND = "kv_cache_block_type"
_BLOCKS = "nv_trt_llm_kv_cache_block_metrics"
_REQUESTS = "nv_trt_llm_request_metrics"
_SUCCESS = "nv_inference_request_success"
_FAILURE = "nv_inference_request_failure"
_OUTER: Filter = (("model", frozenset({"ensemble", "tensorrt_llm_bls"})),)
_REJECTED = frozenset({"REJECTED"})
_NOT_OURS = frozenset({"REJECTED", "CANCELED"})
_MICROSECONDS, _MILLISECONDS = 1e-6, 1e-3


def _only(family: str, label: str, value: str) -> Term:
    return Term(family, keep=((label, frozenset({value})),))


def _mean(signal: str, family: str) -> Row:
    """Return a histogram without buckets: summed microseconds and the requests behind them."""
    total, count = Term(family, outer=_OUTER), Term(_SUCCESS, outer=_OUTER)
    return Row(signal, (Alias((total,), over=(count,), scale=_MICROSECONDS),))


_USED, _MOST = _only(_BLOCKS, _KIND, "used"), _only(_BLOCKS, _KIND, "max")
_USAGE = Alias((_USED,), over=(_MOST,), apart="model")

TRITON: Final = Engine(
    name="triton",
    prefix="nv",
    front=True,
    rows=(
        Row("requests_running", (Alias((_only(_REQUESTS, "request_type", "active"),)),)),
        Row(
            "requests_waiting",
            (
                Alias((_only(_REQUESTS, "request_type", "waiting"),)),
                Alias((Term("nv_inference_pending_request_count", outer=_OUTER),)),
            ),
        ),
        Row("request_slots", (Alias((_only(_REQUESTS, "request_type", "max"),)),)),
        Row("kv_cache_usage_ratio", (_USAGE,), "max"),
        Row("kv_cache_usage_mean_ratio", (_USAGE,), "mean"),
        Row(
            "kv_cache_capacity_tokens",
            (
                Alias(
                    (_MOST,),
                    times=(_only(_BLOCKS, _KIND, "tokens_per"),),
                    apart="model",
                ),
            ),
        ),
        Row(
            "requests_finished_total",
            (
                Alias(
                    (
                        Term(_SUCCESS, part="success", outer=_OUTER),
                        Term(_FAILURE, part_label="reason", outer=_OUTER, optional=True),
                    )
                ),
            ),
        ),
        Row(
            "requests_rejected_total",
            (Alias((Term(_FAILURE, keep=(("reason", _REJECTED),), outer=_OUTER),)),),
        ),
        Row(
            "requests_failed_total",
            (Alias((Term(_FAILURE, drop=(("reason", _NOT_OURS),), outer=_OUTER),)),),
        ),
        histogram("ttft_seconds", "nv_inference_first_response_histogram_ms", scale=_MILLISECONDS),
        _mean("queue_seconds", "nv_inference_queue_duration_us"),
        _mean("e2e_seconds", "nv_inference_request_duration_us"),
    ),
)
