"""The memory and the kills of a container, from the page of the kubelet's cAdvisor.

Source of the names: research on the kubelet's pages; `pod_name` and `container_name` are those of
Kubernetes before 1.16. Series without a container are totals of a pod and not read.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from collector.sources.host.cluster_pages import (
    NO_LIMIT_FROM,
    ClusterPage,
    ClusterReader,
    KubeGlob,
    KubeName,
    fits,
    label,
    samples,
)
from collector.sources.host.kills import RecentKills
from collector.sources.looking import Eye, LookSource, Moment, Seen
from collector.sources.page.page import Page
from collector.sources.page.series import Ledger, Point, is_count
from collector.sources.protocols import Place, Source, Tools
from collector.values import HttpUrl, Seconds
from detectors.records import Absence
from detectors.remarks import Finding, Noticed

_WORKING_SET: Final = "container_memory_working_set_bytes"
_LIMIT: Final = "container_spec_memory_limit_bytes"
_KILLS: Final = "container_oom_events_total"
_START: Final = "container_start_time_seconds"
_GAUGES: Final[Mapping[str, str]] = {
    "memory_working_set_bytes": _WORKING_SET,
    "memory_limit_bytes": _LIMIT,
    "memory_rss_bytes": "container_memory_rss",
    "memory_swap_bytes": "container_memory_swap",
}
OFFERS: Final = frozenset({*_GAUGES, "memory_ooms_total", "restarts_total"})
_PAUSE: Final = frozenset({"", "POD"})  # a pod's totals, and the container that holds its network
_MOST_CONTAINERS: Final = 1000
_MOVED_SECONDS: Final = 1.0


class CadvisorConfig(BaseModel):
    """Memory, kills and restarts of a container, from the kubelet's `/metrics/cadvisor`."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    kind: Literal["cadvisor"] = "cadvisor"
    url: HttpUrl = Field(description="Address of the page, with its path.")
    namespace: KubeName = Field(description="Namespace of the pod.")
    pod: KubeGlob = Field(description="Name of the pod; `*` and `?` for the part that changes.")
    container: KubeGlob = Field(default="*", description="Name of the container in the pod.")
    bearer_token_file: Path | None = Field(
        default=None, description="File with a token for the kubelet; read anew when it changes."
    )
    insecure_http: bool = Field(
        default=False, description="Send the token over plain http to another machine."
    )
    ca_file: Path | None = Field(
        default=None, description="Certificates, in PEM form, that the server's is checked against."
    )
    interval: Seconds = Field(default=15.0, description="Time between reads.")

    def build(self, place: Place, tools: Tools) -> Source:
        """Return the source; nothing is opened."""
        page = ClusterPage(
            url=self.url,
            namespace=self.namespace,
            families=frozenset({*_GAUGES.values(), _KILLS, _START}),
            token_file=self.bearer_token_file,
            insecure_http=self.insecure_http,
            ca_file=self.ca_file,
        )
        reader = ClusterReader(page, tools)
        memory = _Memory(self)

        async def look(moment: Moment) -> Seen:
            return await reader.read(lambda page: memory.seen(page, moment))

        return LookSource(Eye(self.kind, OFFERS, look, close=reader.close), place, tools)


@dataclass(slots=True)
class _Life:
    """One life of a container: its own cgroup `id`, and what the page says of it."""

    numbers: dict[str, float] = field(default_factory=dict)
    kills: dict[str, float] = field(default_factory=dict)  # by series

    @property
    def order(self) -> tuple[float, float]:
        """The newest last; a life that ended may stay on the page for a while."""
        return self.numbers.get(_START, 0.0), self.numbers.get(_WORKING_SET, 0.0)

    @property
    def limit(self) -> float | None:
        limit = self.numbers.get(_LIMIT, 0.0)
        return limit if 0.0 < limit < NO_LIMIT_FROM else None

    @property
    def fullness(self) -> tuple[float, float]:
        used = self.numbers.get(_WORKING_SET, 0.0)
        return (used / self.limit if self.limit else 0.0), used


class _Memory:
    """What is remembered between pages: kills counted, and when each container began."""

    def __init__(self, settings: CadvisorConfig) -> None:
        self._settings = settings
        self._ledger = Ledger()
        self._recent = RecentKills("memory_ooms_total")
        self._starts: dict[tuple[str, str], float] = {}
        self._restarts: dict[str, float] = {}

    def seen(self, page: Page, moment: Moment) -> Seen:
        """Give a page its meaning."""
        containers = self._containers(page)
        if not containers:
            return self._nothing()
        newest = {name: max(lives, key=lambda it: it.order) for name, lives in containers.items()}
        fullest = max(newest.values(), key=lambda life: life.fullness)
        values = {
            signal: fullest.numbers[family]
            for signal, family in _GAUGES.items()
            if family in fullest.numbers and signal != "memory_limit_bytes"
        }
        absent: dict[str, Absence] = {}
        findings: list[Finding] = []
        if fullest.limit is not None:
            values["memory_limit_bytes"] = fullest.limit
        else:
            absent["memory_limit_bytes"] = Absence.UNUSABLE
            findings.append(_NO_LIMIT)
        kills = self._count_kills(life for lives in containers.values() for life in lives)
        if kills is not None:
            values["memory_ooms_total"] = kills
        else:
            absent["memory_ooms_total"] = Absence.NO_FAMILY
        self._recent.take(kills, moment)
        noticed = self._restarted(newest, moment)
        if any(_START in life.numbers for life in newest.values()):
            values["restarts_total"] = math.fsum(self._restarts.values())
        return Seen(
            values=values,
            parts={"restarts_total": dict(self._restarts)} if "restarts_total" in values else {},
            absent=absent,
            findings=(*findings, *self._recent.findings(moment)),
            noticed=noticed,
            restarted=bool(noticed),
        )

    def _containers(self, page: Page) -> dict[tuple[str, str], list[_Life]]:
        """Return the lives of each container that is meant, by pod and container."""
        found: dict[tuple[str, str], dict[str, _Life]] = {}
        for family in (*_GAUGES.values(), _KILLS, _START):
            for labels, value in samples(page, (family,)):
                name = self._name(labels)
                if name is None or not is_count(value):
                    continue
                if name not in found and len(found) >= _MOST_CONTAINERS:
                    continue
                life = found.setdefault(name, {}).setdefault(labels.get("id", ""), _Life())
                if family == _KILLS:
                    life.kills[f"{name}{sorted(labels.items())}"] = value
                else:
                    life.numbers[family] = value
        return {name: list(lives.values()) for name, lives in found.items()}

    def _name(self, labels: Mapping[str, str]) -> tuple[str, str] | None:
        it = self._settings
        pod, container = (
            label(labels, "pod", "pod_name"),
            label(labels, "container", "container_name"),
        )
        if container in _PAUSE or labels.get("namespace") != it.namespace:
            return None
        return (pod, container) if fits(pod, it.pod) and fits(container, it.container) else None

    def _count_kills(self, lives: Iterable[_Life]) -> float | None:
        points = [Point(key, value) for life in lives for key, value in life.kills.items()]
        if not points:
            return None
        self._ledger.begin(None)
        return math.fsum(self._ledger.counter("memory_ooms_total", _KILLS, points).values())

    def _restarted(
        self, newest: Mapping[tuple[str, str], _Life], moment: Moment
    ) -> tuple[Noticed, ...]:
        """Note which containers began anew; their numbers of kills say why, if they moved now."""
        noticed: list[Noticed] = []
        reason = "OOMKilled" if self._recent.just_now(moment) else "unknown"
        for name, life in newest.items():
            start = life.numbers.get(_START)
            if start is None:
                continue
            before = self._starts.get(name)
            self._starts[name] = start
            if before is not None and start > before + _MOVED_SECONDS:
                self._restarts[reason] = self._restarts.get(reason, 0.0) + 1.0
                noticed.append(Noticed("restart", "", reason))
        gone = [name for name in self._starts if name not in newest]
        for name in gone[: max(len(self._starts) - _MOST_CONTAINERS, 0)]:
            del self._starts[name]
        return tuple(noticed)

    def _nothing(self) -> Seen:
        it = self._settings
        text = (
            f"the page has no container {it.container!r} of a pod {it.pod!r} in namespace "
            f"{it.namespace!r}; is the pod on this node?"
        )
        finding = Finding("no_such_container", "memory_working_set_bytes", text)
        return Seen(findings=(finding,), outcome="no data")


_NO_LIMIT: Final = Finding(
    "no_memory_limit",
    "memory_limit_bytes",
    "the container has no memory limit: a leak takes the node; set resources.limits.memory",
)
