"""The generated rules: promtool, the catalogue, a runbook and three cases for each alert."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import click
import pytest
import yaml

from alerts.render import RULES_PATH, RUNBOOKS_INDEX_PATH, written_files
from alerts.rules import ALERT_OF_CAUSE, AlertRule, RuleSettings, alert_rules, render_rules
from collector.cli.root import fusewire
from detectors import default_detectors
from detectors.limit import LimitConfig
from detectors.stalled import StalledConfig
from exporters.catalog import LABELS
from tests.parts import need_program
from tests.promql import catalogued, label_names, metric_names

ROOT = Path(__file__).parents[2]
CASES = Path(__file__).parent / "rules"
RUNBOOKS = ROOT / "docs" / "runbooks"
RULES = alert_rules(RuleSettings())
NAMES = [rule.name for rule in RULES]
SECTIONS = (
    *("Meaning", "Impact", "First three commands", "Stop the bleeding", "Find the cause"),
    *("What Fusewire did by itself", "When it lies"),
)
BASE = "curl -s http://127.0.0.1:9731"
ROUTES = ("/metrics", "/-/healthy", "/-/ready", "/v1/tiers", "/v1/verdicts", "/v1/state")


def promtool(*args: str | Path) -> subprocess.CompletedProcess[str]:
    program = need_program("promtool", install="apt-get install prometheus")
    return subprocess.run([program, *args], capture_output=True, text=True, check=False)


def test_promtool_finds_nothing_wrong_with_the_rules() -> None:
    checked = promtool("check", "rules", "--lint=all", "--lint-fatal", ROOT / RULES_PATH)

    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert f"{len(RULES)} rules found" in checked.stdout


@pytest.mark.parametrize("path", [*written_files()])
def test_written_files_are_what_is_committed(path: str) -> None:
    assert (ROOT / path).read_text() == written_files()[path], "run 'make render'"


def test_the_rules_pass_their_cases() -> None:
    tested = promtool("test", "rules", *sorted(CASES.glob("*.test.yaml")))

    assert tested.returncode == 0, tested.stdout + tested.stderr
    assert tested.stdout.count("SUCCESS") == len(RULES)


def test_a_wrong_case_would_fail(tmp_path: Path) -> None:
    case = (CASES / "FusewireDown.test.yaml").read_text()
    wrong = case.replace("../../../alerts", str(ROOT / "alerts")).replace("critical", "warning")
    (tmp_path / "wrong.test.yaml").write_text(wrong)

    assert promtool("test", "rules", tmp_path / "wrong.test.yaml").returncode == 1


@pytest.mark.parametrize("name", NAMES)
def test_every_alert_has_a_firing_a_quiet_and_a_no_data_case(name: str) -> None:
    cases = {
        case["name"]: case["alert_rule_test"]
        for case in yaml.safe_load((CASES / f"{name}.test.yaml").read_text())["tests"]
    }

    assert {"firing", "quiet", "no data"} <= cases.keys()
    assert any(row["exp_alerts"] for row in cases["firing"])
    assert all(not row["exp_alerts"] for row in cases["quiet"])
    assert {row["alertname"] for rows in cases.values() for row in rows} == {name}


def test_no_case_or_runbook_is_left_of_an_alert_that_is_gone() -> None:
    assert sorted(path.name.split(".")[0] for path in CASES.iterdir()) == sorted(NAMES)
    assert sorted(path.stem for path in RUNBOOKS.glob("*.md")) == sorted([*NAMES, "README"])
    assert set(ALERT_OF_CAUSE.values()) <= set(NAMES)


@pytest.mark.parametrize("rule", RULES, ids=NAMES)
def test_rules_name_only_what_the_catalogue_has(rule: AlertRule) -> None:
    queries = [rule.expr, *re.findall(r"`([^`]*)`", rule.description)]
    for query in queries:
        ours = metric_names(query) - {"up"}
        assert ours or rule.name == "FusewireDown"
        known = [catalogued(name) for name in ours]
        assert None not in known, ours
        allowed = {label for metric in known if metric for label in metric.labels}
        assert label_names(query) <= allowed | {"job", "up"}
        assert allowed <= LABELS


@pytest.mark.parametrize("rule", RULES, ids=NAMES)
def test_annotations_are_sentences_without_a_value_in_the_labels(rule: AlertRule) -> None:
    assert rule.summary.endswith(".")
    assert rule.description.endswith(".")
    (shown,) = [
        row
        for row in yaml.safe_load(render_rules(RuleSettings()))["groups"][0]["rules"]
        if row["alert"] == rule.name
    ]
    assert shown["labels"] == {"severity": rule.severity}
    assert shown["annotations"]["runbook_url"] == f"docs/runbooks/{rule.name}.md"


@pytest.mark.parametrize("name", NAMES)
def test_every_runbook_has_its_sections_in_order(name: str) -> None:
    text = (RUNBOOKS / f"{name}.md").read_text()

    assert text.startswith(f"# {name}\n")
    assert tuple(re.findall(r"^## (.+)$", text, re.MULTILINE)) == SECTIONS


@pytest.mark.parametrize("name", NAMES)
def test_a_runbook_starts_with_three_commands_that_exist(name: str) -> None:
    text = (RUNBOOKS / f"{name}.md").read_text()
    block = re.search(r"First three commands\n\n```\n(.*?)```", text, re.DOTALL)

    assert block is not None
    lines = block[1].splitlines()
    assert len(lines) == 3
    for line in lines:
        assert line.startswith("fusewire ") or line.removeprefix(BASE) in ROUTES, line


def test_commands_in_runbooks_exist_with_their_options() -> None:
    for path in RUNBOOKS.glob("*.md"):
        text = path.read_text()
        found = re.findall(r"`(fusewire [a-z][^`]*)`", text)
        found += re.findall(r"^(fusewire [a-z][^#\n]*)", text, re.MULTILINE)
        for line in found:
            parse(line)


def parse(line: str) -> None:
    """Let the real command line read `line`, without running it."""
    words = shlex.split(line)[1:]
    command: click.Command = fusewire
    context = click.Context(command)
    while isinstance(command, click.Group):
        name, command, words = command.resolve_command(context, words)  # type: ignore[assignment]
        context = click.Context(command, parent=context, info_name=name)
    command.make_parser(context).parse_args(args=words)


def test_an_option_that_does_not_exist_would_be_found() -> None:
    with pytest.raises(click.UsageError):
        parse("fusewire breaker open chat/a --until tomorrow")
    with pytest.raises(click.UsageError):
        parse("fusewire breaker explode")


@pytest.mark.parametrize("name", NAMES)
def test_a_runbook_names_only_metrics_of_the_catalogue(name: str) -> None:
    named = re.findall(r"`(fusewire_\w+)`", (RUNBOOKS / f"{name}.md").read_text())

    assert [metric for metric in named if catalogued(metric) is None] == []


def test_the_index_links_every_runbook() -> None:
    text = (ROOT / RUNBOOKS_INDEX_PATH).read_text()

    assert re.findall(r"\]\((\w+)\.md\)", text) == NAMES


def test_settings_reach_the_rules_and_the_same_settings_give_the_same_text() -> None:
    settings = RuleSettings(
        kv_cache_trip_ratio=0.9,
        stalled_detectors=("stalled", "my.stall"),
        breaker_open_seconds=600,
        job="watch",
        runbooks="https://docs.example/runbooks",
    )

    text = render_rules(settings)

    assert text == render_rules(settings)
    assert ">= 0.9 and" in text
    assert r'detector=~"stalled|my\\.stall"' in text
    assert "for: 600s" in text
    assert 'up{job="watch"}' in text
    assert "runbook_url: https://docs.example/runbooks/FusewireDown.md" in text


def test_rules_of_other_settings_are_rules_too(tmp_path: Path) -> None:
    settings = RuleSettings(stalled_detectors=("a.b", 'c"d'), window_seconds=120, job="o'job")
    (tmp_path / "other.rules.yaml").write_text(render_rules(settings))

    checked = promtool("check", "rules", "--lint-fatal", tmp_path / "other.rules.yaml")

    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("ratio", [0.0, -0.1, 1.01])
def test_a_threshold_that_is_no_ratio_is_refused(ratio: float) -> None:
    with pytest.raises(ValueError, match="expected a ratio above 0, to 1"):
        RuleSettings(kv_cache_trip_ratio=ratio)


def test_a_duration_below_a_second_is_refused() -> None:
    with pytest.raises(ValueError, match="expected durations of at least 1 second, got 0"):
        RuleSettings(window_seconds=0)


def test_the_default_thresholds_are_those_of_the_shipped_detectors() -> None:
    shipped = default_detectors()

    assert [
        one.trip for one in shipped if isinstance(one, LimitConfig) and one.name == "kv_cache"
    ] == [RuleSettings().kv_cache_trip_ratio]
    assert (
        tuple(one.name for one in shipped if isinstance(one, StalledConfig))
        == RuleSettings().stalled_detectors
    )
