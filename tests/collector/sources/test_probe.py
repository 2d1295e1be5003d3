"""The probe: one token now and then, never under load, and failure is told from refusal."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path

import httpx2
import pytest

from collector.sources.credentials import CredentialFiles, headers_for
from collector.sources.server.calm import busy, memory_margin_ratio
from collector.sources.server.probe import PROMPT, ProbeConfig, ProbeSource
from detectors.records import Absence, Reading
from tests.builders import a_reading
from tests.collector.sources.engine_server import (
    EngineServer,
    Reply,
    a_scrape,
    engine,
    place,
    recorded,
    said,
    tools,
)

pytestmark = pytest.mark.anyio
COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
ONE_TOKEN = recorded("vllm-0.32.0-completions-one-token.json")
VLLM = {"/v1/models": recorded("vllm-0.32.0-models.json"), COMPLETIONS: ONE_TOKEN}


@pytest.fixture
async def client() -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient() as made:
        yield made


def a_probe(
    server: EngineServer, client: httpx2.AsyncClient, scrape: Reading | None = None
) -> ProbeSource:
    source = ProbeSource(ProbeConfig(timeout=0.3), place(server.url), tools(client))
    source.notice(scrape or a_scrape())
    return source


async def test_an_answered_probe_is_up_with_its_time(client: httpx2.AsyncClient) -> None:
    async with engine(VLLM) as server:
        reading = await a_probe(server, client).read()

    question = json.loads(server.bodies[-1])
    assert reading.values["probe_up"] == 1.0
    assert reading.values["probe_seconds"] >= 0.0
    assert reading.values["probe_memory_margin_ratio"] == 0.75
    assert (reading.findings, reading.problem) == ((), "")
    assert question == {"model": "tiny", "prompt": PROMPT, "max_tokens": 1, "temperature": 0}


@pytest.mark.parametrize(
    "answer",
    [None, (500, b"{}"), (502, b""), (200, b"<html>"), said({"error": "x"}), said([])],
    ids=["silence", "500", "502", "html", "no generation", "empty list"],
)
async def test_an_engine_that_does_not_answer_is_down(
    client: httpx2.AsyncClient, answer: Reply | None
) -> None:
    async with engine({**VLLM, COMPLETIONS: answer}) as server:
        reading = await a_probe(server, client).read()

    assert reading.values["probe_up"] == 0.0
    assert reading.absent["probe_seconds"] is Absence.SCRAPE_FAILED
    assert reading.problem.startswith("the probe failed: ")


@pytest.mark.parametrize(
    ("values", "problem"),
    [({"requests_waiting": 1.0}, ""), ({"kv_cache_usage_ratio": 0.81}, ""), ({}, "timed out")],
)
async def test_a_busy_engine_is_left_alone_and_is_neither_up_nor_down(
    client: httpx2.AsyncClient, values: Mapping[str, float], problem: str
) -> None:
    async with engine(VLLM) as server:
        source = a_probe(server, client, a_scrape(values, problem=problem))

        reading = await source.read()

    assert server.asked == []
    assert "probe_up" not in reading.values
    assert reading.absent["probe_up"] is Absence.SKIPPED
    assert reading.up
    assert source.stats().outcomes == {"busy": 1}


def a_queue(seconds: float, *, tokens: float, problem: str = "") -> Reading:
    values = {"requests_waiting": 9.0, "generation_tokens_total": tokens}
    return replace(a_reading(values, problem=problem), monotonic_seconds=seconds)


@pytest.mark.parametrize(
    ("last", "asked"),
    [
        (a_queue(120.0, tokens=50.0), True),
        (a_queue(119.9, tokens=50.0), False),
        (a_queue(120.0, tokens=51.0), False),
        (a_queue(120.0, tokens=50.0, problem="timeout"), False),
    ],
    ids=["still", "not for long", "works", "not read"],
)
async def test_a_queue_before_an_engine_that_makes_no_token_is_no_load(
    client: httpx2.AsyncClient, last: Reading, asked: bool
) -> None:
    async with engine({**VLLM, COMPLETIONS: None}) as server:
        source = a_probe(server, client, a_queue(100.0, tokens=50.0))
        source.notice(last)
        reading = await source.read()

    assert (reading.values.get("probe_up") == 0.0) is asked
    assert (COMPLETIONS in server.asked) is asked


async def test_before_the_first_scrape_nothing_is_asked(client: httpx2.AsyncClient) -> None:
    async with engine(VLLM) as server:
        source = ProbeSource(ProbeConfig(), place(server.url), tools(client))

        reading = await source.read()

    assert server.asked == []
    assert reading.absent["probe_up"] is Absence.SKIPPED
    assert reading.absent["probe_memory_margin_ratio"] is Absence.NO_DATA


@pytest.mark.parametrize("status", [429, 503])
async def test_a_full_queue_is_no_failure(client: httpx2.AsyncClient, status: int) -> None:
    full = (status, recorded("vllm-0.32.0-err-503.json")[1])
    async with engine({**VLLM, COMPLETIONS: full}) as server:
        reading = await a_probe(server, client).read()

    assert reading.absent["probe_up"] is Absence.SKIPPED
    assert reading.problem == ""


@pytest.mark.parametrize("status", [400, 401, 403, 422])
async def test_a_refused_question_is_a_finding_and_not_a_failure(
    client: httpx2.AsyncClient, status: int
) -> None:
    async with engine({**VLLM, COMPLETIONS: (status, b"{}")}) as server:
        reading = await a_probe(server, client).read()

    (finding,) = reading.findings
    assert finding.code == "probe_refused"
    assert f"answered {status}" in finding.text
    assert reading.absent["probe_up"] is Absence.UNUSABLE
    assert reading.up


async def test_a_server_of_chat_only_is_asked_by_chat_from_then_on(
    client: httpx2.AsyncClient,
) -> None:
    chat = recorded("vllm-0.32.0-chat-top20.json")
    async with engine({"/v1/models": VLLM["/v1/models"], CHAT: chat}) as server:
        source = a_probe(server, client)

        first, second = await source.read(), await source.read()

    assert first.values["probe_up"] == second.values["probe_up"] == 1.0
    assert server.asked == ["/v1/models", COMPLETIONS, CHAT, CHAT]
    assert json.loads(server.bodies[-1])["messages"] == [{"role": "user", "content": PROMPT}]


async def test_tgi_is_asked_in_its_own_form(client: httpx2.AsyncClient) -> None:
    async with engine({"/generate": recorded("tgi-1.0-generate-one-token.json")}) as server:
        reading = await a_probe(server, client, a_scrape(engine="tgi")).read()

    assert server.asked == ["/generate"]
    assert json.loads(server.bodies[0])["parameters"]["max_new_tokens"] == 1
    assert reading.values["probe_up"] == 1.0


async def test_a_model_that_was_renamed_is_found_again(client: httpx2.AsyncClient) -> None:
    served = ["tiny"]

    def answer(question: bytes) -> Reply:
        return ONE_TOKEN if json.loads(question)["model"] == served[0] else (404, b"{}")

    async with engine({**VLLM, COMPLETIONS: answer}) as server:
        source = a_probe(server, client)
        await source.read()
        served[0] = "other"
        server.routes["/v1/models"] = said({"data": [{"id": "other"}]})
        during = await source.read()
        after = await source.read()

    assert during.findings[0].code == "probe_refused"
    assert after.values["probe_up"] == 1.0


async def test_the_key_of_the_target_goes_along(client: httpx2.AsyncClient) -> None:
    headers = {"Authorization": "Bearer key-of-the-target"}
    async with engine({COMPLETIONS: ONE_TOKEN}) as server:
        config = ProbeConfig(model="tiny")
        source = ProbeSource(config, place(server.url + "/metrics", headers), tools(client))
        source.notice(a_scrape())

        await source.read()

    assert server.asked == [COMPLETIONS]
    assert "bearer key-of-the-target" in server.heads[0].lower()


async def test_credentials_that_cannot_be_read_are_no_failure_of_the_engine(
    client: httpx2.AsyncClient, tmp_path: Path
) -> None:
    files = CredentialFiles(bearer_token=tmp_path / "missing")
    async with engine(VLLM) as server:
        headers = headers_for(server.url, files, insecure_http=False)
        source = ProbeSource(ProbeConfig(), place(server.url, headers), tools(client))
        source.notice(a_scrape())

        reading = await source.read()

    assert server.asked == []
    assert reading.up
    assert reading.absent["probe_up"] is Absence.UNUSABLE
    assert "no credentials" in reading.findings[0].text


@pytest.mark.parametrize(("usage", "low"), [(0.91, True), (0.89, False), (0.5, False)])
async def test_little_free_memory_is_a_finding_also_while_nothing_is_asked(
    client: httpx2.AsyncClient, usage: float, low: bool
) -> None:
    async with engine(VLLM) as server:
        source = a_probe(server, client, a_scrape({"kv_cache_usage_ratio": usage}))

        reading = await source.read()

    assert [it.code for it in reading.findings] == (["probe_memory_margin_low"] if low else [])


def test_the_margin_is_of_the_fullest_device_where_gpus_are_told() -> None:
    reading = a_reading({"kv_cache_usage_ratio": 0.1})
    gpus = {
        "gpu_memory_used_bytes": {"0": 70e9, "1": 76e9, "2": 1.0},
        "gpu_memory_total_bytes": {"0": 80e9, "1": 80e9, "2": 0.0},
    }

    assert memory_margin_ratio(reading) == 0.9
    assert memory_margin_ratio(replace(reading, parts=gpus)) == pytest.approx(0.05)
    assert memory_margin_ratio(a_reading(problem="down")) is None
    assert memory_margin_ratio(a_reading({})) is None


def test_a_page_without_the_signals_of_load_is_no_obstacle() -> None:
    assert busy(a_reading({"up": 1.0})) == ""
    assert busy(None)
    assert busy(a_reading(problem="timed out"))
    assert busy(a_reading({"requests_waiting": 3.0})) == "3 requests are waiting"
    assert busy(a_reading({"requests_waiting": 0.0, "kv_cache_usage_ratio": 0.8})) == ""
