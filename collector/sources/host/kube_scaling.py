"""Replicas of a workload and the bounds of its autoscaler, from a page of kube-state-metrics."""

from __future__ import annotations

from collections.abc import Mapping

from collector.sources.host.cluster_pages import label, samples
from collector.sources.host.kube_rows import (
    REPLICAS,
    SCALER_CONDITION,
    SCALER_INFO,
    SCALER_LABELS,
    WORKLOAD_LABELS,
)
from collector.sources.looking import Seen
from collector.sources.page.page import Page
from collector.sources.page.series import is_count
from detectors.records import Absence
from detectors.remarks import Finding


def scaling(page: Page, namespace: str, workload: str | None, autoscaler: str | None) -> Seen:
    """Return the replicas: of the autoscaler if there is one, else of the workload.

    Without an autoscaler there is no most and no fewest; `scaling_limited` is 1 only where more
    is wanted than may be, not where an autoscaler is held at its minimum.
    """
    scaler = autoscaler or _scaler_of(page, namespace, workload or "")
    values: dict[str, float] = {}
    for row in REPLICAS:
        found = _value(page, row.scaler, SCALER_LABELS, (namespace, scaler))
        if found is None and workload is not None:
            found = _value(page, row.workload, WORKLOAD_LABELS, (namespace, workload))
        if found is not None:
            values[row.signal] = found
    limited = _limited(page, namespace, scaler, values)
    if limited is not None:
        values["scaling_limited"] = limited
    findings = tuple(_findings(values, scaler))
    if values:
        return Seen(values=values, findings=findings)
    text = (
        f"the page has neither autoscaler {scaler!r} nor workload {workload or ''!r} in namespace "
        f"{namespace!r}; are the names right, and does kube-state-metrics watch that namespace?"
    )
    missing = dict.fromkeys((row.signal for row in REPLICAS), Absence.NO_SAMPLE)
    return Seen(absent=missing, findings=(Finding("no_such_workload", "replicas_current", text),))


def _scaler_of(page: Page, namespace: str, workload: str) -> str:
    """Return the name of the autoscaler that scales a workload; by default it has its name."""
    for labels, _ in samples(page, (SCALER_INFO,)):
        if labels.get("namespace") == namespace and labels.get("scaletargetref_name") == workload:
            return label(labels, *SCALER_LABELS)
    return workload


def _value(
    page: Page, families: tuple[str, ...], names: tuple[str, ...], wanted: tuple[str, str]
) -> float | None:
    for family in families:
        for labels, value in samples(page, (family,)):
            if (labels.get("namespace"), label(labels, *names)) == wanted and is_count(value):
                return value
    return None


def _limited(page: Page, namespace: str, scaler: str, values: Mapping[str, float]) -> float | None:
    """Return 1 if more replicas are wanted than may be; None if the page does not say."""
    known = False
    for labels, value in samples(page, SCALER_CONDITION):
        mine = (labels.get("namespace"), label(labels, *SCALER_LABELS)) == (namespace, scaler)
        if not mine or labels.get("condition") != "ScalingLimited":
            continue
        known = True
        if labels.get("status") == "true" and value == 1.0:
            return float(values.get("replicas_desired", 0.0) >= values.get("replicas_max", 0.0))
    return 0.0 if known else None


def _findings(values: Mapping[str, float], scaler: str) -> list[Finding]:
    most, fewest = values.get("replicas_max"), values.get("replicas_min")
    found: list[Finding] = []
    if most is None:
        return found
    if most == fewest:
        text = (
            f"autoscaler {scaler!r} may make from {most:.0f} to {most:.0f} replicas: it cannot "
            "scale; raise its maximum or delete it"
        )
        found.append(Finding("hpa_min_equals_max", "replicas_max", text))
    elif values.get("replicas_current", 0.0) >= most <= values.get("replicas_desired", 0.0):
        text = (
            f"autoscaler {scaler!r} is at its maximum of {most:.0f} replicas: more load finds no "
            "more of them; raise the maximum, or shed load"
        )
        found.append(Finding("hpa_at_max", "replicas_current", text))
    return found
