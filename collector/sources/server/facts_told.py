"""Answers of servers about themselves -> `Facts`: one function an endpoint, pure.

Only known members are looked at. The rest of these answers may hold keys (SGLang's arguments), an
environment (vLLM's developer route) or prompts (llama.cpp's slots), and is dropped unread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeAlias

from collector.sources.names import digest, short_name, shortened
from collector.sources.server.asking import count_of, field_of, text_of
from collector.sources.server.changes import Facts, adapters, digest_of_told

Told: TypeAlias = Callable[[object], Facts]
_LONG: Final = 4096
_MOST_TEMPLATE: Final = 1_048_576
_OWNERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "vllm": "vllm",
        "vllm-frontend-rs": "vllm",
        "sglang": "sglang",
        "llamacpp": "llamacpp",
    }
)
_SAMPLING: Final = (
    *("temperature", "top_p", "top_k", "min_p", "typical_p", "repeat_penalty"),
    *("presence_penalty", "frequency_penalty", "samplers", "max_tokens", "n_predict"),
)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A path that some engines answer, and how its answer is read; `engines` empty means all."""

    path: str
    told: Told
    engines: frozenset[str] = frozenset()


def version_told(body: object) -> Facts:
    """Read `/version`; which engine it is of, others say."""
    return Facts(version=shortened(text_of(body, "version")))


def models_told(body: object) -> Facts:
    """Read `/v1/models`: the model, its longest sequence, and the adapters on top of it."""
    listed = field_of(body, "data")
    if not isinstance(listed, list):
        return Facts()
    rows = [row for row in listed if text_of(row, "id", longest=_LONG)]
    bases = [row for row in rows if not text_of(row, "parent", longest=_LONG)]
    if not bases:
        return Facts()
    root = text_of(bases[0], "root", longest=_LONG)
    told_adapters = any(isinstance(row, dict) and "parent" in row for row in rows)
    on_top = [text_of(row, "id", longest=_LONG) for row in rows if row not in bases]
    return Facts(
        engine=_OWNERS.get(text_of(bases[0], "owned_by"), ""),
        model=short_name(text_of(bases[0], "id", longest=_LONG)),
        revision=short_name(root) if root else "",
        loras=adapters(on_top) if told_adapters else None,
        context_tokens=count_of(bases[0], "max_model_len"),
    )


def vllm_told(body: object) -> Facts:
    """Read `/server_info?config_format=json` of a vLLM in developer mode."""
    model, cache = field_of(body, "vllm_config", "model_config"), "cache_config"
    if not isinstance(model, dict):
        return Facts()
    generation = {it: model.get(it) for it in ("generation_config", "override_generation_config")}
    return Facts(
        engine="vllm",
        revision=short_name(text_of(model, "model", longest=_LONG)),
        quantization=shortened(text_of(model, "quantization")) or "none",
        dtype=_dtype(text_of(model, "dtype")),
        kv_cache_dtype=shortened(text_of(body, "vllm_config", cache, "cache_dtype")),
        generation_config=digest_of_told(generation),
        logprobs_mode=shortened(text_of(model, "logprobs_mode")),
        context_tokens=count_of(model, "max_model_len"),
        request_slots=count_of(body, "vllm_config", "scheduler_config", "max_num_seqs"),
        kv_cache_capacity_tokens=count_of(body, "vllm_config", cache, "kv_cache_size_tokens"),
    )


def tgi_told(body: object) -> Facts:
    """Read `/info` of TGI; from 2.3 on it does not tell its capacity any more."""
    model = text_of(body, "model_id", longest=_LONG)
    if not model:
        return Facts()
    return Facts(
        engine="tgi",
        version=shortened(text_of(body, "version")),
        model=short_name(model),
        revision=shortened(text_of(body, "model_sha")),
        dtype=_dtype(text_of(body, "model_dtype")),
        context_tokens=count_of(body, "max_total_tokens"),
        request_slots=count_of(body, "max_batch_size"),
        batch_token_budget=count_of(body, "max_batch_total_tokens"),
    )


def sglang_told(body: object) -> Facts:
    """Read `/get_server_info` of SGLang: its arguments, and what the schedulers found."""
    model = text_of(body, "model_path", longest=_LONG)
    if not model:
        return Facts()
    ranks = count_of(body, "dp_size") or 1.0
    per_rank = count_of(body, "max_total_num_tokens") or count_of(
        body, "internal_states", 0, "max_total_num_tokens"
    )
    slots = count_of(body, "internal_states", 0, "effective_max_running_requests_per_dp")
    served = text_of(body, "served_model_name", longest=_LONG)
    return Facts(
        engine="sglang",
        version=shortened(text_of(body, "version")),
        model=short_name(served or model),
        revision=short_name(model),
        quantization=shortened(text_of(body, "quantization")) or "none",
        dtype=_dtype(text_of(body, "dtype")),
        kv_cache_dtype=shortened(text_of(body, "kv_cache_dtype")),
        generation_config=digest_of_told(_named(body, "sampling_defaults")),
        context_tokens=count_of(body, "context_length"),
        request_slots=slots * ranks if slots else count_of(body, "max_running_requests"),
        kv_cache_capacity_tokens=per_rank * ranks if per_rank else None,
    )


def sglang_model_told(body: object) -> Facts:
    """Read `/get_model_info` of SGLang."""
    model = text_of(body, "model_path", longest=_LONG)
    if not model:
        return Facts()
    return Facts(
        engine="sglang",
        model=short_name(model),
        revision=short_name(model),
        generation_config=digest_of_told(_named(body, "preferred_sampling_params")),
    )


def props_told(body: object) -> Facts:
    """Read `/props` of llama.cpp; its context is that of one slot."""
    settings = field_of(body, "default_generation_settings")
    path = text_of(body, "model_path", longest=_LONG)
    if not isinstance(settings, dict) or not path:
        return Facts()
    params = settings.get("params")
    sampling = params if isinstance(params, dict) else settings
    template = text_of(body, "chat_template", longest=_MOST_TEMPLATE)
    return Facts(
        engine="llamacpp",
        version=shortened(text_of(body, "build_info")),
        model=short_name(text_of(body, "model_alias", longest=_LONG) or path),
        revision=short_name(path),
        generation_config=digest_of_told({it: sampling.get(it) for it in _SAMPLING}),
        chat_template=digest(template) if template else "",
        context_tokens=count_of(settings, "n_ctx"),
        request_slots=count_of(body, "total_slots"),
    )


def slots_told(body: object) -> Facts:
    """Count the slots of llama.cpp's `/slots`; what is in them is of users and is not read."""
    if not isinstance(body, list) or count_of(body, 0, "n_ctx") is None:
        return Facts()
    return Facts(request_slots=float(len(body)), context_tokens=count_of(body, 0, "n_ctx"))


ENDPOINTS: Final[tuple[Endpoint, ...]] = (  # in the order of asking; the first word is kept
    Endpoint("/version", version_told, frozenset({"vllm"})),
    Endpoint("/info", tgi_told, frozenset({"tgi"})),
    Endpoint("/get_server_info", sglang_told, frozenset({"sglang"})),
    Endpoint("/get_model_info", sglang_model_told, frozenset({"sglang"})),
    Endpoint("/props", props_told, frozenset({"llamacpp"})),
    Endpoint("/slots", slots_told, frozenset({"llamacpp"})),
    Endpoint("/v1/models", models_told),
    Endpoint("/server_info?config_format=json", vllm_told, frozenset({"vllm"})),
)
_ENGINE_NAMES: Final[Mapping[str, str]] = MappingProxyType({"llama.cpp": "llamacpp"})


def endpoints_of(engine: str) -> tuple[Endpoint, ...]:
    """Return the endpoints to ask of an engine; all of them while nobody knows which it is."""
    name = _ENGINE_NAMES.get(engine, engine)
    known = frozenset().union(*(it.engines for it in ENDPOINTS))
    if name not in known:
        return ENDPOINTS
    return tuple(it for it in ENDPOINTS if not it.engines or name in it.engines)


def _named(body: object, name: str) -> dict[str, object]:
    return {name: field_of(body, name)}


def _dtype(text: str) -> str:
    return shortened(text.removeprefix("torch."))
