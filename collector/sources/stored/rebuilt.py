"""Makes a target's page again from what a server stored of it.

The server has added labels of its own (`job`, `instance`, `pod`, those of a replica); they are
taken off, and what it renamed to make room (`exported_x`) gets its name back. Where series of
several scrapes match, those of one scrape are read and the others left.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from collector.sources.engine.engines import PROCESS_START
from collector.sources.page.keys import Series
from collector.sources.page.page import Page, Sample
from collector.sources.stored.asking import StoredSeries
from collector.sources.stored.promql import MARK, Asked, Form
from collector.sources.stored.server import Found, Share
from detectors.remarks import Finding

Labels: TypeAlias = Mapping[str, str]
Origin: TypeAlias = tuple[tuple[str, str], ...]

REPLICA_LABELS: Final = frozenset(
    {"__replica__", "prometheus", "prometheus_replica", "receive_replica", "replica"}
    | {"rule_replica", "thanos_replica", "monitor"}
)
SCRAPE_LABELS: Final = frozenset(
    {"cluster", "container", "endpoint", "instance", "job", "namespace", "node", "pod"}
    | {"receive", "service", "tenant_id", "vm_account_id", "vm_project_id"}
)
MAX_TARGET_LABELS: Final = 64
STALE: Final = "stale"
NATIVE: Final = "native histogram"
_EXPORTED: Final = "exported_"
_ROUTER_LABELS: Final = frozenset({"server", "worker_addr"})


@dataclass(slots=True)
class Rebuilt:
    """A page, and what the server knows of its making.

    `moment` is when the newest sample was scraped, unix time by the server, None without samples;
    `ages` how much older a family is than that, s. `up` is None where the server does not say.
    """

    page: Page
    moment: float | None
    ages: dict[str, float]
    stale: frozenset[str]
    up: float | None
    scrape_seconds: float | None
    findings: tuple[Finding, ...]


@dataclass(slots=True)
class OriginMemory:
    """What is remembered of a target between rounds."""

    origin: Origin = ()
    series: dict[str, frozenset[str]] = field(default_factory=dict)
    evidence: frozenset[str] = frozenset()


@dataclass(slots=True)
class _Scrape:
    """All that one scrape of the server left of a target."""

    samples: list[tuple[Asked, Series, float]] = field(default_factory=list)
    moments: dict[tuple[str, Form, str], float] = field(default_factory=dict)
    evidence: set[str] = field(default_factory=set)

    @property
    def newest(self) -> float:
        return max(self.moments.values(), default=-math.inf)


def rebuilt(
    share: Share, memory: OriginMemory, *, replica_labels: Iterable[str], stale_seconds: float
) -> Rebuilt | None:
    """Return a target's page, or None if the server has no series of it.

    Args:
        share: What the server answered.
        memory: The target's, changed.
        replica_labels: Labels of copies, besides `REPLICA_LABELS`.
        stale_seconds: Older samples are not used.
    """
    replicas = REPLICA_LABELS.union(replica_labels)
    ups = [series for asked, series in share.found if asked.kind == "up"]
    added = SCRAPE_LABELS | replicas | _labels_of(ups)
    skipped: Counter[str] = Counter()
    scrapes = _scrapes(share.found, added, skipped)
    seen = {_origin(series.metric, added) for series in ups} | scrapes.keys()
    if not seen:
        return None
    origin = _chosen(scrapes, seen, memory, stale_seconds)
    memory.origin = origin
    scrape = scrapes.get(origin, _Scrape())
    fresh = (share.moment or 0.0) - stale_seconds
    if share.searched:
        memory.evidence = frozenset(scrape.evidence)
    page, stale = _page(scrape, memory, fresh, whole=not share.lacking, skipped=skipped)
    return Rebuilt(
        page=page,
        moment=scrape.newest if scrape.moments else None,
        ages=_ages(scrape, fresh),
        stale=stale,
        up=_own_value(share.found, "up", origin, added),
        scrape_seconds=_own_value(share.found, "scrape_seconds", origin, added),
        findings=tuple(_findings(seen, replicas, share.lacking)),
    )


def _labels_of(ups: Sequence[StoredSeries]) -> frozenset[str]:
    """Return the labels of `up`: it has those of the server alone."""
    names = {name for series in ups for name in series.metric} - {MARK, "__name__"}
    return frozenset(names) if len(names) <= MAX_TARGET_LABELS else frozenset()


def _origin(metric: Labels, added: frozenset[str]) -> Origin:
    return tuple(sorted((name, value) for name, value in metric.items() if name in added))


def _scrapes(
    found: Sequence[Found], added: frozenset[str], skipped: Counter[str]
) -> dict[Origin, _Scrape]:
    scrapes: dict[Origin, _Scrape] = {}
    for asked, stored in found:
        if asked.kind in {"up", "scrape_seconds"}:
            continue
        scrape = scrapes.setdefault(_origin(stored.metric, added), _Scrape())
        if asked.kind == "seen":
            scrape.evidence.add(asked.family)
            continue
        value = _number(stored.value)
        if value is None:
            skipped[NATIVE if stored.value is None else "value"] += 1
            continue
        series = _series(asked, stored.metric, added)
        if series is None:
            skipped["labels"] += 1
        elif asked.kind == "time":
            scrape.moments[asked.family, asked.form, series.key] = value
        else:
            scrape.samples.append((asked, series, value))
    return scrapes


def _number(value: tuple[float, str] | None) -> float | None:
    if value is None or "_" in value[1]:
        return None
    try:
        return float(value[1])
    except ValueError:
        return None


def _series(asked: Asked, metric: Labels, added: frozenset[str]) -> Series | None:
    """Return the series as the engine's page has it; None for a bucket without a bound."""
    labels = {
        name: value
        for name, value in metric.items()
        if name not in added and name not in {MARK, "__name__"}
    }
    for name in [it for it in labels if it.startswith(_EXPORTED)]:
        own = name.removeprefix(_EXPORTED)
        if own in added:
            labels[own] = labels.pop(name)
    bound = math.nan
    if asked.kind == "sample" and asked.role == "bucket":
        try:
            bound = float(labels.pop("le"))
        except (KeyError, ValueError):
            return None
        if math.isnan(bound):
            return None
    named = [f"{name}={value!r}" for name, value in sorted(labels.items()) if name != "pid"]
    key = f"{asked.family}{{{','.join(named)}}}"
    copied = not _ROUTER_LABELS.isdisjoint(labels)
    return Series(asked.family, asked.role, key, labels, bound, copied)


def _chosen(
    scrapes: Mapping[Origin, _Scrape],
    seen: Iterable[Origin],
    memory: OriginMemory,
    stale_seconds: float,
) -> Origin:
    """Return the scrape to read: the one read before, unless another is much newer."""
    newest = {origin: scrapes[origin].newest if origin in scrapes else -math.inf for origin in seen}
    best = max(sorted(newest), key=lambda origin: newest[origin])
    kept = newest.get(memory.origin, -math.inf)
    if kept > -math.inf and newest[best] - kept <= stale_seconds / 2:
        return memory.origin
    return best


def _page(
    scrape: _Scrape,
    memory: OriginMemory,
    fresh: float,
    *,
    whole: bool,
    skipped: Counter[str],
) -> tuple[Page, frozenset[str]]:
    """Return the page, and the families of which everything stored is too old."""
    forms = _newest_forms(scrape)
    samples: dict[str, list[Sample]] = {}
    met: dict[str, set[str]] = {}
    stale: set[str] = set()
    for asked, series, value in scrape.samples:
        if forms.get(asked.family, asked.form) != asked.form:
            continue  # the same family under its name of yesterday
        if scrape.moments.get((asked.family, asked.form, series.key), math.inf) < fresh:
            skipped[STALE] += 1
            stale.add(asked.family)
            continue
        samples.setdefault(asked.family, []).append((series, value))
        met.setdefault(asked.family, set()).add(series.key)
    broken = {it for it, keys in memory.series.items() if not whole and keys - met.get(it, set())}
    if whole:
        memory.series = {family: frozenset(keys) for family, keys in met.items()}
    page = Page(
        samples=samples,
        types={**dict.fromkeys(memory.evidence, ""), **(_summaries(samples) if whole else {})},
        broken=frozenset(broken),
        skipped=skipped,
        engines=frozenset(it.partition("_")[0] for it in samples if it != PROCESS_START),
        cut=not whole,
        openmetrics=False,
        readable=True,
    )
    return page, frozenset(stale - samples.keys())


def _summaries(samples: Mapping[str, Sequence[Sample]]) -> dict[str, str]:
    """Return families with sums and counts and no bucket: what was stored says no more of it."""
    found = {}
    for family, some in samples.items():
        roles = {series.role for series, _ in some}
        if "count" in roles and "bucket" not in roles:
            found[family] = "summary"
    return found


def _newest_forms(scrape: _Scrape) -> dict[str, Form]:
    """Return for each family the spelling with the newest sample."""
    newest: dict[str, tuple[float, Form]] = {}
    for (family, form, _), moment in scrape.moments.items():
        if family not in newest or moment > newest[family][0]:
            newest[family] = (moment, form)
    return {family: form for family, (_, form) in newest.items()}


def _ages(scrape: _Scrape, fresh: float) -> dict[str, float]:
    """Return by how much the oldest usable sample of each family is older than the newest."""
    newest = scrape.newest
    ages: dict[str, float] = {}
    for (family, _, _), moment in scrape.moments.items():
        if moment >= fresh:
            ages[family] = max(newest - moment, ages.get(family, 0.0))
    return ages


def _own_value(
    found: Sequence[Found], kind: str, origin: Origin, added: frozenset[str]
) -> float | None:
    """Return a number that the server keeps of its own scrape (`up`)."""
    values = {
        _origin(series.metric, added): _number(series.value)
        for asked, series in found
        if asked.kind == kind
    }
    if origin in values:
        return values[origin]
    return next(iter(values.values())) if len(values) == 1 else None


def _findings(
    seen: Iterable[Origin], replicas: frozenset[str], lacking: Sequence[str]
) -> Iterable[Finding]:
    origins = [dict(origin) for origin in seen]
    names = {name for origin in origins for name in origin}
    differing = {it for it in names if len({origin.get(it) for origin in origins}) > 1}
    if differing - replicas:
        told = ", ".join(sorted(differing - replicas))
        yield Finding(
            "stored_series_of_several_targets",
            "",
            f"match selects {len(origins)} scraped targets that differ in {told}; only one of them "
            "is read: name more labels in match, or the label of a copy in replica_labels",
        )
    if lacking:
        yield Finding(
            "stored_answer_partial",
            "",
            f"the server answered without part of its data: {'; '.join(lacking)}; signals that "
            "may be incomplete count as absent",
        )
