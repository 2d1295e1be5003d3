"""The catalogue: every name, as promtool and the documentation see it."""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path

import pytest

from alerts.render import METRICS_PATH, render_metrics
from detectors.records import Histogram
from exporters.catalog import CATALOG, LABELS, Metric
from exporters.prometheus import MetricsPage
from tests.parts import need_program

ROOT = Path(__file__).parents[2]


def a_full_page() -> MetricsPage:
    """Return a page with every metric of the catalogue."""
    page = MetricsPage(monotonic=time.monotonic)
    for metric in CATALOG.values():
        labels = dict.fromkeys(metric.labels, "x")
        if metric.kind == "histogram":
            page.observe_histogram(metric, labels, Histogram((0.1, 1.0), (1.0, 2.0), 3.0, 4.5))
        elif metric.kind == "counter" and not metric.labels:
            page.add(metric, labels, 0)
        else:
            page.set(metric, labels, 1)
    return page


@pytest.mark.parametrize("metric", CATALOG.values(), ids=lambda metric: metric.name)
def test_every_metric_has_our_prefix_help_and_known_labels(metric: Metric) -> None:
    assert re.fullmatch(r"fusewire_[a-z0-9_]+", metric.name)
    assert metric.help.endswith((".", "…"))
    assert set(metric.labels) <= LABELS
    assert metric.name.endswith("_total") == (metric.kind == "counter")


def test_promtool_finds_nothing_wrong_with_a_page_of_every_metric() -> None:
    promtool = need_program("promtool", install="apt-get install prometheus")
    text, _ = a_full_page().render()
    assert {line.split()[2] for line in text.decode().splitlines() if line[:6] == "# TYPE"} == set(
        CATALOG
    )

    checked = subprocess.run(
        [promtool, "check", "metrics"], input=text, capture_output=True, check=False
    )

    assert checked.returncode == 0, checked.stderr.decode()
    assert checked.stderr == b""


def test_promtool_would_find_a_page_without_help() -> None:
    promtool = need_program("promtool", install="apt-get install prometheus")

    checked = subprocess.run(
        [promtool, "check", "metrics"], input=b"fusewire_x 1\n", capture_output=True, check=False
    )

    assert checked.returncode == 3


def test_the_page_of_metrics_in_the_docs_is_that_of_the_catalogue() -> None:
    written = (ROOT / METRICS_PATH).read_text()

    assert written == render_metrics(), "run 'make render' and read the difference"
