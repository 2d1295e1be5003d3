"""What the service shows of itself on the metrics page: breakers, baselines, health, sources."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version

from alerts.breaker.records import Breaker, Entry, Key
from alerts.delivery.worker import EndpointHealth
from collector.health import Condition
from collector.parts import Parts, Reloaded
from collector.sources.protocols import Source
from detectors.records import Scope
from exporters.catalog import (
    ALERT_STREAMS_DROPPED,
    ANNOTATIONS_DROPPED,
    BASELINE_MADE,
    BASELINE_PROGRESS,
    BASELINE_REQUESTS,
    BATCHES_REFUSED,
    BUILD_INFO,
    CONFIG_RELOADED,
    CONFIG_RELOADED_AT,
    DELIVERIES,
    DELIVERY_OLDEST,
    DELIVERY_UNCONFIRMED,
    INGEST_WORKER_DEATHS,
    JOURNAL_FAILURES,
    JOURNAL_WRITABLE,
    PAGE_LINES_SKIPPED,
    PART_BROKEN,
    PART_FAILURES,
    SCRAPES,
    SUPPRESSED,
    TARGET_SERIES_REFUSED,
    TRANSITIONS,
    VERDICTS_DROPPED,
)
from exporters.prometheus import MetricsPage
from exporters.series import BreakerNumbers, export_breaker


def show_build(page: MetricsPage) -> None:
    """Show the version, once."""
    page.set(BUILD_INFO, {"reason": version("fusewire")}, 1)


def show_reload(page: MetricsPage, outcome: Reloaded) -> None:
    """Show whether the last reload took effect, and since when the configuration is in force."""
    page.set(CONFIG_RELOADED, {}, float(outcome.ok))
    if outcome.ok:
        page.set(CONFIG_RELOADED_AT, {}, outcome.at.timestamp())


def show_condition(page: MetricsPage, part: str, condition: Condition) -> None:
    """Show how a part of the service does."""
    page.set(PART_FAILURES, {"source": part}, condition.failures)
    page.set(PART_BROKEN, {"source": part}, float(bool(condition.problem)))


def show_entry(page: MetricsPage, entry: Entry) -> None:
    """Count a transition, or a trip that a guard refused."""
    transition = entry.transition
    if transition is None:
        return
    labels = {"tier": transition.key.tier, "target": transition.key.target}
    if transition.kind == "suppressed":
        guard = transition.reason.partition(":")[0]
        page.add(SUPPRESSED, labels | {"reason": guard})
    else:
        page.add(TRANSITIONS, labels | {"reason": transition.kind})


def show_breakers(
    page: MetricsPage, breakers: Mapping[Key, Breaker], shown: Mapping[Key, Breaker]
) -> None:
    """Show breakers as gateways see them; those that are in `shown` already are passed over."""
    for key, breaker in breakers.items():
        if shown.get(key) is breaker:
            continue
        lease = breaker.lease_expires_at
        export_breaker(
            page,
            BreakerNumbers(
                tier=breaker.key.tier,
                target=breaker.key.target,
                state=breaker.state.number,
                admit_ratio=breaker.effective_ratio,
                override_active=breaker.override is not None,
                lease_expires=lease.timestamp() if lease else None,
            ),
        )


def show_sources(page: MetricsPage, sources: Mapping[Key, Source]) -> None:
    """Show what came of the scrapes, and what they had to skip."""
    for key, source in sources.items():
        labels, stats = {"tier": key.tier, "target": key.target}, source.stats()
        for outcome, scrapes in stats.outcomes.items():
            page.set(SCRAPES, labels | {"reason": outcome}, scrapes)
        for reason, lines in stats.skipped.items():
            page.set(PAGE_LINES_SKIPPED, labels | {"reason": reason}, lines)
        page.set(TARGET_SERIES_REFUSED, labels, stats.series_refused)


@dataclass(frozen=True, slots=True)
class Dropped:
    """What bounded memories let go, counted since start."""

    batches: int
    worker_deaths: int
    history: int
    memory: int
    annotations: int
    alert_streams: int


def show_dropped(page: MetricsPage, dropped: Dropped) -> None:
    """Show what bounded memories let go: nothing is dropped in silence."""
    page.set(BATCHES_REFUSED, {}, dropped.batches)
    page.set(INGEST_WORKER_DEATHS, {}, dropped.worker_deaths)
    page.set(VERDICTS_DROPPED, {"source": "history"}, dropped.history)
    page.set(VERDICTS_DROPPED, {"source": "memory"}, dropped.memory)
    page.set(ANNOTATIONS_DROPPED, {}, dropped.annotations)
    page.set(ALERT_STREAMS_DROPPED, {}, dropped.alert_streams)


def show_deliveries(page: MetricsPage, endpoints: Mapping[str, EndpointHealth]) -> None:
    """Show what became of webhooks, and how long a gateway has not confirmed what is in force."""
    for name, health in endpoints.items():
        labels = {"gateway": name}
        for outcome, attempts in health.attempts.items():
            page.set(DELIVERIES, labels | {"reason": str(outcome)}, attempts)
        page.set(DELIVERY_OLDEST, labels, health.oldest_pending_seconds)
        page.set(DELIVERY_UNCONFIRMED, labels, health.oldest_unconfirmed_seconds)


def show_parts(parts: Parts) -> None:
    """Show the journal, the baselines and what is covered by logprobs."""
    page, controller = parts.page, parts.controller
    parts.counting.show()
    page.set(JOURNAL_WRITABLE, {}, float(controller.journal_writable))
    page.set(JOURNAL_FAILURES, {}, controller.journal_failures)
    for tier, scope in {lane[:2] for lane in parts.state.lanes}:
        if tier in parts.tiers:
            _show_baseline(parts, tier, scope)


def _show_baseline(parts: Parts, tier: str, scope: Scope) -> None:
    """Show the newest baseline among the variants of a scope, or how far the furthest one is."""
    page, state = parts.page, parts.state
    labels = {"tier": tier, "segment": scope.name}
    lanes = [lane for lane in state.lanes if lane[:2] == (tier, scope)]
    made = [state.baselines[lane] for lane in lanes if lane in state.baselines]
    if not made:
        needed = parts.tiers[tier].baseline_requests
        furthest = max(state.progress(lane) for lane in lanes)
        page.set(BASELINE_PROGRESS, labels, min(furthest / needed, 1.0))
        return
    newest = max(made, key=lambda baseline: baseline.made_at)
    page.set(BASELINE_PROGRESS, labels, 1.0)
    page.set(BASELINE_REQUESTS, labels, newest.requests)
    page.set(BASELINE_MADE, labels, newest.made_at.timestamp())
