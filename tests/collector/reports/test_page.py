"""The page of a report: whole in one file, without scripts, everything escaped, plots as images."""

from __future__ import annotations

import base64
import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from collector.reports import extra, page
from collector.reports.judging import Settings
from collector.reports.records import TableError
from collector.reports.report import DriftReport, report_of
from tests.collector.reports.tables import compared, quiet, write

NASTY = "<script>alert(1)</script> $x^2$ {{ 7 * 7 }} \u4e2d"


@pytest.fixture
def rendered(tmp_path: Path) -> tuple[DriftReport, str]:
    rng = np.random.default_rng(0)
    reference = {
        NASTY: np.exp(rng.normal(6, 2, 800)).tolist(),
        "kind": rng.choice(["a", "<b>bold</b>"], 800).tolist(),
        "odd": [np.inf, -np.inf] * 400,
    }
    current = {**reference, NASTY: np.exp(rng.normal(7.5, 2, 800)).tolist()}
    found = compared(
        write(tmp_path / "<i>ref.parquet", reference), write(tmp_path / "cur.parquet", current)
    )
    report = report_of(found, Settings())
    return report, page.render(report, found, progress=quiet)


class Tags(HTMLParser):
    """Collects tags and attributes of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_the_page_has_no_scripts_and_loads_nothing(rendered: tuple[DriftReport, str]) -> None:
    _, text = rendered
    tags = Tags()
    tags.feed(text)

    names = {tag for tag, _ in tags.found}
    assert names.isdisjoint({"script", "link", "iframe", "object", "i", "b", "form"})
    addresses = [value for _, one in tags.found for name, value in one.items()
                 if name in {"src", "href"}]  # fmt: skip
    assert addresses
    assert all(str(value).startswith("data:image/svg+xml;base64,") for value in addresses)
    assert not any(name.startswith("on") for _, one in tags.found for name in one)
    assert "&lt;script&gt;alert(1)&lt;/script&gt; $x^2$ {{ 7 * 7 }} \u4e2d" in text
    assert "&lt;b&gt;bold&lt;/b&gt;" in text
    assert "&lt;i&gt;ref.parquet" in text


def test_the_plots_are_pictures_that_hold_no_text_of_the_file(
    rendered: tuple[DriftReport, str],
) -> None:
    _, text = rendered

    packed = re.findall(r"base64,([A-Za-z0-9+/=]+)", text)

    assert len(packed) == 1  # of infinite values and categories there is none
    root = ET.fromstring(base64.b64decode(packed[0]))
    words = " ".join(root.itertext())
    assert "gate" in words
    assert "REF, 99 % band" in words
    assert "CUR minus REF" in words
    assert "alert" not in words
    assert len(packed[0]) < 200_000


def test_the_page_tells_what_the_report_tells(rendered: tuple[DriftReport, str]) -> None:
    report, text = rendered

    assert report.answer == "outside"
    assert report.features[0].feature == NASTY
    assert report.features[0].reason.partition(":")[2].strip() in text
    assert "outside the gate" in text
    assert DriftReport.model_validate_json(report.model_dump_json()) == report


def test_equal_reports_make_equal_pages(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", {"a": range(600)})
    pages = []
    for _ in range(2):
        found = compared(path, path)
        pages.append(page.render(report_of(found, Settings()), found, progress=quiet))

    assert pages[0] == pages[1]


def test_a_package_that_is_missing_is_named_with_the_way_to_get_it() -> None:
    with pytest.raises(TableError, match=r"plots needs no_such_thing, .* pip install 'fusewire"):
        extra.need("no_such_thing", "plots")
