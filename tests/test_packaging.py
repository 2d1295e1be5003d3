"""The five root package names belong to us alone (docs/adr/0001)."""

from __future__ import annotations

import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
NAMES = ("collector", "detectors", "exporters", "dashboards", "alerts")


@pytest.mark.parametrize("name", NAMES)
def test_nobody_but_fusewire_installs_a_root_package(name: str) -> None:
    owners = set(packages_distributions().get(name, []))

    assert owners <= {"fusewire"}


def test_the_lock_has_hashes_and_names_no_registry() -> None:
    text = (ROOT / "requirements.lock").read_text()

    pins = [line for line in text.splitlines() if "==" in line]
    assert len(pins) > 50
    assert all(line.endswith("\\") for line in pins), "a pin without hashes"
    assert "://" not in text
    assert "--index" not in text
    assert "--find-links" not in text


def test_every_dependency_is_pinned_and_explained() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = [*project["project"]["dependencies"], *project["dependency-groups"]["dev"]]
    names = {requirement.split("=")[0].split(">")[0].split("[")[0] for requirement in wanted}

    lock = (ROOT / "requirements.lock").read_text()
    explained = (ROOT / "docs" / "dependencies.md").read_text()

    def told(name: str) -> bool:
        short = name.removeprefix("pytest-") if name.startswith("pytest-") else name
        return short in explained

    assert {name for name in names if f"\n{name}==" not in f"\n{lock}"} == set()
    assert {name for name in names if not told(name)} == set()
