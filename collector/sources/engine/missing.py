"""Which signals an engine or a version of it never had, and why: known, so not a fault.

Facts of the engines' own code and release notes, by version where it matters; ends are included.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from collector.sources.engine.versions import release, span_ends
from detectors.records import Absence, Identity


@dataclass(frozen=True, slots=True)
class Gap:
    """Versions of an engine without a signal; without ends all of them."""

    text: str
    since: str = ""
    until: str = ""


def _for_all(text: str, *signals: str) -> dict[str, tuple[Gap, ...]]:
    return {signal: (Gap(text),) for signal in signals}


def _before(text: str, until: str, *signals: str) -> dict[str, tuple[Gap, ...]]:
    return {signal: (Gap(text, until=until),) for signal in signals}


_BUDGET = _for_all(
    "only TGI reserves a token budget by batch", "batch_tokens", "batch_token_budget"
)
_NO_NANS = _for_all("only vLLM counts requests with NaN logits", "corrupted_requests_total")
_NO_LOSSES = _for_all(
    "first tokens without an end are a sign of lost requests for vLLM's counts only",
    "requests_lost_total",
)
_NO_CONTEXT = _for_all(
    "the page does not say it; the engine's /v1/models or /info may", "context_tokens"
)
_TELLS_TTFT = _for_all(
    "the engine tells its time to first token, so none is approximated", "ttft_estimate_seconds"
)
_NO_FIRST_TOKEN = _for_all(
    "the engine does not tell what the time to first token could be approximated from",
    "ttft_estimate_seconds",
)
_NO_STEPS = _for_all(
    "the engine's steps are not counted here; its token counters are what moves",
    "engine_steps_total",
)
_NO_ADAPTERS = _for_all("only vLLM tells the LoRA adapters in use", "lora_adapters_active")
_NO_PREEMPTIONS = _for_all("the engine counts no preemptions", "preemptions_total")
_NO_REFUSALS = _for_all("the engine does not count refused requests", "requests_rejected_total")

_VLLM: Final = {
    **_BUDGET,
    **_TELLS_TTFT,
    **_NO_STEPS,
    **_NO_CONTEXT,
    **_for_all(
        "vLLM does not put --max-num-seqs on its page; configure request_slots", "request_slots"
    ),
    **_before(
        "vLLM has token counters and these latencies from 0.3.1 on",
        "0.3.0",
        *("prompt_tokens_total", "generation_tokens_total"),
        *("ttft_seconds", "inter_token_seconds", "e2e_seconds"),
    ),
    **_before("vLLM tells its cache's size from 0.3.3 on", "0.3.2", "kv_cache_capacity_tokens"),
    **_before("vLLM counts finished requests from 0.4.2 on", "0.4.1", "requests_finished_total"),
    **_before("vLLM counts preemptions from 0.4.3 on", "0.4.2", "preemptions_total"),
    **_before("vLLM tells this from 0.5.3 on", "0.5.2", "spec_decode_acceptance_ratio"),
    **_before("vLLM tells this from 0.5.5 on", "0.5.4", "prefix_cache_hit_ratio"),
    **_before(
        "vLLM splits a request's time from 0.6.4 on",
        "0.6.3",
        *("queue_seconds", "prefill_seconds", "decode_seconds"),
    ),
    **_before("vLLM counts requests with NaN logits from 0.11.1 on", "0.11.0",
              "corrupted_requests_total"),
    **_before(
        "vLLM counts failed requests from 0.14 on (finished_reason error), and answers 5xx from "
        "0.8.5 on",
        "0.13.99",
        "requests_failed_total",
    ),
    **_before(
        "vLLM counts refused requests from 0.32 on; its limits exist from 0.29 on and are off by "
        "default",
        "0.31.99",
        "requests_rejected_total",
    ),
}  # fmt: skip
_TGI: Final = {
    **_NO_NANS,
    **_NO_ADAPTERS,
    **_NO_LOSSES,
    **_NO_CONTEXT,
    **_for_all(
        "TGI has no histogram of the time to first token; validation, queue and prefill times add "
        "up to about that",
        "ttft_seconds",
    ),
    **_for_all("TGI reserves memory for a whole answer, so it never preempts", "preemptions_total"),
    **_for_all("TGI times prefill and each decode step, not decoding as a whole", "decode_seconds"),
    **_for_all("TGI counts no hits of its prefix cache", "prefix_cache_hit_ratio"),
    **_for_all("TGI counts accepted tokens but no drafts", "spec_decode_acceptance_ratio"),
    **_for_all(
        "TGI does not limit the batch by requests unless told to; configure request_slots",
        "request_slots",
    ),
    "batch_token_budget": (
        Gap("TGI says max_batch_total_tokens in /info up to 2.2; configure batch_token_budget"),
    ),
    **_for_all(
        "TGI tells the tokens that its batch reserved, and on this page not of how many; configure "
        "batch_token_budget",
        "kv_cache_capacity_tokens",
    ),
    **_before("TGI tells this from 0.7 on", "0.6.99", "batch_tokens"),
    **_before("TGI tells this from 1.3.3 on", "1.3.2", "prefill_seconds"),
}
_SGLANG: Final = {
    **_BUDGET,
    **_TELLS_TTFT,
    **_NO_ADAPTERS,
    **_NO_NANS,
    **_NO_LOSSES,
    **_NO_REFUSALS,
    **_for_all(
        "SGLang counts retracted tokens and the requests retracted now, not the retractions",
        "preemptions_total",
    ),
    **_for_all(
        "SGLang counts aborts by clients and failures as one (reason abort of "
        "requests_finished_total)",
        "requests_failed_total",
    ),
}
_TENSORRT: Final = {
    **_TELLS_TTFT, **_NO_STEPS, **_NO_ADAPTERS,
    **_BUDGET, **_NO_NANS, **_NO_LOSSES, **_NO_CONTEXT, **_NO_PREEMPTIONS, **_NO_REFUSALS
}  # fmt: skip
_LLAMACPP: Final = {
    **_NO_FIRST_TOKEN, **_NO_ADAPTERS,
    **_BUDGET, **_NO_NANS, **_NO_LOSSES, **_NO_CONTEXT, **_NO_PREEMPTIONS, **_NO_REFUSALS,
    **_for_all("llama.cpp counts tokens and seconds, not requests",
               "requests_finished_total", "requests_failed_total"),
    **_for_all("llama.cpp has no latencies of requests",
               "ttft_seconds", "queue_seconds", "e2e_seconds", "prefill_seconds", "decode_seconds"),
    **_for_all("llama.cpp tells its slots at /slots and /props; configure request_slots",
               "request_slots"),
    **_for_all("llama.cpp tells its context at /props; configure kv_cache_capacity_tokens",
               "kv_cache_capacity_tokens"),
    **_for_all("llama.cpp dropped the usage of its cache from the page in 2025",
               "kv_cache_usage_ratio", "kv_cache_usage_mean_ratio"),
}  # fmt: skip
_JETSTREAM: Final = {
    **_TELLS_TTFT, **_NO_STEPS, **_NO_ADAPTERS,
    **_BUDGET, **_NO_NANS, **_NO_LOSSES, **_NO_CONTEXT, **_NO_PREEMPTIONS, **_NO_REFUSALS,
    **_for_all("JetStream has no family for it that Fusewire knows",
               "requests_running", "request_slots", "prompt_tokens_total",
               "generation_tokens_total", "requests_failed_total", "kv_cache_usage_ratio",
               "kv_cache_usage_mean_ratio", "kv_cache_capacity_tokens", "prefill_seconds",
               "decode_seconds", "prefix_cache_hit_ratio", "spec_decode_acceptance_ratio"),
}  # fmt: skip
_TRITON: Final = {
    **_NO_FIRST_TOKEN, **_NO_STEPS, **_NO_ADAPTERS,
    **_BUDGET, **_NO_NANS, **_NO_LOSSES, **_NO_CONTEXT, **_NO_PREEMPTIONS,
    **_for_all("Triton counts requests, not tokens; a vLLM backend has its own families, switched "
               "on for each model",
               "prompt_tokens_total", "generation_tokens_total", "inter_token_seconds",
               "prefill_seconds", "decode_seconds", "prefix_cache_hit_ratio",
               "spec_decode_acceptance_ratio"),
}  # fmt: skip
_DYNAMO: Final = {
    **_TELLS_TTFT, **_NO_STEPS, **_NO_ADAPTERS,
    **_BUDGET, **_NO_NANS, **_NO_LOSSES, **_NO_CONTEXT, **_NO_PREEMPTIONS, **_NO_REFUSALS,
    **_for_all("Dynamo's own families do not have it; its workers pass their engine's on",
               "queue_seconds", "prefill_seconds", "decode_seconds",
               "spec_decode_acceptance_ratio"),
}  # fmt: skip

_GAPS: Final[Mapping[str, Mapping[str, Sequence[Gap]]]] = MappingProxyType(
    {
        "vllm": _VLLM,
        "tgi": _TGI,
        "lorax": _TGI,
        "sglang": _SGLANG,
        "trtllm": _TENSORRT,
        "llamacpp": _LLAMACPP,
        "jetstream": _JETSTREAM,
        "triton": _TRITON,
        "dynamo": _DYNAMO,
    }
)


def why_missing(engine: str, version: str, signal: str) -> str:
    """Return why a version of an engine does not have a signal; empty if it should have it.

    Args:
        engine: Name in `engines.py`.
        version: One version, or a span as `version_span` writes it; empty if not known, then only
            what no version has is said.
        signal: The canonical signal; a quantile is missing for the reason of its histogram.

    >>> why_missing("vllm", "0.9.2-0.11.2", "requests_rejected_total")[:46]
    'vLLM counts refused requests from 0.32 on; its'
    """
    known = _GAPS.get(engine, {})
    for suffix in ("_p50_seconds", "_p99_seconds"):
        if signal.endswith(suffix):
            signal = signal.removesuffix(suffix) + "_seconds"
    first, last = span_ends(version)
    for gap in known.get(signal, ()):
        early = not gap.since or (bool(first) and release(first) >= release(gap.since))
        if early and (not gap.until or (bool(last) and release(last) <= release(gap.until))):
            return gap.text
    return ""


def explained(absence: Absence, identity: Identity, signal: str) -> Absence:
    """Return the reason of an absence, with that of the version in place of `family absent`."""
    if absence is not Absence.NO_FAMILY:
        return absence
    known = why_missing(identity.engine, identity.version, signal)
    return Absence.NOT_IN_VERSION if known else absence
