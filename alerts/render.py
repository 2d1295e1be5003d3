"""The files that `fusewire render rules --write` writes, by their path in the repository."""

from __future__ import annotations

from collections.abc import Mapping

from alerts.rules import AlertRule, RuleSettings, alert_rules, render_rules
from exporters.catalog import CATALOG

RULES_PATH = "alerts/generated/fusewire.rules.yaml"
RUNBOOKS_INDEX_PATH = "docs/runbooks/README.md"
METRICS_PATH = "docs/metrics.md"
_NOTE = "<!-- Written by 'fusewire render rules --write'. -->"


def written_files(settings: RuleSettings | None = None) -> Mapping[str, str]:
    """Return the rule file, the index of runbooks and the list of metrics, path to content."""
    settings = settings or RuleSettings()
    return {
        RULES_PATH: render_rules(settings),
        RUNBOOKS_INDEX_PATH: render_runbooks_index(alert_rules(settings)),
        METRICS_PATH: render_metrics(),
    }


def render_runbooks_index(rules: tuple[AlertRule, ...]) -> str:
    """Return the index page of the runbooks."""
    rows = [f"| [{rule.name}]({rule.name}.md) | {rule.severity} | {_for(rule)} |" for rule in rules]
    table = "\n".join(["| Alert | Severity | Fires after |", "|---|---|---|", *rows])
    return f"{_NOTE}\n\n# Runbooks\n\nOne page for each alert of `{RULES_PATH}`.\n\n{table}\n"


def _for(rule: AlertRule) -> str:
    return f"{rule.for_seconds} s" if rule.for_seconds else "at once"


def render_metrics() -> str:
    """Return the page that lists every metric of the catalogue."""
    rows = [
        f"| `{metric.name}` | {metric.kind} | {', '.join(metric.labels) or '-'} | {metric.help} |"
        for metric in CATALOG.values()
    ]
    table = "\n".join(["| Metric | Type | Labels | Meaning |", "|---|---|---|---|", *rows])
    text = (
        "Everything that `GET /metrics` may show. Signals of a target have one name for every "
        "engine.\nAn empty label is a missing label: a tier's own breaker has no `target`. A "
        "number that is not known\nhas no series; why it is absent stands in "
        "`fusewire_signal_absent`.\n\nTo add one, add it to `exporters/catalog.py`."
    )
    return f"{_NOTE}\n\n# Metrics\n\n{text}\n\n{table}\n"
