"""The alert rules for Prometheus, generated from the catalogue and the detectors' own thresholds.

A rule is data here and YAML in `alerts/generated/` (`make render`). Its runbook is the page of the
same name in `docs/runbooks/`. Gauges are read over a short window, so that one failed scrape of
Fusewire neither fires nor clears anything.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import yaml

from alerts.reading_rules import (
    ALERT_OF_READING_CAUSE,
    CAUSE_ALERTS,
    CauseAlert,
    Severity,
)
from detectors.signals import REQUEST_SIGNALS, Side
from exporters.catalog import (
    ADMIT_RATIO,
    ALERT_ACTIVE,
    BREAKER_STATE,
    DELIVERY_UNCONFIRMED,
    JOURNAL_WRITABLE,
    LAST_EVALUATION,
    SIGNAL_ABSENT,
    VERDICT_LEVEL,
    signal_metric,
)

GROUP = "fusewire"
_LITERAL = re.compile(r"[.+*?()|\[\]{}^$\\]")  # what a regular expression would read otherwise
HEADER = (
    "# Written by 'fusewire render rules --write'; change alerts/rules.py or the configuration.\n"
)

ALERT_OF_CAUSE: Mapping[str, str] = MappingProxyType(
    {
        "input_drift": "FusewireInputDrift",
        "output_drift": "FusewireOutputDrift",
        "kv_cache_saturated": "LLMKVCacheSaturated",
        "engine_stalled": "LLMEngineStalled",
        "signals_unknown": "FusewireSignalsUnknown",
        **ALERT_OF_READING_CAUSE,
    }
)


@dataclass(frozen=True, slots=True)
class RuleSettings:
    """What the rules take from the configuration; the defaults are those of the detectors.

    `window` covers at least two scrapes of Fusewire's page by Prometheus; `job` names that scrape
    job. `stalled_detectors` are the names of detectors of the kind `stalled`: they know a cold
    engine from one that stands still, which a query cannot. `runbooks` is where the runbooks are
    published, without a slash at the end.
    """

    kv_cache_trip_ratio: float = 0.95
    stalled_detectors: tuple[str, ...] = ("stalled",)
    breaker_open_seconds: int = 300
    evaluation_stale_seconds: int = 60
    unconfirmed_seconds: int = 30
    window_seconds: int = 60
    job: str = "fusewire"
    runbooks: str = "docs/runbooks"

    def __post_init__(self) -> None:
        if not 0 < self.kv_cache_trip_ratio <= 1:
            msg = f"kv_cache_trip_ratio {self.kv_cache_trip_ratio}: expected a ratio above 0, to 1"
            raise ValueError(msg)
        durations = (
            *(self.breaker_open_seconds, self.evaluation_stale_seconds),
            *(self.unconfirmed_seconds, self.window_seconds),
        )
        if min(durations) < 1:
            msg = f"rule settings: expected durations of at least 1 second, got {min(durations)}"
            raise ValueError(msg)


@dataclass(frozen=True, slots=True)
class AlertRule:
    """One alert rule; `keep_seconds` is how long it still fires when the condition is over."""

    name: str
    expr: str
    severity: Severity
    summary: str
    description: str
    for_seconds: int = 0
    keep_seconds: int = 0


def alert_rules(settings: RuleSettings) -> tuple[AlertRule, ...]:
    """Return every alert rule, in the order of the file."""
    return (
        _drift("FusewireInputDrift", "input"),
        _drift("FusewireOutputDrift", "output"),
        _kv_cache(settings),
        _stalled(settings),
        *(_of_cause(alert, settings) for alert in CAUSE_ALERTS),
        _breaker_open(settings),
        _signals_unknown(settings),
        *_self_monitoring(settings),
    )


def render_rules(settings: RuleSettings) -> str:
    """Return the rule file as YAML, the same text for the same settings."""
    rules = [_as_yaml(rule, settings) for rule in alert_rules(settings)]
    content = {"groups": [{"name": GROUP, "interval": "15s", "rules": rules}]}
    return HEADER + yaml.safe_dump(content, sort_keys=False, width=10_000, allow_unicode=True)


def _as_yaml(rule: AlertRule, settings: RuleSettings) -> dict[str, object]:
    shown: dict[str, object] = {
        "alert": rule.name,
        "expr": rule.expr,
        "for": f"{rule.for_seconds}s",
    }
    if rule.keep_seconds:
        shown["keep_firing_for"] = f"{rule.keep_seconds}s"
    shown["labels"] = {"severity": rule.severity}
    shown["annotations"] = {
        "summary": rule.summary,
        "description": rule.description,
        "runbook_url": f"{settings.runbooks}/{rule.name}.md",
    }
    return shown


def _drift(name: str, side: Side) -> AlertRule:
    """Return the rule of one side; a drift has lasted when its verdict says so: no `for` on top."""
    signals = "|".join(row.name for row in REQUEST_SIGNALS if row.side == side)
    selector = f'{VERDICT_LEVEL.name}{{signal=~"{signals}"}}'
    listed = (
        f"max by (segment, target, signal) ({VERDICT_LEVEL.name}"
        f'{{tier=%q, signal=~"{signals}"}}) >= 1'
    )
    subject = "what comes in" if side == "input" else "what the model answers"
    return AlertRule(
        name=name,
        expr=f"max by (tier) ({selector}) >= 1",
        severity="warning",
        keep_seconds=300,
        summary=f"Tier {{{{ $labels.tier }}}}: {subject} differs from the baseline.",
        description=(
            f"Beyond the baseline:{{{{ range printf `{listed}` $labels.tier | query "
            '| sortByLabel "signal" }} {{ .Labels.signal }}{{ with .Labels.segment }} in '
            "segment {{ . }}{{ end }}{{ with .Labels.target }} at target {{ . }}{{ end }};"
            "{{ end }} level {{ $value }} (1 warning, 2 critical)."
        ),
    )


def _kv_cache(settings: RuleSettings) -> AlertRule:
    window = f"[{settings.window_seconds}s]"
    usage = signal_metric("kv_cache_usage_ratio").name
    waiting = signal_metric("requests_waiting").name
    trip = f"{settings.kv_cache_trip_ratio:g}"
    return AlertRule(
        name="LLMKVCacheSaturated",
        expr=(
            f"min_over_time({usage}{window}) >= {trip} "
            f"and on (tier, target) max_over_time({waiting}{window}) > 0"
        ),
        severity="critical",
        for_seconds=60,
        keep_seconds=120,
        summary="Target {{ $labels.target }} of tier {{ $labels.tier }}: KV cache is full.",
        description=(
            f"{{{{ $value | humanizePercentage }}}} of the KV cache is in use (trip at {trip}) "
            "while requests wait; the engine preempts and queues."
        ),
    )


def _stalled(settings: RuleSettings) -> AlertRule:
    names = "|".join(_LITERAL.sub(r"\\\g<0>", name) for name in settings.stalled_detectors)
    selector = f"{VERDICT_LEVEL.name}{{detector=~{_quoted(names)}}}[{settings.window_seconds}s]"
    return AlertRule(
        name="LLMEngineStalled",
        expr=f"max by (tier, target) (max_over_time({selector})) == 2",
        severity="critical",
        keep_seconds=60,
        summary="Target {{ $labels.target }} of tier {{ $labels.tier }}: the engine stands still.",
        description=(
            "Requests are inside and not one token is made, although its metrics page answers."
        ),
    )


def _of_cause(alert: CauseAlert, settings: RuleSettings) -> AlertRule:
    """Return the rule on Fusewire's own alert of these causes."""
    causes = "|".join(alert.causes)
    selector = f'{ALERT_ACTIVE.name}{{cause=~"{causes}"}}[{settings.window_seconds}s]'
    return AlertRule(
        name=alert.name,
        expr=f"max by (tier, cause) (max_over_time({selector})) >= {alert.level}",
        severity=alert.severity,
        for_seconds=alert.for_seconds,
        keep_seconds=60,
        summary=f"Tier {{{{ $labels.tier }}}}: {alert.summary}",
        description=f"{alert.description} See 'fusewire status'.",
    )


def _quoted(text: str) -> str:
    """Return `text` as a string of PromQL, whose escapes are those of JSON."""
    return json.dumps(text, ensure_ascii=False)


def _breaker_open(settings: RuleSettings) -> AlertRule:
    window = f"[{settings.window_seconds}s]"
    state, ratio = BREAKER_STATE.name, ADMIT_RATIO.name
    return AlertRule(
        name="FusewireBreakerOpen",
        expr=(
            f"max_over_time({state}{window}) == 2 "
            f"or on (tier, target) max_over_time({ratio}{window}) < 1"
        ),
        severity="warning",
        for_seconds=settings.breaker_open_seconds,
        keep_seconds=60,
        summary=(
            "Tier {{ $labels.tier }}{{ with $labels.target }}, target {{ . }}{{ end }}: "
            "the breaker withholds traffic."
        ),
        description=(
            f"It has been open or shedding for more than {settings.breaker_open_seconds} s; "
            "see the cause with 'fusewire breaker list'."
        ),
    )


def _signals_unknown(settings: RuleSettings) -> AlertRule:
    window = f"[{settings.window_seconds}s]"
    active, absent = ALERT_ACTIVE.name, SIGNAL_ABSENT.name
    listed = f"count by (reason) ({absent}{{tier=%q}})"
    return AlertRule(
        name="FusewireSignalsUnknown",
        expr=f'max by (tier) (max_over_time({active}{{cause="signals_unknown"}}{window})) >= 1',
        severity="warning",
        keep_seconds=60,
        summary="Tier {{ $labels.tier }}: wanted signals have been unknown for too long.",
        description=(
            f"Absent signals by reason:{{{{ range printf `{listed}` $labels.tier | query "
            '| sortByLabel "reason" }} {{ .Value }} {{ .Labels.reason }};{{ end }} '
            "what is unknown is not judged, and states are held as they were."
        ),
    )


def _self_monitoring(settings: RuleSettings) -> tuple[AlertRule, ...]:
    window = f"[{settings.window_seconds}s]"
    seen = f"up{{job={_quoted(settings.job)}}}"
    stale, unconfirmed = settings.evaluation_stale_seconds, settings.unconfirmed_seconds
    return (
        AlertRule(
            name="FusewireDown",
            expr=f"absent({seen}) or sum by (job) ({seen}) == 0",
            severity="critical",
            for_seconds=120,
            summary="Fusewire is not being scraped.",
            description=(
                "Nothing watches the tiers. Gateways admit everything once the leases have ended."
            ),
        ),
        AlertRule(
            name="FusewireEvaluationStale",
            expr=f"time() - max by (tier) ({LAST_EVALUATION.name}) > {stale}",
            severity="critical",
            for_seconds=60,
            summary="Tier {{ $labels.tier }}: Fusewire runs but does not judge.",
            description=(
                f"The last verdict is {{{{ $value | humanizeDuration }}}} old (limit {stale} s)."
            ),
        ),
        AlertRule(
            name="FusewireActionNotConfirmed",
            expr=f"max by (gateway) ({DELIVERY_UNCONFIRMED.name}) > {unconfirmed}",
            severity="critical",
            for_seconds=60,
            summary="Gateway {{ $labels.gateway }} has not confirmed what it was told.",
            description=(
                "The oldest unconfirmed state is {{ $value | humanizeDuration }} old "
                f"(limit {unconfirmed} s); traffic may still flow to an ejected target."
            ),
        ),
        AlertRule(
            name="FusewireJournalNotWritable",
            expr=f"max_over_time({JOURNAL_WRITABLE.name}{window}) == 0",
            severity="critical",
            keep_seconds=60,
            summary="Fusewire cannot write its journal.",
            description="No breaker opens and no lease is renewed beyond its end until it can.",
        ),
    )
