"""The documentation says what the code does: routes, links, headings of the change log."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from fastapi.routing import APIRoute

from collector.api import ROUTERS

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md")])
LINK = re.compile(r"\]\(([^)\s]+)\)")


def test_every_route_is_documented_and_every_documented_route_exists() -> None:
    served = {"GET /"}
    for route in (route for router in ROUTERS for route in router.routes):
        assert isinstance(route, APIRoute)
        path = route.path.replace("{rest:path}", "{rest}")
        methods = route.methods or set()
        served |= {f"ANY {path}"} if len(methods) > 2 else {f"{m} {path}" for m in methods}
    table = (ROOT / "docs" / "api.md").read_text()
    documented = set(re.findall(r"^\| `([A-Z]+ /[^`]*)` \|", table, flags=re.MULTILINE))

    assert served
    assert documented == served


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    broken = []
    for link in LINK.findall(page.read_text()):
        target = link.partition("#")[0]
        if target and "://" not in target and not (page.parent / target).exists():
            broken.append(link)

    assert broken == []


def test_the_change_log_has_an_unreleased_part_on_top() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()

    assert re.findall(r"^## \[(.+?)\]", text, flags=re.MULTILINE)[0] == "Unreleased"


def test_the_two_commands_of_the_readme_are_make_targets() -> None:
    readme = (ROOT / "README.md").read_text()
    makefile = (ROOT / "Makefile").read_text()

    for target in re.findall(r"^make (\w+)", readme, flags=re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target
