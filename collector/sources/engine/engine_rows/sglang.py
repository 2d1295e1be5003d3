"""SGLang, from the first metrics of 2024 on; `--enable-metrics` switches its page on.

Each worker writes the scheduler's gauges: `tp_rank`, `pp_rank` and `moe_ep_rank` tell copies of one
scheduler apart (the lowest counts), `dp_rank` tells schedulers apart (they add).
"""

from __future__ import annotations

from typing import Final

from collector.sources.engine.rows import Across, Alias, Engine, Row, Term, histogram, plain

_RANKS = ("tp_rank", "pp_rank", "moe_ep_rank")


def _scheduler(signal: str, *families: str, across: Across = "sum") -> Row:
    aliases = tuple(Alias((Term(family, ranks=_RANKS),)) for family in families)
    return Row(signal, aliases, across)


def _queue(family: str, *, optional: bool = True) -> Term:
    return Term(family, ranks=_RANKS, optional=optional)


_USAGE = ("sglang_token_usage",)
_DONE = "sglang_num_requests_total"

SGLANG: Final = Engine(
    name="sglang",
    prefix="sglang",
    multiprocess=True,
    rows=(
        _scheduler("requests_running", "sglang_num_running_reqs", "sglang_num_requests_running"),
        Row(
            "requests_waiting",
            (
                Alias(
                    (
                        _queue("sglang_num_queue_reqs", optional=False),
                        _queue("sglang_num_grammar_queue_reqs"),
                        _queue("sglang_num_prefill_bootstrap_queue_reqs"),  # prefill apart from
                        _queue("sglang_num_decode_prealloc_queue_reqs"),  # decode
                        _queue("sglang_num_decode_transfer_queue_reqs"),
                    )
                ),
                Alias((Term("sglang_num_requests_waiting"),)),
            ),
        ),
        _scheduler("request_slots", "sglang_max_running_requests"),
        _scheduler("context_tokens", "sglang_context_len", across="max"),
        _scheduler("kv_cache_usage_ratio", *_USAGE, across="max"),
        _scheduler("kv_cache_usage_mean_ratio", *_USAGE, across="mean"),
        _scheduler("kv_cache_capacity_tokens", "sglang_max_total_num_tokens"),
        plain("prompt_tokens_total", "sglang_prompt_tokens_total"),
        plain("generation_tokens_total", "sglang_generation_tokens_total"),
        Row(  # tokens are counted at a request's end, the gaps between them as they come
            "engine_steps_total",
            (
                Alias((Term("sglang_inter_token_latency_seconds", take="count"),)),
                Alias((Term("sglang_time_per_output_token_seconds", take="count"),)),
            ),
        ),
        Row(
            "requests_finished_total",
            (
                Alias(
                    (
                        Term(_DONE, part="success"),
                        Term("sglang_num_aborted_requests_total", part="abort", optional=True),
                    )
                ),
            ),
        ),
        histogram("ttft_seconds", "sglang_time_to_first_token_seconds"),
        histogram(
            "inter_token_seconds",
            "sglang_inter_token_latency_seconds",
            "sglang_time_per_output_token_seconds",
        ),
        histogram("queue_seconds", "sglang_queue_time_seconds"),
        histogram("e2e_seconds", "sglang_e2e_request_latency_seconds"),
        histogram(
            "prefill_seconds",
            "sglang_per_stage_req_latency_seconds",
            keep={"stage": "prefill_forward"},
        ),
        histogram(
            "decode_seconds",
            "sglang_per_stage_req_latency_seconds",
            keep={"stage": "decode_forward"},
        ),
        _scheduler("prefix_cache_hit_ratio", "sglang_cache_hit_rate", across="max"),
        _scheduler("spec_decode_acceptance_ratio", "sglang_spec_accept_rate", across="max"),
    ),
)
