"""Pages that are no engine's: what they are, what they lack, and how they are configured."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from time import monotonic

import httpx2
import pytest
import yaml

from collector.config import load
from collector.doctor.draft import draft
from collector.doctor.examine import Examination, Instruments, examine
from collector.sources.gpu.dcgm import DcgmConfig
from collector.sources.host.kube_state import KubeStateConfig
from tests.collector.doctor.pages import an_engine
from tests.collector.sources.probes import page_text
from tests.collector.sources.servers import NOW

pytestmark = pytest.mark.anyio

FIXTURES = Path(__file__).parents[2] / "fixtures"
VLLM = FIXTURES / "metrics" / "vllm-0.32.0-load.txt"
KINDS = {
    "gpu/pages/dcgm-3.3-driver-version-label.txt": ("dcgm", "gpu_memory_used_bytes"),
    "gpu/pages/dcgm-mig-lowercase-names.txt": ("dcgm", "gpu_utilization_ratio"),
    "gpu/pages/dcgm-netdata-testdata.txt": ("dcgm", "gpu_utilization_ratio"),
    "kube/cadvisor.txt": ("cadvisor", "memory_working_set_bytes"),
    "kube/cadvisor-1.15-labels.txt": ("cadvisor", "memory_working_set_bytes"),
    "kube/kube-state.txt": ("kube_state", "replicas_max"),
    "kube/kube-state-v1.txt": ("kube_state", "restarts_total"),
    "neighbours/milvus-2.0-reconstructed.txt": ("milvus", "vector_search_seconds"),
    "neighbours/milvus-2.5-reconstructed.txt": ("milvus", "vector_deleted_ratio"),
    "neighbours/client-controller.txt": ("client", "client_rate_limited_total"),
    "neighbours/kafka-lag.txt": ("broker", "client_queue_size"),
    "neighbours/rabbitmq-per-object.txt": ("broker", "client_queue_size"),
}
GPU_PAGES_WITHOUT = sorted(
    {f"gpu/pages/{page.name}" for page in (FIXTURES / "gpu/pages").glob("*.txt")} - KINDS.keys()
)


async def no_sleep(_: float) -> None:
    """The pages do not move."""


@pytest.fixture
async def tools(anyio_backend: str) -> AsyncIterator[Instruments]:
    async with httpx2.AsyncClient(trust_env=False) as client:
        yield Instruments(client, lambda: NOW, monotonic, no_sleep)


async def examined(page: bytes, tools: Instruments) -> Examination:
    async with an_engine(page) as url:
        return await examine(url, tools)


def codes(found: Examination) -> list[str]:
    return [it.code for it in found.findings]


@pytest.mark.parametrize("page", KINDS)
async def test_every_recorded_page_is_known_and_its_line_of_yaml_can_be_configured(
    page: str, tools: Instruments, tmp_path: Path
) -> None:
    found = await examined((FIXTURES / page).read_bytes(), tools)

    kind, signal = KINDS[page]
    assert found.addition is not None
    assert (found.addition.kind, found.engine, found.well) == (kind, "", True)
    assert signal in {it.signal for it in found.signals if not it.missing}
    assert all(it.why for it in found.signals if it.missing)
    assert not any(it.needed for it in found.signals)
    assert not {"no_engine", "no_engine_data"} & set(codes(found))
    whole = {"url": "http://127.0.0.1:1"}
    added = yaml.safe_load(found.addition.line)
    target, tier = (added, {}) if "sources" in added else ({}, added)
    text = yaml.safe_dump({"tiers": {"chat": {"targets": [{**whole, **target}], **tier}}})
    (tmp_path / "fusewire.yaml").write_text(text)
    loaded = load(tmp_path / "fusewire.yaml", {}).tiers["chat"]
    assert [it.kind for it in loaded.targets[0].sources + tuple(loaded.neighbours.values())] == [
        kind
    ]
    assert f"{found.url}/metrics" in found.addition.line


@pytest.mark.parametrize("page", GPU_PAGES_WITHOUT)
async def test_a_gpu_page_without_what_is_read_says_what_to_export(
    page: str, tools: Instruments
) -> None:
    found = await examined((FIXTURES / page).read_bytes(), tools)

    assert found.addition is not None
    assert found.addition.kind == "dcgm"
    assert "dcgm_without_signals" in codes(found)
    assert not found.well


async def test_an_allocator_probe_is_known(tools: Instruments) -> None:
    found = await examined(page_text({"0": 3.0}).encode(), tools)

    assert found.addition is not None
    assert found.addition.line.startswith("sources: [{kind: allocator, ")


@pytest.mark.parametrize(
    "page",
    [
        b"# TYPE node_load1 gauge\nnode_load1 0.5\nprocess_resident_memory_bytes 5e9\n",
        b'container_memory_working_set_bytes{namespace="NOT A NAME",pod="\xff"} 7\n',
        b'kube_deployment_spec_replicas{namespace="",deployment="a"} 1\n',
    ],
    ids=["process", "no name", "no namespace"],
)
async def test_what_any_process_exports_is_no_kind(page: bytes, tools: Instruments) -> None:
    found = await examined(page, tools)

    assert found.addition is None
    assert "no_engine" in codes(found)
    assert not found.well


async def test_an_engine_that_shows_gpus_too_stays_an_engine(tools: Instruments) -> None:
    gpus = (FIXTURES / "gpu/pages/dcgm-3.3-driver-version-label.txt").read_bytes()

    found = await examined(VLLM.read_bytes() + gpus, tools)

    assert (found.engine, found.addition) == ("vllm", None)


async def test_a_pod_near_its_memory_limit_is_found_whichever_pod_is_told(
    tools: Instruments,
) -> None:
    page = (FIXTURES / "kube/cadvisor.txt").read_text()
    full = re.sub(r"(working_set_bytes\{container=\"tgi\".*/aaa\".*\}) \S+", r"\1 3.6e+09", page)
    small = (
        'container_memory_working_set_bytes{container="a",namespace="x",pod="small"} 95\n'
        'container_spec_memory_limit_bytes{container="a",namespace="x",pod="small"} 100\n'
    )

    calm = await examined(page.encode(), tools)
    near = await examined(full.encode(), tools)
    other = await examined((page + small).encode(), tools)

    assert "memory_limit_near_peak" not in codes(calm)
    (text,) = [it.text for it in near.findings if it.code == "memory_limit_near_peak"]
    assert text.startswith("pod tgi-0 in namespace serving uses 3.35 GiB of its memory limit of 4")
    (text,) = [it.text for it in other.findings if it.code == "memory_limit_near_peak"]
    assert text.startswith("pod small in namespace x uses")
    assert other.addition is not None
    assert 'pod: "tgi-0"' in other.addition.line


async def test_the_workload_with_gpus_is_told_and_every_autoscaler_is_judged(
    tools: Instruments,
) -> None:
    rows = [
        f'kube_deployment_spec_replicas{{namespace="kube",deployment="d{n}"}} 1\n'
        for n in range(40)
    ]
    stuck = (
        'kube_horizontalpodautoscaler_spec_max_replicas{namespace="kube",'
        'horizontalpodautoscaler="web"} 2\n'
        'kube_horizontalpodautoscaler_spec_min_replicas{namespace="kube",'
        'horizontalpodautoscaler="web"} 2\n'
    )
    page = "".join(rows[:20]) + (FIXTURES / "kube/kube-state.txt").read_text() + "".join(rows[20:])

    found = await examined(page.encode(), tools)
    of_web = await examined(stuck.encode() + (FIXTURES / "kube/kube-state.txt").read_bytes(), tools)

    assert found.addition is not None
    assert 'namespace: "serving", workload: "tgi"' in found.addition.line
    assert codes(found).count("hpa_at_max") == 1
    assert {"hpa_at_max", "hpa_min_equals_max"} <= set(codes(of_web))


async def found_of(tools: Instruments, *pages: str) -> list[Examination]:
    return [await examined((FIXTURES / page).read_bytes(), tools) for page in pages]


DCGM, KUBE = "gpu/pages/dcgm-netdata-testdata.txt", "kube/kube-state.txt"
CLIENT, MILVUS = "neighbours/client-controller.txt", "neighbours/milvus-2.5-reconstructed.txt"
ENGINE = "metrics/vllm-0.32.0-load.txt"


async def test_a_draft_with_one_target_has_the_others_as_its_sources_and_neighbours(
    tools: Instruments, tmp_path: Path
) -> None:
    found = await found_of(tools, DCGM, ENGINE, CLIENT, KUBE, MILVUS, CLIENT)
    (tmp_path / "fusewire.yaml").write_text(draft(found))

    (tier,) = load(tmp_path / "fusewire.yaml", {}).tiers.values()

    (target,) = tier.targets
    gpus, kube = target.sources
    assert isinstance(gpus, DcgmConfig)
    assert isinstance(kube, KubeStateConfig)
    assert (gpus.url, kube.workload) == (f"{found[0].url}/metrics", "tgi")
    assert sorted(tier.neighbours) == ["client", "client-2", "milvus"]


async def test_a_draft_with_several_targets_says_in_a_comment_what_to_add(
    tools: Instruments, tmp_path: Path
) -> None:
    found = await found_of(tools, ENGINE, ENGINE, DCGM, CLIENT)
    (tmp_path / "one.yaml").write_text(draft(found))
    other = await found_of(tools, "metrics/tgi-3.3-full-2025-09.txt")
    (tmp_path / "two.yaml").write_text(draft([*found, *other]))

    (tier,) = load(tmp_path / "one.yaml", {}).tiers.values()
    two = load(tmp_path / "two.yaml", {}).tiers

    assert [target.sources for target in tier.targets] == [(), ()]
    assert list(tier.neighbours) == ["client"]
    assert (
        "# dcgm found; add to the target that it belongs to:" in (tmp_path / "one.yaml").read_text()
    )
    assert [dict(it.neighbours) for it in two.values()] == [{}, {}]
    assert (
        "# client found; add to the tier that it belongs to:" in (tmp_path / "two.yaml").read_text()
    )


async def test_a_draft_without_an_engine_loads_and_says_what_is_missing(
    tools: Instruments, tmp_path: Path
) -> None:
    found = await found_of(tools, DCGM)
    (tmp_path / "fusewire.yaml").write_text(draft(found))

    (tier,) = load(tmp_path / "fusewire.yaml", {}).tiers.values()

    assert len(tier.targets) == 1
    assert "put an engine's url here" in (tmp_path / "fusewire.yaml").read_text()
