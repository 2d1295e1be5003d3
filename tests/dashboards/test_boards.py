"""The boards: what Grafana would refuse, hide or draw wrongly, checked without a Grafana."""

from __future__ import annotations

import itertools
import json
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from dashboards import render_dashboards, written_files
from dashboards.panels import GREY, NO_DATA, Query, render_board
from dashboards.tier import BoardSettings, tier_board
from detectors import default_detectors
from detectors.limit import LimitConfig
from exporters.catalog import CATALOG, LABELS
from tests.parts import need_program
from tests.programs import free_port, running
from tests.promql import catalogued, label_names, metric_names

ROOT = Path(__file__).parents[2]
BOARDS: Mapping[str, dict[str, Any]] = {
    name: json.loads(text) for name, text in render_dashboards().items()
}
# Units of Grafana that these boards use; an unknown one is shown as a suffix, not as an error.
UNITS = {"none", "short", "percentunit", "s", "reqps", "count:tok/s"}


def panels() -> list[dict[str, Any]]:
    found = [panel for board in BOARDS.values() for panel in board["panels"]]
    return [panel for panel in found if panel["type"] != "row"]


def expressions() -> list[str]:
    return [target["expr"] for panel in panels() for target in panel["targets"]]


def substituted(expr: str) -> str:
    """Return `expr` with Grafana's variables as one choice of a user would make them."""
    values = {"$__rate_interval": "1m0s", "$tier": "chat|code", "$target": ".*"}
    for name, value in values.items():
        expr = expr.replace(name, value)
    assert "$" not in expr, expr
    return expr


@pytest.mark.parametrize("path", [*written_files()])
def test_written_files_are_what_is_committed(path: str) -> None:
    assert (ROOT / path).read_text() == written_files()[path], "run 'make render'"


def test_the_same_settings_give_the_same_text() -> None:
    assert render_dashboards() == render_dashboards()


@pytest.mark.parametrize("name", BOARDS)
def test_the_sdk_reads_back_every_key(name: str) -> None:
    register_default_plugins()
    board = BOARDS[name]

    again = json.loads(JSONEncoder(sort_keys=True).encode(Dashboard.from_json(board)))

    assert list(lost(board, again)) == []


def lost(before: object, after: object, place: str = "") -> Iterator[str]:
    """Yield where `after` lacks or changes something of `before`; additions are fine."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key, value in before.items():
            yield from lost(value, after.get(key), f"{place}.{key}")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for number, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from lost(old, new, f"{place}[{number}]")
    elif before != after:
        yield f"{place}: {before!r} became {after!r}"


def test_the_round_trip_would_find_an_option_at_the_wrong_place() -> None:
    register_default_plugins()
    board = json.loads(render_dashboards()["tier.json"])
    lines = next(panel for panel in board["panels"] if panel["type"] == "timeseries")
    lines["options"]["spanNulls"] = True

    again = json.loads(JSONEncoder().encode(Dashboard.from_json(board)))

    assert [place for place in lost(board, again) if "spanNulls" in place]


@pytest.mark.parametrize("name", BOARDS)
def test_panels_stand_in_the_grid_and_not_on_one_another(name: str) -> None:
    places = [panel["gridPos"] for panel in BOARDS[name]["panels"]]

    for place in places:
        assert place["x"] >= 0
        assert place["x"] + place["w"] <= 24
    for one, other in itertools.combinations(places, 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        above = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or above, (one, other)


@pytest.mark.parametrize("name", BOARDS)
def test_ids_are_unique_and_positive_and_the_board_is_not_editable(name: str) -> None:
    board = BOARDS[name]
    ids = [panel["id"] for panel in board["panels"]]

    assert sorted(ids) == list(range(1, len(ids) + 1))
    assert board["editable"] is False
    assert re.fullmatch(r"fusewire-[a-z-]+", board["uid"])
    assert board["tags"] == ["fusewire"]


@pytest.mark.parametrize("name", BOARDS)
def test_variables_choose_several_or_all_from_a_metric_that_is_always_there(name: str) -> None:
    source, *queries = BOARDS[name]["templating"]["list"]

    assert (source["name"], source["label"], source["query"]) == (
        "datasource",
        "Data source",
        "prometheus",
    )
    assert [row["name"] for row in queries] == ["tier", "target"]
    for row in queries:
        assert row["multi"] is True
        assert row["includeAll"] is True
        assert row["allValue"] == ".*"
        assert row["refresh"] == 2
        assert row["datasource"]["uid"] == "${datasource}"
        assert row["query"].startswith("label_values(fusewire_up")


@pytest.mark.parametrize("panel", panels(), ids=lambda panel: panel["title"])
def test_a_panel_says_what_it_is_in_which_unit_and_of_which_metric(panel: dict[str, Any]) -> None:
    metric = panel["description"].rsplit(maxsplit=1)[-1]
    assert metric in CATALOG
    assert any(metric in target["expr"] for target in panel["targets"])
    assert len(panel["description"].split("\n\n")[0]) > 30
    assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
    assert panel["datasource"]["uid"] == "${datasource}"
    refs = [target["refId"] for target in panel["targets"]]
    assert len(set(refs)) == len(refs) >= 1
    assert all(target["datasource"]["uid"] == "${datasource}" for target in panel["targets"])


@pytest.mark.parametrize("panel", panels(), ids=lambda panel: panel["title"])
def test_no_data_is_grey_and_says_so(panel: dict[str, Any]) -> None:
    defaults = panel["fieldConfig"]["defaults"]

    assert defaults["noValue"] == NO_DATA
    assert defaults["mappings"][0] == {
        "type": "special",
        "options": {"match": "null+nan", "result": {"text": NO_DATA, "color": GREY}},
    }


def test_not_knowing_is_grey_in_every_picture_of_verdicts() -> None:
    texts = [
        mapping["options"]
        for panel in panels()
        for mapping in panel["fieldConfig"]["defaults"]["mappings"]
        if mapping["type"] == "value" and "-1" in mapping["options"]
    ]

    assert len(texts) == 2
    assert {row["-1"]["color"] for row in texts} == {GREY}


@pytest.mark.parametrize("expr", expressions())
def test_an_expression_names_only_what_the_catalogue_has(expr: str) -> None:
    if expr == "vector(1)":
        return
    metrics = {name: catalogued(name) for name in metric_names(expr)}

    assert metrics
    assert None not in metrics.values(), metrics
    allowed = {label for metric in metrics.values() if metric for label in metric.labels}
    assert label_names(expr) - {"le"} <= allowed <= LABELS


@pytest.mark.parametrize("expr", expressions())
def test_rates_use_grafanas_interval_and_counters_are_never_shown_raw(expr: str) -> None:
    assert re.findall(r"\[([^\]]+)\]", expr) in ([], ["$__rate_interval"])
    for name in metric_names(expr):
        metric = catalogued(name)
        if metric is not None and metric.kind != "gauge":
            assert re.search(rf"(rate|increase)\({name}", expr), expr
    if "histogram_quantile" in expr:
        assert "sum by (le" in expr


def test_a_percentile_says_which_in_title_and_legend() -> None:
    for panel in panels():
        for target in panel["targets"]:
            for quantile in re.findall(r"histogram_quantile\(([\d.]+)", target["expr"]):
                name = f"p{float(quantile) * 100:g}"
                assert name in panel["title"]
                assert name in target["legendFormat"]


def test_the_settings_reach_the_colours() -> None:
    text = render_board(tier_board(BoardSettings(0.5, 0.6)))

    steps = next(
        panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
        for panel in json.loads(text)["panels"]
        if panel["title"] == "Fullest KV cache"
    )
    assert [step["value"] for step in steps] == [None, 0.5, 0.6]


def test_the_default_colours_change_where_the_shipped_detector_does() -> None:
    (kv,) = [
        one
        for one in default_detectors()
        if isinstance(one, LimitConfig) and one.signal == "kv_cache_usage_ratio"
    ]

    assert BoardSettings() == BoardSettings(kv.clear, kv.trip)


@pytest.mark.parametrize("width", [10, 30])
def test_a_row_that_does_not_fill_its_lines_is_refused(width: int) -> None:
    board = tier_board(BoardSettings())
    row = board.rows[1]
    wrong = replace(row, panels=(replace(row.panels[0], width=width), *row.panels[1:]))

    with pytest.raises(ValueError, match="'What changed\\?': the widths of its panels must fill"):
        render_board(replace(board, rows=(wrong,)))


def test_a_limit_is_drawn_dashed() -> None:
    panel = next(panel for panel in panels() if panel["title"] == "KV cache in use")

    (override,) = panel["fieldConfig"]["overrides"]
    assert override["matcher"] == {"id": "byFrameRefID", "options": "B"}
    assert panel["targets"][1]["legendFormat"] == "raised at"
    styles = {row["id"]: row["value"] for row in override["properties"]}
    assert styles["custom.lineStyle"]["fill"] == "dash"
    assert Query("x").limit is False


@pytest.mark.slow
def test_a_real_prometheus_reads_every_expression(tmp_path: Path) -> None:
    program = need_program("prometheus", install="apt-get install prometheus")
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    config = tmp_path / "prometheus.yml"
    config.write_text("global: {scrape_interval: 15s}\n")
    command = [
        program,
        f"--config.file={config}",
        f"--storage.tsdb.path={tmp_path / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]

    def ask(route: str, query: str) -> int:
        asked = f"{url}/api/v1/{route}?{urllib.parse.urlencode({'query': query})}"
        try:
            with urllib.request.urlopen(asked, timeout=5) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    with running(command, ready=f"{url}/-/ready", log=tmp_path / "prometheus.log"):
        refused = {
            expr: (ask("format_query", substituted(expr)), ask("query", substituted(expr)))
            for expr in expressions()
        }
        wrong = ask("format_query", "sum by (le rate(x[1m])")

    assert set(refused.values()) == {(200, 200)}, refused
    assert wrong == 400
