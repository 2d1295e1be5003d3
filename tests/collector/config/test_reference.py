"""`docs/configuration.md` says what the models say."""

from __future__ import annotations

from pathlib import Path

from collector.config.models import Config
from collector.config.reference import configuration_page, sections

PAGE = Path(__file__).parents[3] / "docs" / "configuration.md"


def test_the_page_is_what_the_models_say() -> None:
    remedy = "run: fusewire render reference --write"

    assert PAGE.read_text(encoding="utf-8") == configuration_page(), remedy


def test_every_key_is_documented_with_a_meaning() -> None:
    silent = [
        f"{path}.{name}"
        for path, model in sections(Config, "")
        for name, field in model.model_fields.items()
        if not field.description and name != "kind"
    ]

    assert silent == []


def test_the_page_names_every_key_of_every_section() -> None:
    page = configuration_page()

    for path, model in sections(Config, ""):
        assert f"## `{path}`" in page or path == ""
        for name in model.model_fields:
            assert f"| `{name}` |" in page
