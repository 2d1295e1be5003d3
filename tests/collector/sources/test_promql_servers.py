"""Real Prometheus and VictoriaMetrics scrape recorded pages: what comes back equals the page."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

import httpx2
import pytest

from collector.sources.scrape import ScrapeSource, ScrapeTarget
from collector.sources.stored.server import StoredServer
from collector.sources.stored.settings import PrometheusConfig
from collector.sources.stored.source import PromQLSource
from detectors.records import Absence, Histogram, Reading
from tests.collector.sources.reading_pages import body
from tests.collector.sources.servers import NOW
from tests.collector.sources.storing_servers import (
    Exporter,
    Stored,
    exporting,
    prometheus,
    scrape_config,
    victoria_metrics,
)

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

PAGES = (
    "vllm-0.32.0-load.txt",
    "vllm-0.32.0-kvfull.txt",
    "vllm-0.32.0-rust-load.txt",
    "vllm-0.32.0-specdecode-after.txt",
    "vllm-0.32.0-nanweights-after.txt",
    "vllm-0.10.0-created-series.txt",
    "vllm-0.9.2.post2-load.txt",
    "vllm-0.8.5.post2-kvfull.txt",
    "vllm-0.5.x-full-2024-08.txt",
    "vllm-v1-multiprocess-2-api-servers.txt",
    "prometheus-client-0.26-openmetrics-escaping-underscores.txt",
    "prometheus-client-0.26-openmetrics-allow-utf-8.txt",
    "ray-2.32-vllm-0.6.txt",
    "tgi-3.3-full-2025-09.txt",
    "tgi-1.4-loaded-then-idle-no-help.txt",
    "tgi-0.4-summaries-expired-window.txt",
    "sglang-2025-docs-full.txt",
    "llamacpp-2026.txt",
)
LOAD = body("vllm-0.32.0-load.txt")
OWN = {
    *("up", "scrape_seconds", "generation_tokens_per_second"),  # of the reading, not of the page
    "lora_adapters_active",  # the page's times against the clock of whoever reads it
}
CHANGING = ("going", "restarting", "copied")


@contextmanager
def storing(kind: str, folder: Path) -> Iterator[tuple[Stored, Exporter]]:
    """Run a server that has scraped every page twice."""
    pages = {name: body(name) for name in PAGES} | dict.fromkeys(CHANGING, LOAD)
    jobs = {name: name for name in pages} | {"copied again": "copied"}
    start = {"prometheus": prometheus, "victoria-metrics": victoria_metrics}[kind]
    with exporting(pages) as exporter, start(folder, scrape_config(exporter, jobs)) as server:
        server.wait("up == 1", len(jobs))
        yield server, exporter


@pytest.fixture(scope="module", params=["prometheus", "victoria-metrics"])
def kept(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Stored, Exporter]]:
    with storing(request.param, tmp_path_factory.mktemp("stored")) as (server, exporter):
        yield request.param, server, exporter


@pytest.fixture
async def client(anyio_backend: str) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(trust_env=False) as client:
        yield client


def from_server(
    stored: Stored, client: httpx2.AsyncClient, match: Mapping[str, str], **settings: object
) -> PromQLSource:
    config = PrometheusConfig.model_validate({"url": stored.url, **settings})
    return PromQLSource(
        ScrapeTarget(tier="chat", id="a", url="http://127.0.0.1:1"),
        StoredServer("main", config, client=client, monotonic=monotonic),
        match=match,
        now=lambda: NOW,
        monotonic=monotonic,
    )


async def from_page(exporter: Exporter, client: httpx2.AsyncClient, page: str) -> Reading:
    target = ScrapeTarget(tier="chat", id="a", url=exporter.url(page))
    source = ScrapeSource(target, client=client, now=lambda: NOW, monotonic=monotonic)
    return await source.read()


async def until(source: PromQLSource, ready: str, *, seconds: float = 15.0) -> Reading:
    """Read until a reading has `ready` in its problem (or none, for an empty one)."""
    end = monotonic() + seconds
    while True:
        reading = await source.read()
        if (ready in reading.problem) if ready else not reading.problem:
            return reading
        assert monotonic() < end, f"{reading.problem!r} has no {ready!r}"
        await asyncio.sleep(0.2)


def numbers(reading: Reading) -> dict[str, tuple[float, ...]]:
    """Return all that a reading has of its page, by name."""
    found: dict[str, tuple[float, ...]] = {}
    found |= {name: (value,) for name, value in reading.values.items() if name not in OWN}
    for signal, parts in reading.parts.items():
        found |= {f"{signal}/{part}": (value,) for part, value in parts.items()}
    found |= {signal: _all_of(it) for signal, it in reading.histograms.items()}
    return found


def _all_of(histogram: Histogram) -> tuple[float, ...]:
    return (*histogram.bounds, *histogram.counts, histogram.total, histogram.sum)


@pytest.mark.parametrize("page", PAGES)
async def test_what_comes_back_equals_the_page(
    page: str, kept: tuple[str, Stored, Exporter], client: httpx2.AsyncClient
) -> None:
    kind, stored, exporter = kept
    direct = await from_page(exporter, client, page)

    reading = await from_server(stored, client, {"job": page}).read()

    assert not reading.problem
    expected, got = numbers(direct), numbers(reading)
    assert expected.keys() == got.keys()
    exact = 0.0 if kind == "prometheus" else 1e-9  # VictoriaMetrics keeps about 12 digits
    for name, values in expected.items():
        assert len(got[name]) == len(values)
        pairs = zip(values, got[name], strict=True)
        assert all(math.isclose(*pair, rel_tol=exact) for pair in pairs), name
    assert reading.identity.engine == direct.identity.engine
    assert reading.identity.model == direct.identity.model
    assert reading.values["up"] == 1.0
    assert 0.0 <= reading.age_seconds < 10.0


async def test_a_target_that_goes_is_down_and_then_unknown_and_comes_back(
    kept: tuple[str, Stored, Exporter], client: httpx2.AsyncClient
) -> None:
    _, stored, exporter = kept
    source = from_server(stored, client, {"job": "going"})
    before = await source.read()
    del exporter.pages["going"]

    down = await until(source, "up is 0 there")
    exporter.pages["going"] = LOAD
    back = await until(source, "")

    assert before.values["up"] == 1.0
    assert down.values["up"] == 0.0
    assert down.absent["requests_running"] is Absence.SCRAPE_FAILED
    assert not (down.values.keys() & {"requests_running", "kv_cache_usage_ratio"})
    assert numbers(back).keys() == numbers(before).keys()
    assert not back.restarted


async def test_a_restart_behind_the_server_is_noticed_once(
    kept: tuple[str, Stored, Exporter], client: httpx2.AsyncClient
) -> None:
    _, stored, exporter = kept
    source = from_server(stored, client, {"job": "restarting"})
    before = await source.read()
    exporter.pages["restarting"] = body("vllm-0.32.0-idle.txt")

    readings = []
    for _ in range(25):
        readings.append(await source.read())
        await asyncio.sleep(0.2)

    assert [it.restarted for it in readings].count(True) == 1
    last = readings[-1].values["generation_tokens_total"]
    assert last >= before.values["generation_tokens_total"]


async def test_of_all_scrapes_that_match_one_is_read_and_the_rest_is_told(
    kept: tuple[str, Stored, Exporter], client: httpx2.AsyncClient
) -> None:
    _, stored, exporter = kept
    match = {"instance": exporter.address}  # every page here, and one of them twice
    pages = [await from_page(exporter, client, page) for page in exporter.pages]

    wide = await from_server(stored, client, match).read()
    copies = await from_server(stored, client, match, replica_labels=("job",)).read()

    prompts = [it.values.get("prompt_tokens_total") for it in pages]
    for reading in (wide, copies):
        told = reading.values.get("prompt_tokens_total")
        assert any(told == it or math.isclose(told or 0.0, it or 0.0) for it in prompts)
    code = "stored_series_of_several_targets"
    assert [it.text for it in wide.findings if "job" in it.text and it.code == code]
    assert code not in {it.code for it in copies.findings}


async def test_what_the_server_does_not_know_is_a_problem_in_words(
    kept: tuple[str, Stored, Exporter], client: httpx2.AsyncClient
) -> None:
    _, stored, _ = kept

    reading = await from_server(stored, client, {"job": "nobody's"}).read()
    astray = await from_server(stored, client, {"job": "x"}, url=f"{stored.url}/astray").read()

    assert 'no series with job="nobody\'s"' in reading.problem
    assert astray.problem.startswith("Prometheus server 'main': answered 4")


async def test_a_target_dropped_from_the_configuration_becomes_unknown(
    tmp_path: Path, client: httpx2.AsyncClient
) -> None:
    with (
        exporting({"load": LOAD, "other": LOAD}) as exporter,
        prometheus(tmp_path, scrape_config(exporter, {"load": "load", "other": "other"})) as stored,
    ):
        stored.wait("up == 1", 2)
        source = from_server(stored, client, {"job": "load"}, stale_after=3.0)
        before = await source.read()
        stored.reload(scrape_config(exporter, {"other": "other"}))

        # Prometheus writes no stale marker for a job that is taken out: `up` stays 1 for minutes.
        gone = await until(source, "nothing of it newer than 3 s")

    assert not before.problem
    assert gone.absent["requests_running"] is Absence.SCRAPE_FAILED


async def test_a_server_that_ends_is_told_apart_from_its_targets(
    tmp_path: Path, client: httpx2.AsyncClient
) -> None:
    with (
        exporting({"load": LOAD}) as exporter,
        prometheus(tmp_path, scrape_config(exporter, {"load": "load"})) as stored,
    ):
        stored.wait("up == 1", 1)
        source = from_server(stored, client, {"job": "load"})
        await source.read()

    reading = await source.read()

    assert reading.problem.startswith("Prometheus server 'main': cannot connect")
