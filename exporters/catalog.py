"""Every metric that Fusewire exports, once: name, type, help and labels.

The exporter refuses names that are not here, and rules and boards are built from these constants,
so a query cannot name a metric that does not exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, TypeAlias

from detectors.signals import READING_SIGNALS, Kind, Signal

MetricKind: TypeAlias = Literal["gauge", "counter", "histogram"]
PREFIX = "fusewire_"
LABELS = frozenset(
    {
        "tier",
        "target",
        "segment",
        "signal",
        "detector",
        "source",
        "gateway",
        "cause",
        "reason",
        "device",  # docs/adr/0002
    }
)


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric; `name` as exposed (counters with `_total`, histograms without `_bucket`)."""

    name: str
    kind: MetricKind
    help: str
    labels: tuple[str, ...] = ()


def _of_signal(signal: Signal) -> Metric:
    """Return the metric of a canonical reading signal: one a target, the same for all engines."""
    kinds: Mapping[Kind, MetricKind] = {
        Kind.GAUGE: "gauge",
        Kind.COUNTER: "counter",
        Kind.HISTOGRAM: "histogram",
    }
    labels = ("tier", "target", *((signal.label,) if signal.label else ()))
    return Metric(PREFIX + signal.name, kinds[signal.kind], signal.help, labels)


_VERDICT = ("tier", "target", "segment", "signal", "detector")
_BREAKER = ("tier", "target")

VERDICT_LEVEL = Metric(
    "fusewire_verdict_level", "gauge", "Verdict: -1 unknown, 0 ok, 1 warning, 2 critical.", _VERDICT
)
STATISTIC = Metric("fusewire_statistic", "gauge", "Statistic behind the verdict.", _VERDICT)
EFFECT = Metric("fusewire_effect", "gauge", "Effect size behind the verdict.", _VERDICT)
THRESHOLD = Metric("fusewire_threshold", "gauge", "Where the verdict is raised.", _VERDICT)
BREAKER_STATE = Metric(
    "fusewire_breaker_state", "gauge", "Breaker: 0 closed, 1 half_open, 2 open.", _BREAKER
)
ADMIT_RATIO = Metric(
    "fusewire_admit_ratio", "gauge", "Share of requests admitted, override included.", _BREAKER
)
OVERRIDE_ACTIVE = Metric(
    "fusewire_override_active", "gauge", "1 while a person's override is in force.", _BREAKER
)
TRANSITIONS = Metric(
    "fusewire_breaker_transitions_total",
    "counter",
    "Transitions of a breaker, by what it went to.",
    (*_BREAKER, "reason"),
)
SUPPRESSED = Metric(
    "fusewire_breaker_suppressed_total",
    "counter",
    "Trips that a guard refused, by guard.",
    (*_BREAKER, "reason"),
)
LEASE_EXPIRES = Metric(
    "fusewire_breaker_lease_expires_timestamp_seconds",
    "gauge",
    "When the lease of a breaker that withholds traffic ends, unix time.",
    _BREAKER,
)
ALERT_ACTIVE = Metric(
    "fusewire_alert_active",
    "gauge",
    "Rolled-up alert of a tier and cause: 0 quiet, 1 warning, 2 critical.",
    ("tier", "cause"),
)
SIGNAL_AGE = Metric(
    "fusewire_signal_age_seconds",
    "gauge",
    "Age of the newest value of a signal.",
    ("tier", "target", "signal"),
)
LAST_EVALUATION = Metric(
    "fusewire_last_evaluation_timestamp_seconds", "gauge", "When a tier was last judged.", ("tier",)
)
SIGNAL_ABSENT = Metric(
    "fusewire_signal_absent",
    "gauge",
    "1 where a wanted signal has no value, by reason.",
    ("tier", "target", "signal", "reason"),
)
BASELINE_REQUESTS = Metric(
    "fusewire_baseline_requests", "gauge", "Requests in the baseline in use.", ("tier", "segment")
)
BASELINE_PROGRESS = Metric(
    "fusewire_baseline_progress_ratio",
    "gauge",
    "How far collection for a first baseline is, 0 to 1.",
    ("tier", "segment"),
)
BASELINE_MADE = Metric(
    "fusewire_baseline_made_timestamp_seconds",
    "gauge",
    "When the baseline in use was made, unix time.",
    ("tier", "segment"),
)
SCRAPES = Metric(
    "fusewire_scrapes_total",
    "counter",
    "Scrapes by outcome: read, cut, no data, timeout, connection, status and others.",
    ("tier", "target", "reason"),
)
PAGE_LINES_SKIPPED = Metric(
    "fusewire_page_lines_skipped_total",
    "counter",
    "Lines of an engine's page that could not be read.",
    ("tier", "target", "reason"),
)
COUNTER_RESETS = Metric(
    "fusewire_resets_seen_total",
    "counter",
    "Resets seen in a target's counters.",
    ("tier", "target"),
)
FINDING = Metric(
    "fusewire_finding",
    "gauge",
    "1 while something about a target should be known to a person, by code.",
    ("tier", "target", "cause"),
)
NOTICED = Metric(
    "fusewire_changes_seen_total",
    "counter",
    "Changes of a target that were noticed, by what changed.",
    ("tier", "target", "reason"),
)
TARGET_SERIES_REFUSED = Metric(
    "fusewire_target_series_refused_total",
    "counter",
    "Sightings of series of a target's page beyond the number that is remembered.",
    ("tier", "target"),
)
GENERATIONS = Metric(
    "fusewire_generations_accepted_total", "counter", "Generations taken in.", ("tier", "segment")
)
GENERATIONS_REJECTED = Metric(
    "fusewire_generations_rejected_total", "counter", "Generations refused.", ("source", "reason")
)
GENERATIONS_PARTIAL = Metric(
    "fusewire_generations_partial_total",
    "counter",
    "Generations taken in with something missing.",
    ("source", "reason"),
)
GENERATIONS_REPRESENTED = Metric(
    "fusewire_generations_represented_total",
    "counter",
    "Requests that the generations taken in stand for: one sampled at a ratio r stands for 1 / r.",
    ("tier",),
)
LOGPROB_COVERAGE = Metric(
    "fusewire_logprob_coverage_ratio",
    "gauge",
    "Share of a tier's answers that came with logprobs, last minute, weighted by their sampling.",
    ("tier",),
)
OTLP_IGNORED = Metric(
    "fusewire_otlp_ignored_total",
    "counter",
    "Records of OTLP exports that are no finished generation, by signal: traces or logs.",
    ("tier", "source"),
)
INGEST_QUEUE = Metric(
    "fusewire_ingest_queue_batches", "gauge", "Batches waiting to be decoded.", ("source",)
)
INGEST_WORKER_DEATHS = Metric(
    "fusewire_ingest_worker_deaths_total", "counter", "Decoding workers that died over a body."
)
BATCHES_REFUSED = Metric(
    "fusewire_batches_refused_total",
    "counter",
    "Batches not counted in a lane because its tier has too many live variants.",
)
FOLLOWER_LAG = Metric(
    "fusewire_follower_lag_bytes", "gauge", "Bytes of a followed file not yet read.", ("source",)
)
FOLLOWER_RESTARTS = Metric(
    "fusewire_follower_restarts_total",
    "counter",
    "Times that a followed file was truncated or changed, and read from its start.",
    ("source",),
)
FOLLOWER_LOST = Metric(
    "fusewire_follower_lost_total",
    "counter",
    "Rotated files of which something was unread and that are gone, or broken at their end.",
    ("source",),
)
TICKS_LOST = Metric(
    "fusewire_ticks_lost_total", "counter", "Ticks that could not be kept.", ("tier", "reason")
)
VERDICTS_DROPPED = Metric(
    "fusewire_verdicts_dropped_total",
    "counter",
    "Verdicts that a bounded store of them had no room for, by store: history or memory.",
    ("source",),
)
ANNOTATIONS_DROPPED = Metric(
    "fusewire_annotations_dropped_total",
    "counter",
    "Changes of targets that could not be kept for lack of room.",
)
ALERT_STREAMS_DROPPED = Metric(
    "fusewire_alert_streams_dropped_total",
    "counter",
    "Verdicts that are not ok and raised nothing, because too many streams are watched.",
)
PART_FAILURES = Metric(
    "fusewire_part_failures_total",
    "counter",
    "Failures of a source, detector or action.",
    ("source",),
)
PART_BROKEN = Metric(
    "fusewire_part_broken",
    "gauge",
    "1 while a source, detector or action is failing.",
    ("source",),
)
DELIVERIES = Metric(
    "fusewire_webhook_attempts_total",
    "counter",
    "Webhook attempts by outcome.",
    ("gateway", "reason"),
)
DELIVERY_OLDEST = Metric(
    "fusewire_webhook_oldest_pending_seconds",
    "gauge",
    "Age of the oldest pending delivery.",
    ("gateway",),
)
DELIVERY_UNCONFIRMED = Metric(
    "fusewire_action_oldest_unconfirmed_seconds",
    "gauge",
    "Age of the oldest control state that a gateway has not confirmed.",
    ("gateway",),
)
ALERTMANAGER_PUSHES = Metric(
    "fusewire_alertmanager_pushes_total",
    "counter",
    "Pushes to an Alertmanager by outcome.",
    ("gateway", "reason"),
)
ADMISSIONS = Metric(
    "fusewire_admissions_total", "counter", "Answers of /v1/admit by outcome.", ("tier", "reason")
)
JOURNAL_WRITABLE = Metric(
    "fusewire_journal_writable", "gauge", "0 while the journal cannot be written: no new trips."
)
JOURNAL_FAILURES = Metric(
    "fusewire_journal_failures_total", "counter", "Writes or reads of the journal that failed."
)
SNAPSHOT_AGE = Metric(
    "fusewire_snapshot_age_seconds", "gauge", "Age of the newest snapshot of counts."
)
CONFIG_RELOADED = Metric(
    "fusewire_config_last_reload_successful", "gauge", "1 if the last reload took effect."
)
CONFIG_RELOADED_AT = Metric(
    "fusewire_config_last_reload_success_timestamp_seconds",
    "gauge",
    "When the configuration in force was loaded.",
)
SERIES_REFUSED = Metric(
    "fusewire_series_refused_total", "counter", "Series that the cap kept off this page."
)
VALUES_REFUSED = Metric(
    "fusewire_values_refused_total",
    "counter",
    "Numbers kept off this page because they are not finite.",
)
LOOP_LAG = Metric(
    "fusewire_loop_lag_seconds", "gauge", "Largest delay of the event loop in the last tick."
)
BUILD_INFO = Metric("fusewire_build_info", "gauge", "1; the version is in the label.", ("reason",))

_OWN: tuple[Metric, ...] = tuple(
    value for value in list(globals().values()) if isinstance(value, Metric)
)
CATALOG: Mapping[str, Metric] = MappingProxyType(
    {metric.name: metric for metric in (*map(_of_signal, READING_SIGNALS), *_OWN)}
)


def signal_metric(signal: str) -> Metric:
    """Return the metric of a canonical reading signal.

    Raises:
        KeyError: If `signal` is not a reading signal.
    """
    return CATALOG[PREFIX + signal]
