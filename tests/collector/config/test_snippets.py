"""Every configuration that the docs show loads."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from collector.config import load

ROOT = Path(__file__).parents[3]
PAGES = (ROOT / "docs" / "discovery.md", *sorted((ROOT / "docs" / "sources").glob("*.md")))
SNIPPETS = [
    pytest.param(found.group(1), id=f"{page.stem}-{number}")
    for page in PAGES
    for number, found in enumerate(re.finditer(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL))
    if re.search(r"^tiers:", found.group(1), re.MULTILINE)
]


@pytest.mark.parametrize("text", SNIPPETS)
def test_a_configuration_in_the_docs_loads(text: str, tmp_path: Path) -> None:
    file = tmp_path / "fusewire.yaml"
    file.write_text(text)
    for name in set(re.findall(r"\S*_file: *([^\s,}]+)", text)):
        path = tmp_path / name.strip("'\"")
        if not path.is_absolute() or tmp_path in path.parents:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("Placeholder:of-a-secret")  # a token, and a header, too

    config = load(file, {})

    assert config.tiers


def test_every_source_page_shows_a_configuration() -> None:
    shown = {str(param.id).rpartition("-")[0] for param in SNIPPETS}

    assert shown >= {page.stem for page in PAGES if page.stem != "README"}
