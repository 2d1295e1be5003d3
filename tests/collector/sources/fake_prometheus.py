"""A server of Prometheus' query API that evaluates our queries over series set by a test."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qs

import httpx2

from collector.sources.scrape import ScrapeTarget
from collector.sources.stored.server import StoredServer
from collector.sources.stored.settings import PrometheusConfig
from collector.sources.stored.source import PromQLSource
from detectors.records import Reading
from tests.collector.sources.servers import NOW

_TERM = re.compile(
    r'label_replace\((?:(timestamp|count)\()?([a-zA-Z_:][a-zA-Z0-9_:]*)\{((?:[^"}]|"(?:[^"\\]|\\.)*")*)\}\)?'
    r',"fusewire_ask","(\w+)","",""\)'
)
_SAMPLE = re.compile(
    r"^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? ([-+]?(?:[0-9.]+(?:e[-+]?[0-9]+)?|NaN|Inf))\r?$",
    re.MULTILINE,
)
_LABEL = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*")')
_MATCHER = re.compile(r'(\w+)(=~|=)("(?:[^"\\]|\\.)*")')
URL = "http://prometheus.test"
A = {"instance": "a:8000", "job": "vllm"}
ENGINE = {**A, "engine": "0", "model_name": "m"}


@dataclass(frozen=True)
class Held:
    """One stored series and its newest sample."""

    name: str
    labels: Mapping[str, str]
    value: float
    at: float


@dataclass
class FakePrometheus:
    """Holds series; `now` is its clock, `lookback` how old a sample may be to be found."""

    now: float = 1_000.0
    series: list[Held] = field(default_factory=list)
    lookback: float = 300.0
    warnings: list[str] = field(default_factory=list)
    infos: list[str] = field(default_factory=list)
    partial: bool = False
    queries: list[str] = field(default_factory=list)
    forms: list[Mapping[str, list[str]]] = field(default_factory=list)
    headers: list[httpx2.Headers] = field(default_factory=list)
    running: int = 0
    most_running: int = 0
    delay: float = 0.0
    failure: tuple[int, bytes] | Exception | None = None

    def hold(self, name: str, value: float, at: float | None = None, /, **labels: str) -> None:
        """Store a sample, scraped now if not said otherwise, over the one before."""
        self.series = [it for it in self.series if (it.name, it.labels) != (name, labels)]
        self.series.append(Held(name, labels, value, self.now if at is None else at))

    def hold_page(self, page: bytes, **labels: str) -> None:
        """Store what a scrape of a page leaves, line by line."""
        self.hold("up", 1.0, **labels)
        for name, block, value in _SAMPLE.findall(page.decode()):
            own = {label: json.loads(text) for label, text in _LABEL.findall(block)}
            if not own.keys() & labels.keys():
                self.series.append(Held(name, {**own, **labels}, float(value), self.now))

    def drop(self, **labels: str) -> None:
        """Forget series with these labels, as a stale marker does."""
        self.series = [it for it in self.series if not labels.items() <= it.labels.items()]

    async def handle(self, request: httpx2.Request) -> httpx2.Response:
        form = parse_qs((await request.aread()).decode())
        self.queries.append(form["query"][0])
        self.forms.append(form)
        self.headers.append(request.headers)
        self.running += 1
        self.most_running = max(self.running, self.most_running)
        await asyncio.sleep(self.delay)
        self.running -= 1
        if isinstance(self.failure, Exception):
            raise self.failure
        if self.failure is not None:
            status, body = self.failure
            return _response(status, body)
        moment = float(form.get("time", [str(self.now)])[0])
        data: dict[str, object] = {
            "resultType": "vector",
            "result": self._result(form["query"][0], moment),
        }
        answer: dict[str, object] = {"status": "success", "data": data}
        answer |= {"warnings": self.warnings} if self.warnings else {}
        answer |= {"infos": self.infos} if self.infos else {}
        answer |= {"isPartial": True} if self.partial else {}
        return _response(200, json.dumps(answer).encode())

    def _result(self, query: str, moment: float) -> list[object]:
        result: list[object] = []
        taken: set[tuple[tuple[str, str], ...]] = set()
        for around, name, matchers, mark in _TERM.findall(query):
            found = [it for it in self.series if it.name == name and _matches(it, matchers)]
            found = [it for it in found if 0 <= moment - it.at <= self.lookback]
            if around == "count":
                found = [Held(name, {}, len(found), moment)] if found else []
            for held in found:
                value = held.at if around == "timestamp" else held.value
                labels = {**held.labels, "fusewire_ask": mark}
                key = tuple(sorted(labels.items()))
                if key in taken:
                    continue  # `or` compares labels without the name
                taken.add(key)
                if not around:
                    labels["__name__"] = name
                result.append({"metric": labels, "value": [moment, repr(value)]})
        return result


def _response(status: int, body: bytes) -> httpx2.Response:
    headers = {"location": "http://elsewhere.test/login?token=1"} if status == 302 else {}
    return httpx2.Response(status, headers=headers, stream=httpx2.ByteStream(body))


def _matches(held: Held, matchers: str) -> bool:
    for label, operator, quoted in _MATCHER.findall(matchers):
        wanted, value = json.loads(quoted), held.labels.get(label, "")
        if operator == "=" and value != wanted:
            return False
        if operator == "=~" and not re.fullmatch(wanted, value):
            return False
    return True


@dataclass
class Clock:
    """A monotonic clock that a test moves."""

    seconds: float = 0.0

    def __call__(self) -> float:
        return self.seconds


def a_server(
    fake: FakePrometheus, clock: Callable[[], float], config: PrometheusConfig | None = None
) -> StoredServer:
    client = httpx2.AsyncClient(transport=httpx2.MockTransport(fake.handle))
    return StoredServer("main", config or PrometheusConfig(url=URL), client=client, monotonic=clock)


def a_stored(
    server: StoredServer,
    clock: Callable[[], float],
    *,
    match: Mapping[str, str],
    target: str = "a",
    engine: str = "vllm",
) -> PromQLSource:
    return PromQLSource(
        ScrapeTarget(tier="chat", id=target, url="http://127.0.0.1:1", engine=engine),
        server,
        match=match,
        now=lambda: NOW,
        monotonic=clock,
    )


def an_engine(fake: FakePrometheus, *, running: float = 3.0, tokens: float = 100.0) -> None:
    """Store what a scrape of target `a` leaves."""
    fake.hold("up", 1.0, **A)
    fake.hold("scrape_duration_seconds", 0.25, **A)
    fake.hold("vllm:num_requests_running", running, **ENGINE)
    fake.hold("vllm:num_requests_waiting", running, **ENGINE)
    fake.hold("vllm:generation_tokens_total", tokens, **ENGINE)


async def one_read(fake: FakePrometheus, clock: Callable[[], float], **match: str) -> Reading:
    return await a_stored(
        a_server(fake, clock), clock, match=match or {"instance": "a:8000"}
    ).read()
