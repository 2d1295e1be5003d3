"""Pages that are no engine's: whether another source of Fusewire can read one, and how to add it.

A page is fetched once, and every kind that reads pages is tried on what came. The one that finds
most wins; a page of a cluster is tried by workload and by pod, for these have to be named.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

import httpx2
from pydantic import TypeAdapter, ValidationError

from collector.sources.fetch import FetchError, FetchLimits, fetch
from collector.sources.host.cluster_pages import label, samples
from collector.sources.host.kube_rows import (
    LIMITS,
    LIMITS_V1,
    REPLICAS,
    SCALER_LABELS,
    WORKLOAD_LABELS,
)
from collector.sources.logs.amounts import size_text
from collector.sources.page.families import compile_families
from collector.sources.page.keys import SeriesCache
from collector.sources.page.page import Page, parse
from collector.sources.protocols import Place, Source, SourceSettings, Tools
from collector.sources.scrape import metrics_url
from collector.sources.settings import NeighbourConfig, SourceConfig
from detectors.records import Reading
from detectors.remarks import Finding

Where: TypeAlias = Literal["sources", "neighbours"]
Words: TypeAlias = Mapping[str, str]

NEAR_RATIO: Final = 0.8
_MOST_NAMED: Final = 16  # pods or workloads tried
_OF_ANY_PAGE: Final = frozenset({"up", "scrape_seconds", "memory_rss_bytes"})
_DCGM: Final = b"DCGM_FI_"
_WORKING_SET: Final = "container_memory_working_set_bytes"
_WORKLOADS: Final = MappingProxyType(  # keys of the settings, labels that have the name
    dict.fromkeys(
        ("kube_deployment_spec_replicas", "kube_statefulset_replicas"),
        (("workload",), WORKLOAD_LABELS),
    )
)
_SCALERS: Final = MappingProxyType(  # by default an autoscaler has the name of what it scales
    {
        family: (("autoscaler", "workload"), SCALER_LABELS)
        for row in REPLICAS
        for family in row.scaler
        if row.signal == "replicas_max"
    }
)


@dataclass(frozen=True, slots=True)
class Addition:
    """How a page that is no engine's is configured: `item` is its mapping as YAML in one line."""

    kind: str
    where: Where
    item: str

    @property
    def line(self) -> str:
        """The line of YAML, of a target or of a tier."""
        if self.where == "sources":
            return f"sources: [{self.item}]"
        return f"neighbours: {{{self.kind}: {self.item}}}"


@dataclass(frozen=True, slots=True)
class OtherKind:
    """What a page turned out to be, and what its source reads there."""

    addition: Addition
    reading: Reading
    fed_by: Mapping[str, str] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class _Candidate:
    """One way to read the page; `words` are the settings as they are written."""

    where: Where
    words: Words
    config: SourceSettings


@dataclass(frozen=True, slots=True)
class _Try:
    """What came of one way."""

    where: Where
    words: Words
    source: Source
    reading: Reading

    @property
    def score(self) -> int:
        told = self.reading.values.keys() | self.reading.histograms.keys()
        return len(told - _OF_ANY_PAGE)

    @property
    def fullness(self) -> float:
        """The share of the memory limit in use; 0 where there is none, or it is not told."""
        values = self.reading.values
        limit = values.get("memory_limit_bytes", 0.0)
        return values.get("memory_working_set_bytes", 0.0) / limit if limit else 0.0


async def other_kind(url: str, tools: Tools) -> OtherKind | None:
    """Say what the page at `url` is, if a source other than that of engines reads it."""
    page_url = metrics_url(url)
    try:
        limits = FetchLimits(timeout_seconds=tools.timeout_seconds)
        fetched = await fetch(tools.client, page_url, {}, limits)
    except FetchError:
        return None  # the page was there a moment ago; its own reading says what it had
    wanted = await asyncio.to_thread(_candidates, fetched.body, page_url)
    async with _repeating(fetched.body) as client:
        again = replace(tools, client=client)
        tries = [await _tried(it, again) for it in wanted]
    best = max(tries, key=lambda it: it.score)  # of equals the first
    if best.score:
        return _known(best, tries)
    return _without_signals(tries) if _DCGM in fetched.body.upper() else None


def _without_signals(tries: Sequence[_Try]) -> OtherKind:
    """Return what a page of dcgm-exporter is that exports nothing which is read."""
    dcgm = next(it for it in tries if it.words["kind"] == "dcgm")
    text = (
        "a page of dcgm-exporter without a family that is read; add DCGM_FI_DEV_FB_USED, "
        "DCGM_FI_DEV_FB_FREE, DCGM_FI_DEV_GPU_UTIL and DCGM_FI_DEV_XID_ERRORS to its counters file"
    )
    known = _known(dcgm, tries)
    finding = Finding("dcgm_without_signals", "gpu_memory_used_bytes", text)
    return replace(known, findings=(*known.findings, finding))


def _known(best: _Try, tries: Sequence[_Try]) -> OtherKind:
    kind = best.words["kind"]
    item = ", ".join(f"{key}: {_scalar(key, value)}" for key, value in best.words.items())
    told = [*best.reading.findings, *_scaling(tries), *_near_peak(tries)]
    fed_by = dict.fromkeys(best.reading.known, kind)
    return OtherKind(
        Addition(kind, best.where, f"{{{item}}}"),
        best.reading,
        {**fed_by, **best.source.stats().aliases},
        tuple(dict.fromkeys(told)),
    )


def _scalar(key: str, value: str) -> str:
    return value if key in {"kind", "system"} else json.dumps(value)


def _scaling(tries: Sequence[_Try]) -> Iterator[Finding]:
    """Yield what is wrong with any autoscaler of the page; each names its own."""
    for one in tries:
        yield from (it for it in one.reading.findings if it.code.startswith("hpa_"))


def _near_peak(tries: Sequence[_Try]) -> Iterator[Finding]:
    for one in tries:
        if one.fullness <= NEAR_RATIO:
            continue
        values, words = one.reading.values, one.words
        text = (
            f"pod {words['pod']} in namespace {words['namespace']} uses "
            f"{size_text(values['memory_working_set_bytes'])} of its memory limit of "
            f"{size_text(values['memory_limit_bytes'])}; set resources.limits.memory well above "
            "the measured peak"
        )
        yield Finding("memory_limit_near_peak", "memory_working_set_bytes", text)


async def _tried(one: _Candidate, tools: Tools) -> _Try:
    place = Place("doctor", "target", neighbour=one.where == "neighbours")
    source = one.config.build(place, tools)
    try:
        return _Try(one.where, one.words, source, await source.read())
    finally:
        await source.close()


def _repeating(body: bytes) -> httpx2.AsyncClient:
    """Return a client that gets this body from everywhere, and no network."""

    def answer(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, stream=httpx2.ByteStream(body))

    return httpx2.AsyncClient(transport=httpx2.MockTransport(answer))


def _candidates(body: bytes, url: str) -> list[_Candidate]:
    """Return the settings to try; names of a cluster come from its page."""
    names = (_WORKING_SET, *_WORKLOADS, *_SCALERS, LIMITS, LIMITS_V1["nvidia_com_gpu"])
    page = parse(body, compile_families(dict.fromkeys(names, ("value",))), SeriesCache())
    wanted: list[tuple[Where, Words]] = [
        ("sources", {"kind": "dcgm", "url": url}),
        ("sources", {"kind": "allocator", "url": url}),
        ("neighbours", {"kind": "client", "url": url}),
        ("neighbours", {"kind": "milvus", "url": url}),
        ("neighbours", {"kind": "broker", "system": "page", "url": url}),
        *(("sources", {"kind": "cadvisor", "url": url, **it}) for it in _pods(page)),
        *(("sources", {"kind": "kube_state", "url": url, **it}) for it in _workloads(page)),
    ]
    made = (_candidate(where, words) for where, words in wanted)
    return [it for it in made if it is not None]


def _candidate(where: Where, words: Words) -> _Candidate | None:
    """Return settings that can be tried; None if they cannot: labels of a page hold anything."""
    config: SourceSettings
    try:
        if where == "sources":
            config = TypeAdapter(SourceConfig).validate_python(words)
        else:
            config = TypeAdapter(NeighbourConfig).validate_python(words)
    except ValidationError:
        return None
    return _Candidate(where, words, config)


def _pods(page: Page) -> list[Words]:
    """Return the pods that hold most memory, for an engine's is among them; largest first."""
    held: dict[tuple[str, str], float] = {}
    for labels, value in samples(page, (_WORKING_SET,)):
        name = (labels.get("namespace", ""), label(labels, "pod", "pod_name"))
        if all(name):
            held[name] = max(held.get(name, 0.0), value)
    largest = sorted(held, key=lambda it: -held[it])[:_MOST_NAMED]
    return [{"namespace": namespace, "pod": pod} for namespace, pod in largest]


def _workloads(page: Page) -> list[Words]:
    """Return workloads and autoscalers, those with pods that have GPUs first."""
    with_gpus = {
        (labels.get("namespace", ""), labels.get("pod", ""))
        for family in (LIMITS, LIMITS_V1["nvidia_com_gpu"])
        for labels, _ in samples(page, (family,))
        if labels.get("resource", "nvidia").startswith("nvidia")
    }
    found = [
        (labels.get("namespace", ""), key, label(labels, *names))
        for family, (keys, names) in {**_WORKLOADS, **_SCALERS}.items()
        for labels, _ in samples(page, (family,))
        for key in keys
    ]

    def plain(it: tuple[str, str, str]) -> bool:
        return not any(pod.startswith(f"{it[2]}-") and it[0] == space for space, pod in with_gpus)

    return [
        {"namespace": namespace, key: name}
        for namespace, key, name in sorted(dict.fromkeys(found), key=plain)[:_MOST_NAMED]
    ]
