"""What docs/sources/engines.md says: its file loads, and its tables name everything there is."""

from __future__ import annotations

import re
from pathlib import Path

from collector.config import load
from collector.sources import polling
from collector.sources.engine import measure, oddities, quality, quantiles, workers
from collector.sources.engine.engines import ENGINES

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "sources" / "engines.md").read_text()


def test_the_file_on_the_page_loads_as_it_stands(tmp_path: Path) -> None:
    (snippet,) = re.findall(r"```yaml\n(.*?)```", PAGE, flags=re.DOTALL)
    (tmp_path / "fusewire.yaml").write_text(snippet)

    targets = load(tmp_path / "fusewire.yaml", {}).tiers["chat"].targets

    assert [target.engine for target in targets] == ["auto", "triton", "trtllm", "tgi"]
    assert targets[3].batch_token_budget == 32_000


def test_every_engine_can_be_configured_and_is_on_the_page(tmp_path: Path) -> None:
    for engine in ENGINES:
        text = f"tiers: {{chat: {{targets: [{{url: http://a, engine: {engine.name}}}]}}}}"
        (tmp_path / "fusewire.yaml").write_text(text)

        assert load(tmp_path / "fusewire.yaml", {}).tiers["chat"].targets[0].engine == engine.name
        assert f"`{engine.name}`" in PAGE


def test_every_finding_is_on_the_page() -> None:
    rooms = (
        Path(str(room.__file__)).read_text()
        for room in (measure, oddities, polling, quality, quantiles, workers)
    )
    told = set(re.findall(r'Finding\(\s*"(\w+)"', "".join(rooms)))

    listed = set(re.findall(r"^\| `(\w+)` \| [a-z]", PAGE, flags=re.MULTILINE))

    assert len(told) > 15
    assert told <= listed
    assert listed - told <= {engine.name for engine in ENGINES}
