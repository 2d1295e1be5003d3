"""The doctor on every recorded engine, and on what is none."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from time import monotonic

import httpx2
import pytest

from collector.config import load
from collector.doctor.draft import draft
from collector.doctor.examine import Examination, Instruments, examine
from tests.collector.doctor.pages import an_engine
from tests.collector.sources.servers import NOW, serving, text

pytestmark = pytest.mark.anyio

PAGES = Path(__file__).parents[2] / "fixtures" / "metrics"
ENGINES = ("vllm", "tgi", "sglang", "llamacpp", "triton", "jetstream")
UNREADABLE = {  # damaged where they were posted, or no page at all: nothing to recognise
    "vllm-0.6-empty-body-http-head",
    "vllm-0.6-headers-only-truncated",
    "vllm-0.8-v1-cache-config-none-split-lines",
    "vllm-2026-rust-openmetrics-excerpt",
    "vllm-metal-2026-livelock-elided-labels",
    "vllm-0.10.2-dp8-prometheus-console",
    "tgi-3.3-fresh-idle-empty",
    "vllm-0.11.0-three-digit-exponent",
}
EXCERPTS = {  # a family or two that feed no signal by themselves
    "jetstream-queue-duration-excerpt",
    "vllm-0.2.3-aioprometheus-truncated",
    "vllm-0.5.1-all-zero-ttft",
    "vllm-0.6-opt125m-excerpt",
}
RECORDED = [
    pytest.param(page, engine, id=page.stem)
    for page in sorted(PAGES.glob("*.txt"))
    for engine in ENGINES
    if page.stem.startswith(engine) and page.stem not in UNREADABLE
]


def recorded(name: str) -> bytes:
    return (PAGES / f"{name}.txt").read_bytes()


async def no_sleep(_: float) -> None:
    """The pages do not move."""


@pytest.fixture
async def tools(anyio_backend: str) -> AsyncIterator[Instruments]:
    async with httpx2.AsyncClient(trust_env=False) as client:
        yield Instruments(client, lambda: NOW, monotonic, no_sleep)


@pytest.mark.parametrize(("page", "engine"), RECORDED)
async def test_every_recorded_engine_is_recognised_and_what_is_missing_has_a_reason(
    page: Path, engine: str, tools: Instruments
) -> None:
    async with an_engine(recorded(page.stem)) as url:
        found = await examine(url, tools)

    assert found.engine == engine
    assert any(not it.missing for it in found.signals) is (page.stem not in EXCERPTS)
    assert all(it.why for it in found.signals if it.missing)
    assert all(it.fed_by for it in found.signals if not it.missing)


@pytest.mark.parametrize("name", sorted(UNREADABLE))
async def test_a_damaged_page_is_examined_without_a_fault(name: str, tools: Instruments) -> None:
    async with an_engine(recorded(name)) as url:
        found = await examine(url, tools)

    assert found.problem or found.findings or found.signals


async def test_a_loaded_vllm_is_well_and_its_limits_are_asked_for(tools: Instruments) -> None:
    page = recorded("vllm-0.32.0-load")
    models = {"data": [{"id": "tiny", "max_model_len": 2048, "owned_by": "vllm"}]}
    async with an_engine(page, {"/version": {"version": "0.32.0"}, "/v1/models": models}) as url:
        found = await examine(url, tools)

    reported = {it.signal: it for it in found.signals}
    assert found.well
    assert reported["context_tokens"].value == 2048
    assert reported["kv_cache_usage_ratio"].fed_by == "vllm_kv_cache_usage_perc"
    assert reported["request_slots"].remedy.startswith("configure request_slots")


async def test_a_needed_signal_that_is_missing_makes_it_unwell_and_says_what_to_do(
    tools: Instruments,
) -> None:
    async with an_engine(recorded("tgi-3.3-full-2025-09")) as url:
        found = await examine(url, tools)

    (lacking,) = [it for it in found.signals if it.missing and it.needed]
    assert not found.well
    assert lacking.signal == "kv_cache_usage_ratio"
    assert lacking.remedy.startswith("configure batch_token_budget")


async def test_a_clock_that_is_off_is_found(tools: Instruments) -> None:
    page = recorded("vllm-0.32.0-load")
    async with an_engine(page, ahead_seconds=-90) as url:
        found = await examine(url, tools)

    assert found.skew_seconds == -90.0
    assert "clock_skew" in {it.code for it in found.findings}


async def test_a_page_that_is_not_there_has_a_problem_and_no_signals(tools: Instruments) -> None:
    async with serving(text(b"no", status="503 Service Unavailable")) as server:
        found = await examine(server.url, tools)

    assert "503" in found.problem
    assert found.signals == ()
    assert not found.well


async def test_a_page_of_no_engine_is_told(tools: Instruments) -> None:
    async with an_engine(b"# TYPE node_load1 gauge\nnode_load1 0.5\n") as url:
        found = await examine(url, tools)

    assert "no_engine" in {it.code for it in found.findings}
    assert not found.well


async def drafted(tools: Instruments, *names: str) -> list[Examination]:
    found = []
    for name in names:
        async with an_engine(recorded(name)) as url:
            found.append(await examine(url, tools))
    return found


async def test_a_first_configuration_loads_and_has_a_tier_a_model(
    tools: Instruments, tmp_path: Path
) -> None:
    found = await drafted(
        tools, "vllm-0.32.0-load", "vllm-0.9.2.post2-load", "tgi-3.3-full-2025-09"
    )
    (tmp_path / "fusewire.yaml").write_text(draft(found))
    (tmp_path / "one.yaml").write_text(draft(found, tier="all"))

    config = load(tmp_path / "fusewire.yaml", {})
    one = load(tmp_path / "one.yaml", {})

    tiers = {name: [it.engine for it in tier.targets] for name, tier in config.tiers.items()}
    assert tiers == {"tiny": ["vllm", "vllm"], "chat": ["tgi"]}
    assert config.mode == "observe"
    assert [len(tier.targets) for tier in one.tiers.values()] == [3]
