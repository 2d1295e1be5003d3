"""From records to series: what a reading, a verdict and a breaker look like on the metrics page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

from detectors.records import Reading, Verdict
from detectors.signals import SIGNALS, Kind
from exporters.catalog import (
    ADMIT_RATIO,
    BREAKER_STATE,
    CATALOG,
    COUNTER_RESETS,
    EFFECT,
    FINDING,
    LAST_EVALUATION,
    LEASE_EXPIRES,
    NOTICED,
    OVERRIDE_ACTIVE,
    PREFIX,
    SIGNAL_ABSENT,
    SIGNAL_AGE,
    STATISTIC,
    THRESHOLD,
    VERDICT_LEVEL,
    Metric,
    signal_metric,
)
from exporters.prometheus import Group, MetricsPage, Since, clean

_METRICS = {it: CATALOG[PREFIX + it] for it in SIGNALS if PREFIX + it in CATALOG}
_UP, _SCRAPE_SECONDS = signal_metric("up"), signal_metric("scrape_seconds")
_OF_VERDICT = (VERDICT_LEVEL, STATISTIC, EFFECT, THRESHOLD)


def export_reading(page: MetricsPage, reading: Reading) -> None:
    """Show one scrape of one target: its signals, what is absent and why, and ages.

    A signal that is absent loses its series (not knowing is not a number), while the age of its
    last value goes on rising. `SCRAPES` is not counted here: a reading says only whether it
    failed, the outcome is in the counts of its source, whose owner sets the metric from them.

    Raises:
        ValueError: If the reading holds a signal that is not canonical.
    """
    labels = {"tier": reading.tier, "target": reading.target}
    group = (clean(reading.tier), clean(reading.target))
    _export_absent(page, reading, group, labels)
    _export_values(page, reading, group, labels)
    for signal, histogram in reading.histograms.items():
        page.observe_histogram(_metric(signal, reading), labels, histogram)
    taken: dict[float, Since] = {}
    for signal in {*reading.values, *reading.parts, *reading.histograms}:
        age = reading.age_of(signal)
        since = taken.setdefault(age, Since(reading.monotonic_seconds - age))
        page.set_ready_since(SIGNAL_AGE, (*group, signal), since)
    _export_words(page, reading, group, labels)
    page.set_ready(_UP, group, float(reading.up))
    page.set_ready(_SCRAPE_SECONDS, group, reading.scrape_seconds)
    page.add(COUNTER_RESETS, labels, float(reading.restarted))


def _export_absent(
    page: MetricsPage, reading: Reading, group: Group, labels: dict[str, str]
) -> None:
    """Say what is absent and why, and take it off the page; mostly nothing of it has changed."""
    absent = {(*group, signal, clean(str(why))) for signal, why in reading.absent.items()}
    shown = page.keys(SIGNAL_ABSENT, group)
    if absent == shown:
        return
    for key in [key for key in shown if key not in absent]:
        page.set_ready(SIGNAL_ABSENT, key, None)
    for key in absent:
        page.remove(_metric(key[2], reading), **labels)
        page.set_ready(SIGNAL_ABSENT, key, 1)


def _export_values(
    page: MetricsPage, reading: Reading, group: Group, labels: dict[str, str]
) -> None:
    """Show gauges and counters; a counter that is split by a label shows its parts only."""
    for signal, value in reading.values.items():
        if signal not in reading.parts:
            metric = _metric(signal, reading)
            page.set_ready(
                metric, group if len(metric.labels) == len(group) else (*group, ""), value
            )
    for signal, parts in reading.parts.items():
        metric = _metric(signal, reading)
        label = SIGNALS[signal].label
        if SIGNALS[signal].kind is Kind.GAUGE:  # a part that is gone has no series
            page.remove(metric, **labels)
        for part, value in parts.items():
            page.set(metric, {**labels, label: part}, value)


def _export_words(
    page: MetricsPage, reading: Reading, group: Group, labels: dict[str, str]
) -> None:
    """Show findings while they hold, and count the changes that were noticed."""
    found = {(*group, clean(finding.code)) for finding in reading.findings}
    if reading.up:  # a failed scrape takes nothing back
        for key in page.keys(FINDING, group) - found:
            page.set_ready(FINDING, key, None)
    for key in found:
        page.set_ready(FINDING, key, 1)
    for noticed in reading.noticed:
        if not noticed.first:
            page.add(NOTICED, {**labels, "reason": noticed.what})


def _metric(signal: str, reading: Reading) -> Metric:
    metric = _METRICS.get(signal)
    if metric is None:
        msg = (
            f"reading of {reading.tier}/{reading.target} by {reading.source}: {signal!r} is not a "
            "reading signal; expected names of detectors/signals.py"
        )
        raise ValueError(msg)
    return metric


def export_verdicts(page: MetricsPage, verdicts: Iterable[Verdict]) -> None:
    """Show the level, statistic, effect and threshold of each verdict, and when it was given."""
    judged: dict[str, datetime] = {}
    for verdict in verdicts:
        stream = verdict.stream
        scope = stream.scope
        labels = (
            stream.tier,
            scope.name if scope.kind == "target" else "",
            scope.name if scope.kind == "segment" else "",
            stream.signal,
            verdict.detector,
        )
        numbers = (verdict.level.number, verdict.statistic, verdict.effect, verdict.threshold)
        page.set_row(_OF_VERDICT, labels, numbers)
        judged[stream.tier] = verdict.at
    for tier, at in judged.items():
        page.set(LAST_EVALUATION, {"tier": tier}, at.timestamp())


def export_verdicts_in_pieces(
    page: MetricsPage, verdicts: Iterable[Verdict], size: int
) -> Iterator[int]:
    """Do what `export_verdicts` does, `size` verdicts at a time, and yield how many were shown.

    On the event loop the caller awaits something between two pieces. The page is whole at any
    time: a verdict is shown with all its numbers or as it was before.
    """
    rest = iter(verdicts)
    while piece := list(islice(rest, size)):
        export_verdicts(page, piece)
        yield len(piece)


def _set_or_remove(
    page: MetricsPage, metric: Metric, labels: dict[str, str], value: float | None
) -> None:
    if value is None:
        page.remove(metric, **labels)
    else:
        page.set(metric, labels, value)


@dataclass(frozen=True, slots=True)
class BreakerNumbers:
    """What the page shows of a breaker; `target` is empty for a tier's own.

    `state` is 0 closed, 1 half_open, 2 open; `admit_ratio` (0..1) is what gateways apply, the
    override included; `lease_expires` is unix time, None while nothing is withheld.
    """

    tier: str
    target: str
    state: int
    admit_ratio: float
    override_active: bool = False
    lease_expires: float | None = None


def export_breaker(page: MetricsPage, breaker: BreakerNumbers) -> None:
    """Show the state of one breaker."""
    labels = {"tier": breaker.tier, "target": breaker.target}
    page.set(BREAKER_STATE, labels, breaker.state)
    page.set(ADMIT_RATIO, labels, breaker.admit_ratio)
    page.set(OVERRIDE_ACTIVE, labels, float(breaker.override_active))
    _set_or_remove(page, LEASE_EXPIRES, labels, breaker.lease_expires)
