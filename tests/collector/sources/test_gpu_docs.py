"""What docs/sources/gpu.md says: its file loads, and its tables name everything there is."""

from __future__ import annotations

import re
from pathlib import Path

from collector.config import load
from collector.sources.gpu import dcgm_tidy, gpu_owner, gpu_states
from collector.sources.gpu.dcgm import DcgmConfig
from collector.sources.gpu.nvml import OFFERED, NvmlConfig

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "sources" / "gpu.md").read_text()


def test_the_file_on_the_page_loads_as_it_stands(tmp_path: Path) -> None:
    (snippet,) = re.findall(r"```yaml\n(.*?)```", PAGE, flags=re.DOTALL)
    (tmp_path / "fusewire.yaml").write_text(snippet)

    config = load(tmp_path / "fusewire.yaml", {})

    one, two, three = (target.sources[0] for target in config.tiers["chat"].targets)
    assert isinstance(one, NvmlConfig)
    assert one.devices == ("0", "1")
    assert isinstance(two, NvmlConfig)
    assert two.processes.command == "vllm serve .*--port 8001"
    assert isinstance(three, DcgmConfig)
    assert three.match == {"namespace": "inference", "pod": "chat-c-0"}


def test_a_pid_file_beside_the_configuration_is_found_from_anywhere(tmp_path: Path) -> None:
    (tmp_path / "fusewire.yaml").write_text(
        "tiers: {chat: {targets: [{url: http://127.0.0.1:8000, "
        "sources: [{kind: nvml, processes: {pid_file: run/vllm.pid}}]}]}}"
    )

    config = load(tmp_path / "fusewire.yaml", {})

    source = config.tiers["chat"].targets[0].sources[0]
    assert isinstance(source, NvmlConfig)
    assert source.processes.pid_file == tmp_path / "run" / "vllm.pid"


def test_every_signal_and_every_finding_is_on_the_page() -> None:
    rooms = (Path(str(module.__file__)) for module in (gpu_owner, gpu_states, dcgm_tidy))
    code = "".join(room.read_text() for room in rooms)

    findings = set(re.findall(r'Finding\(\s*"(\w+)"', code)) | {"gpu_driver_hung"}

    assert len(findings) > 10
    assert {it for it in {*findings, *OFFERED} if f"`{it}`" not in PAGE} == set()
