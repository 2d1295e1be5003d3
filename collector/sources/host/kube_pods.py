"""Restarts with their reasons, limits and node pressure of some pods, from kube-state-metrics.

The reason of an end and its exit code are families of their own, joined by pod and container. The
page tells the last end only: of several between two reads all but the last are `unknown`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from collector.sources.host.cluster_pages import NO_LIMIT_FROM, fits, samples
from collector.sources.host.kube_rows import (
    LAST_EXIT,
    LAST_REASON,
    LAST_TIME,
    LIMITS,
    LIMITS_V1,
    NODE_CONDITION,
    POD_INFO,
    PRESSURES,
    RESTARTS,
    WAITING,
    WAITS,
    end_of,
)
from collector.sources.looking import Moment, Seen
from collector.sources.page.page import Page
from collector.sources.page.series import Ledger, Point, is_count
from detectors.records import Absence
from detectors.remarks import Finding, Noticed

Container: TypeAlias = tuple[str, str, str]  # pod, container, uid: a pod's name may come again

RECENT_SECONDS: Final = 3600.0
_MOST_CONTAINERS: Final = 10_000
_KILLED: Final = "OOMKilled"


@dataclass(frozen=True, slots=True)
class _End:
    """The last end of a container; `at` in unix seconds, None where the page does not say."""

    reason: str
    exit_code: int | None
    at: float | None


class Pods:
    """The containers that are meant, and their restarts so far."""

    def __init__(self, namespace: str, pod: str, container: str) -> None:
        self._namespace = namespace
        self._pod = pod
        self._container = container
        self._ledger = Ledger()
        self._known: dict[Container, float] = {}  # restarts at the last page that had it
        self._killed_at: float | None = None

    def seen(self, page: Page, moment: Moment) -> Seen:
        """Give a page its meaning."""
        restarts = dict(self._of(page, RESTARTS))
        if not restarts and not any(True for _ in self._of(page, LIMITS)):
            return self._nothing()
        ends = self._ends(page, restarts)
        values: dict[str, float] = {}
        parts: dict[str, dict[str, float]] = {}
        noticed: tuple[Noticed, ...] = ()
        if restarts:
            noticed = self._grown(restarts, ends, moment)
            parts["restarts_total"] = self._count(restarts, ends)
            values["restarts_total"] = math.fsum(parts["restarts_total"].values())
        findings, absent = self._limits(page, restarts, values)
        pressure = self._pressure(page)
        if pressure:
            parts["node_pressure"] = pressure
            values["node_pressure"] = max(pressure.values())
        findings += self._kills(ends, moment)
        findings += self._waiting(page)
        return Seen(values, parts, absent, tuple(findings), noticed, bool(noticed))

    def _of(self, page: Page, family: str) -> Iterator[tuple[Container, float]]:
        for labels, value in samples(page, (family,)):
            name = self._name(labels)
            if name is not None and is_count(value):
                yield name, value

    def _name(self, labels: Mapping[str, str]) -> Container | None:
        pod, container = labels.get("pod", ""), labels.get("container", "")
        if labels.get("namespace") != self._namespace or not fits(pod, self._pod):
            return None
        return (pod, container, labels.get("uid", "")) if fits(container, self._container) else None

    def _ends(self, page: Page, containers: Iterable[Container]) -> dict[Container, _End]:
        reasons: dict[Container, str] = {}
        for labels, value in samples(page, (LAST_REASON,)):
            name = self._name(labels)
            if name is not None and value == 1.0:
                reasons[name] = labels.get("reason", "")
        codes = dict(self._of(page, LAST_EXIT))
        times = dict(self._of(page, LAST_TIME))
        found: dict[Container, _End] = {}
        for name in containers:
            code = int(codes[name]) if name in codes else None
            found[name] = _End(end_of(reasons.get(name, ""), code), code, times.get(name))
        return found

    def _grown(
        self,
        restarts: Mapping[Container, float],
        ends: Mapping[Container, _End],
        moment: Moment,
    ) -> tuple[Noticed, ...]:
        """Note which containers were restarted since the last page."""
        noticed: list[Noticed] = []
        for name, count in restarts.items():
            if name in self._known and count > self._known[name]:
                end = ends[name]
                code = "" if end.exit_code is None else f", exit code {end.exit_code}"
                noticed.append(
                    Noticed("restart", f"{self._known[name]:.0f}", f"{end.reason}{code}")
                )
                if end.reason == _KILLED:
                    self._killed_at = moment.monotonic_seconds
        return tuple(noticed)

    def _count(
        self, restarts: Mapping[Container, float], ends: Mapping[Container, _End]
    ) -> dict[str, float]:
        """Add the restarts up by reason: the last of each container has one, others have none."""
        self._ledger.begin(None)
        points: list[Point] = []
        earlier: list[Point] = []
        for name, count in restarts.items():
            key = "/".join(name)
            points.append(Point(key, count, ends[name].reason))
            if count - self._known.get(name, 0.0) > 1.0:
                earlier.append(Point(key, count - 1.0, "unknown"))
            if name in self._known or len(self._known) < _MOST_CONTAINERS:
                self._known[name] = count
        if earlier:
            self._ledger.counter("restarts_total", RESTARTS, earlier)
        return self._ledger.counter("restarts_total", RESTARTS, points)

    def _limits(
        self, page: Page, containers: Iterable[Container], values: dict[str, float]
    ) -> tuple[list[Finding], dict[str, Absence]]:
        """Take the limits of the container with the least; say so if one has none."""
        memory, gpus = dict(self._limit(page, "memory")), dict(self._limit(page, "_gpu"))
        if memory:
            values["memory_limit_bytes"] = min(memory.values())
        if gpus:
            values["gpu_limit_gpus"] = max(gpus.values())
        if LIMITS not in page.samples and LIMITS not in page.types:
            return [], {}
        unlimited = set(containers) - memory.keys()
        if not unlimited:
            return [], {}
        text = (
            f"{len(unlimited)} of the containers have no memory limit: a leak takes the node; set "
            "resources.limits.memory"
        )
        absent = {} if memory else {"memory_limit_bytes": Absence.UNUSABLE}
        return [Finding("no_memory_limit", "memory_limit_bytes", text)], absent

    def _limit(self, page: Page, resource: str) -> Iterator[tuple[Container, float]]:
        for labels, value in samples(page, (LIMITS,)):
            name = self._name(labels)
            mine = name is not None and labels.get("resource", "").endswith(resource)
            if name is not None and mine and 0.0 < value < NO_LIMIT_FROM:
                yield name, value
        for kind, family in LIMITS_V1.items():
            if kind.endswith(resource):
                yield from ((name, value) for name, value in self._of(page, family) if value > 0.0)

    def _pressure(self, page: Page) -> dict[str, float]:
        """Return what the nodes of the pods are short of, 1 or 0 by reason."""
        nodes = {
            labels.get("node", "")
            for family in (POD_INFO, LIMITS)
            for labels, _ in samples(page, (family,))
            if labels.get("namespace") == self._namespace and fits(labels.get("pod", ""), self._pod)
        } - {""}
        found: dict[str, float] = {}
        for labels, value in samples(page, (NODE_CONDITION,)):
            if labels.get("node") not in nodes or labels.get("status") != "true":
                continue
            condition = labels.get("condition", "")
            if condition in PRESSURES:
                found[condition] = max(found.get(condition, 0.0), float(value == 1.0))
            elif condition == "Ready":
                found["NotReady"] = max(found.get("NotReady", 0.0), float(value != 1.0))
        return found

    def _kills(self, ends: Mapping[Container, _End], moment: Moment) -> list[Finding]:
        """Say that a container was killed for memory within the hour, by its clock or ours."""
        now = moment.at.timestamp()
        told = [
            end
            for end in ends.values()
            if end.reason == _KILLED and end.at is not None and now - end.at <= RECENT_SECONDS
        ]
        seen = self._killed_at
        ours = seen is not None and moment.monotonic_seconds - seen <= RECENT_SECONDS
        if not told and not ours:
            return []
        text = (
            "a container was killed for memory within the last hour (OOMKilled, exit code 137); "
            "raise its memory limit, or give it fewer requests at a time"
        )
        return [Finding("oom_killed", "restarts_total", text)]

    def _waiting(self, page: Page) -> list[Finding]:
        reasons = {
            labels.get("reason", "")
            for labels, value in samples(page, (WAITING,))
            if value == 1.0 and self._name(labels) is not None
        }
        named = sorted(reasons & WAITS)
        if not named:
            return []
        text = f"a container is not running: {', '.join(named)}; kubectl describe says why"
        return [Finding("container_waiting", "restarts_total", text)]

    def _nothing(self) -> Seen:
        text = (
            f"the page has no container {self._container!r} of a pod {self._pod!r} in namespace "
            f"{self._namespace!r}; are the names right?"
        )
        return Seen(
            findings=(Finding("no_such_container", "restarts_total", text),), outcome="no data"
        )
