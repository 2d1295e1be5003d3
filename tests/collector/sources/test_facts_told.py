"""Recorded answers of servers about themselves become facts; hostile ones become nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.sources.names import short_name
from collector.sources.server.changes import Facts
from collector.sources.server.facts_told import (
    ENDPOINTS,
    Told,
    endpoints_of,
    models_told,
    props_told,
    sglang_told,
    slots_told,
    tgi_told,
    version_told,
    vllm_told,
)
from tests.collector.sources.engine_server import ANSWERS

ROOT = short_name("/models/tiny")
TABLE: Mapping[str, tuple[Told, Facts]] = {
    "vllm-0.32.0-version": (version_told, Facts(version="0.32.0")),
    "vllm-0.8.5.post2-version": (version_told, Facts(version="0.8.5.post2")),
    "vllm-0.9.2.post2-version": (version_told, Facts(version="0.9.2.post2")),
    **{
        f"vllm-{version}-models": (
            models_told,
            Facts(engine="vllm", model="tiny", revision=ROOT, loras=(), context_tokens=512.0),
        )
        for version in ("0.8.5.post2", "0.9.2.post2", "0.32.0")
    },
    "vllm-lora-models": (
        models_told,
        Facts(
            engine="vllm",
            model="base",
            revision="owner/base-7b",
            loras=("chat", "sql"),
            context_tokens=4096.0,
        ),
    ),
    "tgi-2.0-info": (
        tgi_told,
        Facts(
            engine="tgi",
            version="2.0.1",
            model="owner/model-7b",
            revision="0c7c7be0fde9c1f9d5b1a3f0aa0d5f2f0e1c2b3a",
            dtype="float16",
            context_tokens=4096.0,
            batch_token_budget=98304.0,
        ),
    ),
    "tgi-3.3-info": (
        tgi_told,
        Facts(
            engine="tgi",
            version="3.3.4",
            model=short_name("/data/models/model-7b"),
            context_tokens=8192.0,
        ),
    ),
    "llamacpp-2026-models": (
        models_told,
        Facts(engine="llamacpp", model=short_name("/srv/models/model-7b-q4_k_m.gguf")),
    ),
}


@pytest.mark.parametrize("name", sorted(TABLE))
def test_a_recorded_answer_gives_its_facts(name: str) -> None:
    told, expected = TABLE[name]

    assert told(json.loads((ANSWERS / f"{name}.json").read_bytes())) == expected


def test_sglang_tells_limits_of_all_its_ranks_and_no_key() -> None:
    body = json.loads((ANSWERS / "sglang-0.5-server-info.json").read_bytes())

    facts = sglang_told(body)

    assert (facts.engine, facts.version, facts.model) == ("sglang", "0.5.3", "qwen")
    assert (facts.quantization, facts.dtype, facts.kv_cache_dtype) == ("fp8", "bfloat16", "auto")
    assert (facts.request_slots, facts.kv_cache_capacity_tokens) == (96.0, 240000.0)
    assert facts.context_tokens is None
    assert "not-to-be-kept" not in repr(facts)


def test_llamacpp_tells_the_context_of_a_slot_and_how_many_there_are() -> None:
    body = json.loads((ANSWERS / "llamacpp-2026-props.json").read_bytes())

    facts = props_told(body)
    body["default_generation_settings"]["params"]["temperature"] = 0.2
    body["chat_template"] = "another"
    other = props_told(body)

    assert (facts.engine, facts.version) == ("llamacpp", "b6900-0123abcd")
    assert (facts.context_tokens, facts.request_slots) == (8192.0, 4.0)
    assert facts.generation_config
    assert other.generation_config != facts.generation_config
    assert other.chat_template != facts.chat_template


def test_slots_are_counted_and_prompts_in_them_are_not_looked_at() -> None:
    facts = slots_told([{"id": 0, "n_ctx": 2048, "prompt": "secret"}, {"id": 1, "n_ctx": 2048}])

    assert facts == Facts(request_slots=2.0, context_tokens=2048.0)


def test_a_real_vllm_in_developer_mode_tells_precision_and_limits() -> None:
    facts = vllm_told(json.loads((ANSWERS / "vllm-0.32.0-server-info.json").read_bytes()))

    assert (facts.dtype, facts.quantization, facts.kv_cache_dtype) == ("bfloat16", "none", "auto")
    assert (facts.request_slots, facts.kv_cache_capacity_tokens) == (8.0, 1024.0)
    assert facts.context_tokens == 512.0
    assert facts.logprobs_mode == "raw_logprobs"
    assert facts.revision == ROOT


def test_the_text_form_of_an_older_vllm_is_no_error() -> None:
    assert vllm_told({"vllm_config": "model='x', dtype=torch.bfloat16"}) == Facts()


def test_a_known_engine_is_asked_its_own_endpoints_only() -> None:
    paths = [it.path for it in endpoints_of("vllm")]

    assert paths == ["/version", "/v1/models", "/server_info?config_format=json"]
    assert [it.path for it in endpoints_of("llama.cpp")] == ["/props", "/slots", "/v1/models"]
    assert endpoints_of("") == endpoints_of("something else") == ENDPOINTS


NAMES = [
    *("version", "data", "id", "root", "parent", "max_model_len", "owned_by", "vllm_config"),
    *("model_config", "dtype", "model_id", "model_path", "max_total_tokens", "n_ctx", "dp_size"),
    *("default_generation_settings", "internal_states", "total_slots", "params", "model"),
    *("effective_max_running_requests_per_dp", "max_total_num_tokens", "chat_template"),
]
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.just("x" * 5000)
    | st.just("/a/b/" + "c" * 300)
)
JSON = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=5), inner, max_size=6)
    ),
    max_leaves=20,
)


@settings(max_examples=100, deadline=None)
@given(body=JSON)
def test_whatever_a_server_answers_the_facts_are_short_and_their_numbers_are_positive(
    body: object,
) -> None:
    for endpoint in ENDPOINTS:
        facts = endpoint.told(body)

        for it in fields(facts):
            value = getattr(facts, it.name)
            if isinstance(value, str):
                assert len(value) <= 80
                assert value.isprintable()
        assert all(value >= 1 for value in facts.values.values())
