"""llama.cpp's server; `--metrics` switches its page on, and no family has labels.

Its rate gauges are averages since the scrape before, whoever made it: two scrapers disturb each
other, so rates come from the counters. Those have six significant digits.
"""

from __future__ import annotations

from typing import Final

from collector.sources.engine.rows import Alias, Engine, Row, Term, plain, quotient

_PROMPT = "llamacpp_prompt_tokens_total"
_CACHED = "llamacpp_prompt_tokens_cached_total"
_PREDICTED = "llamacpp_tokens_predicted_total"
_USAGE = "llamacpp_kv_cache_usage_ratio"

LLAMACPP: Final = Engine(
    name="llamacpp",
    prefix="llamacpp",
    rows=(
        plain("requests_running", "llamacpp_requests_processing"),
        plain("requests_waiting", "llamacpp_requests_deferred"),
        plain("kv_cache_usage_ratio", _USAGE, across="max"),
        plain("kv_cache_usage_mean_ratio", _USAGE, across="mean"),
        plain("prompt_tokens_total", _PROMPT),
        plain("generation_tokens_total", _PREDICTED),
        plain("engine_steps_total", "llamacpp_n_decode_total"),  # tokens count at a request's end
        Row(  # a mean, no buckets
            "inter_token_seconds",
            (Alias((Term("llamacpp_tokens_predicted_seconds_total"),), over=(Term(_PREDICTED),)),),
        ),
        Row(  # the counter of prompt tokens leaves out those from the cache
            "prefix_cache_hit_ratio",
            (Alias((Term(_CACHED),), over=(Term(_CACHED), Term(_PROMPT))),),
        ),
        Row(
            "spec_decode_acceptance_ratio",
            (
                quotient(
                    "llamacpp_spec_decode_num_accepted_tokens_total",
                    "llamacpp_spec_decode_num_draft_tokens_total",
                ),
            ),
        ),
    ),
)
