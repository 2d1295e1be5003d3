"""What detectors cannot do without, and how to switch on what is missing (`fusewire doctor`)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from collector.sources.engine.engines import ENGINES
from collector.sources.engine.missing import why_missing
from collector.sources.engine.quantiles import GAUGES

_NEEDED: Final = frozenset(
    {"requests_running", "requests_waiting", "kv_cache_usage_ratio", "generation_tokens_total"}
)
_BASES: Final = {gauge: signal for signal, gauges in GAUGES.items() for gauge in gauges}
_PAGE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "vllm": "start vLLM without --disable-log-stats; some families come with the first request",
        "tgi": "families come with their first use: send TGI one request",
        "lorax": "families come with their first use: send LoRAX one request",
        "sglang": "start SGLang with --enable-metrics",
        "trtllm": (
            "read /prometheus/metrics and start trtllm-serve with return_perf_metrics and "
            "iteration statistics (enable_iter_perf_stats) on"
        ),
        "llamacpp": "start llama-server with --metrics; in router mode ask for ?model=NAME",
        "jetstream": "start JetStream with a Prometheus port (--prometheus_port)",
        "triton": (
            "read port 8002; for an engine inside Triton switch its metrics on for each model "
            "(vLLM backend: REPORT_CUSTOM_METRICS in config.pbtxt)"
        ),
        "dynamo": (
            "read a worker's page too: set DYN_SYSTEM_PORT, its engine passes its families on there"
        ),
    }
)
_VLLM: Final[Mapping[str, str]] = MappingProxyType(
    {
        "corrupted_requests_total": "start vLLM with VLLM_COMPUTE_NANS_IN_LOGITS=1",
        "requests_rejected_total": (
            "set --max-num-queued-reqs (vLLM 0.29 and later; counted from 0.32 on)"
        ),
        "request_slots": "configure request_slots of the target: the value of --max-num-seqs",
        "kv_cache_capacity_tokens": (
            "configure kv_cache_capacity_tokens of the target: the start-up log says "
            "'GPU KV cache size: N tokens'; the Rust front end does not put it on its page"
        ),
        "lora_adapters_active": "it is there with --enable-lora, once a request was served",
        "spec_decode_acceptance_ratio": "it is there with speculative decoding only",
        "prefix_cache_hit_ratio": (
            "it is there with --enable-prefix-caching, once a prompt was looked up"
        ),
        "requests_failed_total": "it comes with the first failed request where no reason is at 0",
    }
)
_BUDGET: Final = (
    "configure batch_token_budget of the target: the start-up log says "
    "'Setting max batch total tokens to N', and /info does up to TGI 2.2"
)
_TGI: Final[Mapping[str, str]] = MappingProxyType(
    {
        "batch_token_budget": _BUDGET,
        "kv_cache_usage_ratio": _BUDGET,
        "kv_cache_usage_mean_ratio": _BUDGET,
        "kv_cache_capacity_tokens": _BUDGET,
    }
)
_SLOTS: Final = "configure request_slots of the target: the most requests that may run at once"
_CAPACITY: Final = "configure kv_cache_capacity_tokens of the target"
_SIGNALS: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {"vllm": _VLLM, "tgi": _TGI, "lorax": _TGI}
)


def needed_signals(engine: str) -> frozenset[str]:
    """Return the signals without which detectors are blind on an engine; `auto` names all.

    An engine that has no KV cache on its page, or counts no tokens, is not asked for them.

    >>> sorted(needed_signals("llamacpp") - needed_signals("jetstream"))
    ['generation_tokens_total', 'requests_running']
    """
    told = {
        signal
        for it in ENGINES
        if engine in {"auto", it.name}
        for signal in _NEEDED & it.signals
        if not why_missing(it.name, "", signal)
    }
    return frozenset({"up", *told})


def how_to_enable(engine: str, signal: str) -> str:
    """Return what to do so that an engine tells a signal; empty for an engine not known.

    Args:
        engine: Name in `engines.py`.
        signal: The canonical signal; of a quantile that of its histogram counts.
    """
    signal = _BASES.get(signal, signal)
    if engine not in _PAGE:
        return ""
    special = _SIGNALS.get(engine, {}).get(signal)
    if special is None and signal == "request_slots":
        special = _SLOTS
    elif special is None and signal == "kv_cache_capacity_tokens":
        special = _CAPACITY
    return special or _PAGE[engine]
