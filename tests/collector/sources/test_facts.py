"""The server is asked about itself when there is a reason, one question at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import httpx2
import pytest

from collector.sources.joined import Companion, JoinedSource
from collector.sources.scrape import ScrapeSource, ScrapeTarget
from collector.sources.server.facts import FactsConfig, FactsSource, default_facts
from detectors.records import Absence, Identity
from detectors.remarks import Noticed
from tests.collector.sources.engine_server import (
    NOW,
    Clock,
    EngineServer,
    a_scrape,
    engine,
    place,
    recorded,
    said,
    tools,
)
from tests.collector.sources.reading_pages import body

pytestmark = pytest.mark.anyio
VLLM = {
    "/version": recorded("vllm-0.32.0-version.json"),
    "/v1/models": recorded("vllm-0.32.0-models.json"),
}
INFO = "/server_info?config_format=json"


@pytest.fixture
async def client() -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient() as made:
        yield made


def a_source(
    server: EngineServer, client: httpx2.AsyncClient, clock: Clock | None = None, path: str = ""
) -> FactsSource:
    config = FactsConfig(timeout=0.15)
    return FactsSource(config, place(server.url + path), tools(client, clock))


def changed(noticed: tuple[Noticed, ...]) -> list[tuple[str, str, str]]:
    return [(it.what, it.before, it.after) for it in noticed if not it.first]


async def test_a_vllm_tells_its_exact_version_its_model_and_its_context(
    client: httpx2.AsyncClient,
) -> None:
    async with engine(VLLM) as server:
        source = a_source(server, client)
        source.notice(a_scrape(version=">=0.32.0"))

        reading = await source.read()

    assert reading.identity == Identity("vllm", "0.32.0", "tiny")
    assert reading.values["context_tokens"] == 512.0
    assert reading.absent["request_slots"] is Absence.NO_FAMILY
    assert reading.up
    assert reading.problem == ""
    assert server.asked == ["/version", "/v1/models", INFO]
    assert all(it.first for it in reading.noticed)


async def test_the_base_of_the_server_is_found_from_its_metrics_page(
    client: httpx2.AsyncClient,
) -> None:
    async with engine({"/llm/info": recorded("tgi-2.0-info.json")}) as server:
        source = a_source(server, client, path="/llm/metrics")

        reading = await source.read()

    assert reading.values["batch_token_budget"] == 98304.0
    assert reading.identity.engine == "tgi"


async def test_nothing_is_asked_without_a_reason(client: httpx2.AsyncClient) -> None:
    clock = Clock()
    async with engine(VLLM) as server:
        source = a_source(server, client, clock)
        await source.read()
        asked = len(server.asked)
        readings = []
        for _ in range(20):
            source.notice(a_scrape())
            clock.seconds += 15
            readings.append(await source.read())
        assert len(server.asked) == asked  # 300 s

        clock.seconds += 301
        again = await source.read()

    assert {it.values["context_tokens"] for it in (*readings, again)} == {512.0}
    assert server.asked[asked:] == ["/version", "/v1/models"]  # what is missing is not asked again


async def test_a_restart_is_asked_after(client: httpx2.AsyncClient) -> None:
    async with engine(VLLM) as server:
        source = a_source(server, client)
        await source.read()
        server.routes["/version"] = said({"version": "0.33.0"})

        source.notice(replace(a_scrape(), restarted=True))
        source.notice(a_scrape())
        first, second = await source.read(), await source.read()

    assert changed(first.noticed) == [("version", "0.32.0", "0.33.0")]
    assert second.noticed == ()
    assert INFO in server.asked[3:]  # the new server may have it


@pytest.mark.parametrize("page", ["recovery", "version", "model"])
async def test_a_page_that_comes_back_or_names_another_server_is_a_reason(
    client: httpx2.AsyncClient, page: str
) -> None:
    async with engine(VLLM) as server:
        source = a_source(server, client)
        source.notice(a_scrape())
        await source.read()
        asked = len(server.asked)

        if page == "recovery":
            source.notice(a_scrape(problem="cannot connect"))
        await source.read()
        assert len(server.asked) == asked  # a server that is down is left alone
        version, model = {"version": ("9.9", "tiny"), "model": ("0.32.0", "big")}.get(
            page, ("0.32.0", "tiny")
        )
        source.notice(a_scrape(version=version, model=model))
        await source.read()

    assert len(server.asked) > asked


async def test_another_engine_at_the_address_starts_anew(client: httpx2.AsyncClient) -> None:
    async with engine(VLLM) as server:
        source = a_source(server, client)
        await source.read()
        server.routes = {"/info": recorded("tgi-2.0-info.json")}

        source.notice(replace(a_scrape(engine="tgi", version="", model=""), restarted=True))
        reading = await source.read()

    assert ("engine", "vllm", "tgi") in changed(reading.noticed)
    assert reading.identity == Identity("tgi", "2.0.1", "owner/model-7b")
    assert [it for it in changed(reading.noticed) if it[0] == "dtype"] == []


async def test_adapters_that_come_and_go_are_noticed(client: httpx2.AsyncClient) -> None:
    clock = Clock()
    async with engine({"/v1/models": recorded("vllm-lora-models.json")}) as server:
        source = a_source(server, client, clock)
        await source.read()
        base = {"id": "base", "root": "owner/base-7b", "parent": None, "owned_by": "vllm"}
        server.routes["/v1/models"] = said({"data": [base]})

        clock.seconds += 601
        reading = await source.read()

    assert changed(reading.noticed) == [("loras", "2: chat, sql", "0")]


async def test_wrong_credentials_are_a_finding_that_says_what_to_do(
    client: httpx2.AsyncClient,
) -> None:
    def guarded(_: bytes) -> tuple[int, bytes]:
        wanted = "authorization: bearer right"
        right = wanted in server.heads[-1].lower()
        return VLLM["/v1/models"] if right else (401, recorded("vllm-0.32.0-err-401.json")[1])

    async with engine({"/version": VLLM["/version"], "/v1/models": guarded}) as server:
        without = await a_source(server, client).read()
        headers = {"Authorization": "Bearer right"}
        keyed = FactsSource(FactsConfig(), place(server.url, headers), tools(client))
        with_key = await keyed.read()

    (finding,) = without.findings
    assert finding.code == "facts_refused"
    assert "give the target's key" in finding.text
    assert with_key.findings == ()
    assert with_key.values["context_tokens"] == 512.0


async def test_silence_costs_one_wait_and_is_asked_again_ever_less_often(
    client: httpx2.AsyncClient,
) -> None:
    clock = Clock()
    async with engine({"/version": None}) as server:
        source = a_source(server, client, clock)
        asked_at = []
        reading = await source.read()
        for _ in range(8):
            clock.seconds += 15
            before = len(server.asked)
            reading = await source.read()
            if len(server.asked) > before:
                asked_at.append(clock.seconds - 1000)

    assert asked_at == [15, 45, 105]
    assert set(server.asked) == {"/version"}
    assert not reading.up
    assert "no whole answer within 0.15 s" in reading.problem
    assert reading.absent["context_tokens"] is Absence.SCRAPE_FAILED


async def test_a_silent_last_endpoint_takes_nothing_from_the_others(
    client: httpx2.AsyncClient,
) -> None:
    async with engine({**VLLM, INFO: None}) as server:
        source = a_source(server, client)
        source.notice(a_scrape())

        reading = await source.read()

    assert reading.up
    assert reading.values["context_tokens"] == 512.0


@pytest.mark.parametrize(
    "answer",
    [
        (200, b"<html></html>"),
        (200, b""),
        (200, b"[" * 100_000),
        (200, b'{"data":[{"id":7}]}' + b" " * 5_000_000),
        (500, b"oops"),
        (301, b""),
        (200, b'{"data":"\xff"}'),
    ],
    ids=["html", "empty", "deep", "large", "500", "redirect", "not utf-8"],
)
async def test_nonsense_is_a_problem_in_words_and_nothing_is_known(
    client: httpx2.AsyncClient, answer: tuple[int, bytes]
) -> None:
    paths = ("/version", "/v1/models", INFO)
    async with engine(dict.fromkeys(paths, answer)) as server:
        source = a_source(server, client)
        source.notice(a_scrape())

        reading = await source.read()

    assert len(reading.problem.split()) > 1
    assert "oops" not in reading.problem
    assert reading.values["up"] == 0.0
    assert "context_tokens" not in reading.values


async def test_nobody_there_is_a_problem_and_not_an_error(client: httpx2.AsyncClient) -> None:
    source = FactsSource(FactsConfig(), place("http://127.0.0.1:9"), tools(client))

    reading = await source.read()

    assert "the connection broke" in reading.problem
    assert source.stats().outcomes == {"failed": 1}


async def test_questions_never_overlap_and_none_makes_the_engine_work(
    client: httpx2.AsyncClient,
) -> None:
    async with engine({}) as server:
        await a_source(server, client).read()

    assert server.most_at_once == 1
    assert len(server.asked) == 8
    assert not {"/health", "/generate", "/v1/completions", "/health_generate"} & set(server.asked)


async def test_switched_off_it_asks_nothing(client: httpx2.AsyncClient) -> None:
    async with engine(VLLM) as server:
        source = FactsSource(FactsConfig(enabled=False), place(server.url), tools(client))
        source.notice(replace(a_scrape(), restarted=True))

        reading = await source.read()

    assert server.asked == []
    assert reading.noticed == ()


async def test_a_limit_that_the_restarted_server_does_not_tell_is_not_that_of_the_old_one(
    client: httpx2.AsyncClient,
) -> None:
    async with engine({**VLLM, INFO: recorded("vllm-0.32.0-server-info.json")}) as server:
        source = a_source(server, client)
        before = await source.read()
        del server.routes[INFO]  # developer mode is off now

        source.notice(replace(a_scrape(), restarted=True))
        after = await source.read()

    assert "request_slots" in before.values
    assert "request_slots" not in after.values
    assert after.values["context_tokens"] == before.values["context_tokens"]


async def test_what_a_server_left_unanswered_is_asked_again_soon(
    client: httpx2.AsyncClient,
) -> None:
    clock = Clock()
    async with engine({"/version": said({"version": "0.32.0"}), "/v1/models": None}) as server:
        source = FactsSource(FactsConfig(timeout=0.1), place(server.url), tools(client, clock))
        source.notice(a_scrape())
        await source.read()
        server.routes |= VLLM

        clock.seconds += 16
        reading = await source.read()

    assert reading.values["context_tokens"] == 512.0


async def test_what_is_read_joins_the_scrapes_and_feeds_their_ratios(
    client: httpx2.AsyncClient,
) -> None:
    page = (200, body("vllm-0.32.0-load.txt"))
    info = recorded("vllm-0.32.0-server-info.json")
    async with engine({**VLLM, "/metrics": page, INFO: info}) as server:
        clock = Clock()
        facts = default_facts().build(place(server.url), tools(client, clock))
        main = ScrapeSource(
            ScrapeTarget("chat", "a", server.url), client=client, now=lambda: NOW, monotonic=clock
        )
        joined = JoinedSource(main, [Companion(facts, 15.0)], monotonic=clock)
        await joined.read()

        await joined.keep(0, await facts.read())
        reading = await joined.read()

    assert reading.values["request_slots"] == 8.0
    assert reading.values["context_tokens"] == 512.0
    assert "request_slots" not in reading.absent
