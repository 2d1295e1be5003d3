"""`docs/detectors.md` says what the detectors' docstrings and settings say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from pydantic import BaseModel

from collector.cli.root import fusewire
from collector.config.detector_page import detector_of, detectors_page, kinds
from collector.config.reference import sections

PAGE = Path(__file__).parents[3] / "docs" / "detectors.md"
KINDS = {str(config.model_fields["kind"].default): config for config in kinds()}


def section(kind: str) -> str:
    found = re.search(rf"^## {kind}\n(.*?)(?=^## |\Z)", detectors_page(), re.DOTALL | re.MULTILINE)
    assert found is not None
    return found[1]


def test_the_page_is_what_the_detectors_say() -> None:
    remedy = "run: fusewire render reference --write"

    assert PAGE.read_text(encoding="utf-8") == detectors_page(), remedy


def test_the_page_is_written_with_the_other_pages_of_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    done = CliRunner().invoke(fusewire, ["render", "reference", "--write"])

    assert done.exit_code == 0
    assert (tmp_path / "docs" / "detectors.md").read_text(encoding="utf-8") == detectors_page()


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_detector_states_inputs_smallest_change_and_trade_offs(kind: str) -> None:
    text = section(kind)

    assert re.search(r"^- \*\*Inputs?\*\*: .", text, re.MULTILINE)
    assert re.search(r"^- \*\*Smallest change seen\*\*: .", text, re.MULTILINE)
    assert re.search(r"^\*\*Trade-offs\*\*: .", text, re.MULTILINE)
    assert ">>>" in text
    assert "*Trade-offs*:" in (detector_of(KINDS[kind]).__doc__ or "")


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_parameter_is_listed_and_every_length_of_time_has_a_range(kind: str) -> None:
    text = section(kind)
    for path, model in sections(KINDS[kind], ""):
        for name in model.model_fields.keys() - {"kind"}:
            key = f"{path}.{name}" if path else name
            (row,) = re.findall(rf"^\| `{re.escape(key)}` \|.*$", text, re.MULTILINE)
            assert "_seconds" not in name or re.search(r"\| (above|from) \d", row), row


def test_a_detector_without_its_parts_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    config: type[BaseModel] = KINDS["down"]
    monkeypatch.setattr(detector_of(config), "__doc__", "Raises now and then.")

    assert "Smallest change seen" not in section("down")
