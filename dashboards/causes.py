"""Rows of causes: saturation, drift, and the age of what is seen."""

from __future__ import annotations

from dataclasses import replace

from dashboards.panels import Panel, Query
from detectors.signals import REQUEST_SIGNALS, Side
from exporters.catalog import (
    BASELINE_PROGRESS,
    BASELINE_REQUESTS,
    LAST_EVALUATION,
    SIGNAL_ABSENT,
    SIGNAL_AGE,
    STATISTIC,
    THRESHOLD,
    Metric,
    signal_metric,
)

TIER = 'tier=~"$tier"'
TARGET = 'tier=~"$tier", target=~"$target"'
VERDICT_LABELS = "tier, target, segment, signal, detector"
RATE = "[$__rate_interval]"
LEGEND = "{{signal}} {{segment}} {{target}} {{detector}}"


def of(metric: Metric, selector: str = TARGET, suffix: str = "") -> str:
    """Return the selector of `metric` as text."""
    return f"{metric.name}{suffix}{{{selector}}}"


def lines(title: str, metric: Metric, unit: str, description: str, *queries: Query) -> Panel:
    """Return a graph of half the width."""
    return Panel(
        kind="lines",
        title=title,
        description=description,
        metric=metric,
        unit=unit,
        queries=queries,
        width=12,
    )


def saturation() -> tuple[Panel, ...]:
    """Return what says whether the tier is full, slow or standing still."""
    running, waiting = signal_metric("requests_running"), signal_metric("requests_waiting")
    kv = signal_metric("kv_cache_usage_ratio")
    kv_limit = f'{TIER}, signal="kv_cache_usage_ratio"'
    ttft, queue = signal_metric("ttft_seconds"), signal_metric("queue_seconds")
    generated = signal_metric("generation_tokens_total")
    taken = signal_metric("prompt_tokens_total")
    panels = (
        lines(
            "KV cache in use",
            kv,
            "percentunit",
            "Share of KV-cache blocks in use; the dashed line is where the verdict is raised.",
            Query(f"max by (tier, target) ({of(kv)})", "{{target}}"),
            Query(f"max({of(THRESHOLD, kv_limit)})", "raised at", limit=True),
        ),
        lines(
            "Requests running and waiting",
            waiting,
            "short",
            "A growing queue at constant running requests is saturation; see also the queue time.",
            Query(f"sum by (tier, target) ({of(waiting)})", "waiting {{target}}"),
            Query(f"sum by (tier, target) ({of(running)})", "running {{target}}"),
        ),
        lines(
            "Tokens per second",
            generated,
            "count:tok/s",
            "Tokens generated and taken in. None while requests run: the engine stands still.",
            Query(f"sum by (tier) (rate({of(generated)}{RATE}))", "generated {{tier}}"),
            Query(f"sum by (tier) (rate({of(taken)}{RATE}))", "prompt {{tier}}"),
        ),
        _quantile("Time to first token, p95", ttft, "How long users wait for the first token."),
        _quantile("Time in the queue, p95", queue, "How long requests wait before the batch."),
        lines(
            "First tokens per second",
            ttft,
            "reqps",
            "Requests behind the percentiles on the left; with few of them these mean little.",
            Query(f"sum by (tier) (rate({of(ttft, suffix='_count')}{RATE}))", "{{tier}}"),
        ),
    )
    full = replace(panels[0], most=1.0)
    return tuple(replace(panel, width=8) for panel in (full, *panels[1:]))


def _quantile(title: str, metric: Metric, description: str) -> Panel:
    rates = f"sum by (le, tier, target) (rate({of(metric, suffix='_bucket')}{RATE}))"
    expr = f"histogram_quantile(0.95, {rates})"
    return lines(title, metric, "s", description, Query(expr, "p95 {{target}}"))


def drift() -> tuple[Panel, ...]:
    """Return what says whether inputs and answers are as the baseline knows them."""
    return (
        _statistics("Input drift", "input"),
        _statistics("Output drift", "output"),
        lines(
            "Closest to their thresholds",
            STATISTIC,
            "percentunit",
            "Statistic as a share of its threshold, the ten largest; at 100 % a verdict is raised.",
            Query(
                f"topk(10, {of(STATISTIC, TIER)} "
                f"/ on ({VERDICT_LABELS}) ({of(THRESHOLD, TIER)} > 0))",
                LEGEND,
            ),
            Query("vector(1)", "raised at", limit=True),
        ),
        replace(
            lines(
                "Baseline collected",
                BASELINE_PROGRESS,
                "percentunit",
                "How far collection for a first baseline is; until it is full, drift is unknown.",
                Query(
                    f"max by (tier, segment) ({of(BASELINE_PROGRESS, TIER)})",
                    "{{tier}} {{segment}}",
                ),
            ),
            width=6,
            most=1.0,
        ),
        replace(
            lines(
                "Requests in the baseline",
                BASELINE_REQUESTS,
                "short",
                "Size of the baseline in use; a small one sees only large shifts.",
                Query(
                    f"max by (tier, segment) ({of(BASELINE_REQUESTS, TIER)})",
                    "{{tier}} {{segment}}",
                ),
            ),
            width=6,
        ),
    )


def _statistics(title: str, side: Side) -> Panel:
    names = "|".join(row.name for row in REQUEST_SIGNALS if row.side == side)
    selector = f'{TIER}, signal=~"{names}"'
    return lines(
        title,
        STATISTIC,
        "none",
        "Statistic of each signal, and dashed the threshold where its verdict is raised.",
        Query(f"max by (segment, target, signal, detector) ({of(STATISTIC, selector)})", LEGEND),
        Query(
            f"min by (detector, signal) ({of(THRESHOLD, selector)})",
            "raised at {{signal}} {{detector}}",
            limit=True,
        ),
    )


def age() -> tuple[Panel, ...]:
    """Return what says whether the other panels can be believed."""
    scrape = signal_metric("scrape_seconds")
    panels = (
        lines(
            "Oldest signal of a target",
            SIGNAL_AGE,
            "s",
            "Rises when a signal stops coming. Old data is judged as unknown, never as ok.",
            Query(f"max by (tier, target) ({of(SIGNAL_AGE)})", "{{target}}"),
        ),
        lines(
            "Since the last verdict",
            LAST_EVALUATION,
            "s",
            "Fusewire judges at each scrape; beyond a minute it stands still.",
            Query(f"time() - max by (tier) ({of(LAST_EVALUATION, TIER)})", "{{tier}}"),
        ),
        lines(
            "Absent signals",
            SIGNAL_ABSENT,
            "none",
            "Wanted signals without a value, by reason: an engine's version, or a failed scrape.",
            Query(f"sum by (tier, target, reason) ({of(SIGNAL_ABSENT)})", "{{target}} {{reason}}"),
        ),
        lines(
            "Duration of a scrape",
            scrape,
            "s",
            "Near the timeout (5 s by default) scrapes begin to fail.",
            Query(f"max by (tier, target) ({of(scrape)})", "{{target}}"),
        ),
    )
    return tuple(replace(panel, width=6) for panel in panels)
