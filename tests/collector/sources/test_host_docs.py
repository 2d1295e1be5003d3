"""What the pages about this machine, Kubernetes and logs say: files that load, full tables."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from collector.config import load
from collector.sources.host import cadvisor, cgroup, kube_state, process_memory
from collector.sources.logs import lines as log_lines
from collector.sources.logs.patterns import EVENTS

ROOT = Path(__file__).parents[3]
PAGES = {
    name: (ROOT / f"docs/sources/{name}.md").read_text() for name in ("host", "kubernetes", "logs")
}
MODULES = {
    "host": ("host/cgroup", "host/kills", "host/process_memory"),
    "kubernetes": ("host/cadvisor", "host/kills", "host/kube_pods", "host/kube_scaling"),
    "logs": ("logs/lines", "logs/crosscheck"),
}


@pytest.mark.parametrize("name", PAGES)
def test_the_file_on_a_page_loads_as_it_stands(name: str, tmp_path: Path) -> None:
    (snippet,) = re.findall(r"```yaml\n(.*?)```", PAGES[name], flags=re.DOTALL)
    (tmp_path / "fusewire.yaml").write_text(snippet)

    tier = load(tmp_path / "fusewire.yaml", {}).tiers["chat"]

    kinds: set[object] = {type(it) for target in tier.targets for it in target.sources}
    kinds |= {type(it) for it in tier.neighbours.values()}
    assert (
        kinds
        == {
            "host": {cgroup.CgroupConfig, process_memory.ProcessConfig},
            "kubernetes": {cadvisor.CadvisorConfig, kube_state.KubeStateConfig},
            "logs": {log_lines.LogConfig},
        }[name]
    )


@pytest.mark.parametrize("name", PAGES)
def test_every_finding_is_on_its_page(name: str) -> None:
    rooms = (ROOT / f"collector/sources/{module}.py" for module in MODULES[name])
    code = "".join(room.read_text() for room in rooms)

    findings = set(re.findall(r'Finding\(\s*"(\w+)"', code))

    assert len(findings) >= 2
    assert {it for it in findings if f"`{it}`" not in PAGES[name]} == set()


def test_every_reason_and_every_signal_is_on_its_page() -> None:
    reasons = {row.code for row in EVENTS} - {"xid"}
    host = cgroup.OFFERS | process_memory.OFFERS
    cluster = cadvisor.OFFERS | kube_state.POD_SIGNALS | kube_state.SCALING_SIGNALS

    assert {it for it in reasons if f"`{it}`" not in PAGES["logs"]} == set()
    assert {it for it in host if f"`{it}" not in PAGES["host"]} == set()
    assert {it for it in cluster if f"`{it}" not in PAGES["kubernetes"]} == set()


def test_a_log_beside_the_configuration_is_found_from_anywhere(tmp_path: Path) -> None:
    (tmp_path / "fusewire.yaml").write_text(
        "tiers: {chat: {targets: [{url: http://127.0.0.1:8000, "
        "sources: [{kind: log, path: run/a.log, files: [b.log]}]}]}}"
    )

    source = load(tmp_path / "fusewire.yaml", {}).tiers["chat"].targets[0].sources[0]

    assert isinstance(source, log_lines.LogConfig)
    assert (source.path, source.files) == (tmp_path / "run/a.log", (tmp_path / "b.log",))
