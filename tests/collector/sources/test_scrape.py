"""The HTTP source against real servers that misbehave: each costs its own slot, nothing else."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Callable
from time import monotonic

import httpx2
import pytest

from collector.sources.engine import understanding
from collector.sources.engine.engines import ENGINES
from collector.sources.engine.translation import Translation
from collector.sources.engine.understanding import offered
from collector.sources.fetch import Outcome
from collector.sources.scrape import LARGE_BYTES, ScrapeSource, ScrapeTarget, metrics_url
from detectors.records import Absence, Reading
from tests.collector.busy_threads import busy_threads, turns
from tests.collector.sources.reading_pages import body
from tests.collector.sources.servers import (
    NOW,
    PAGE,
    Answer,
    a_source,
    bomb,
    dripping,
    endless,
    garbage,
    hanging_up,
    serving,
    silence,
    text,
    zipped,
)

pytestmark = pytest.mark.anyio
MEGABYTE = 1_048_576
GZIP = "Content-Encoding: gzip\r\n"


@pytest.fixture
async def client() -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient() as made:
        yield made


async def test_a_good_page_becomes_a_reading(client: httpx2.AsyncClient) -> None:
    async with serving(text(body("vllm-0.32.0-load.txt"))) as server:
        source = a_source(server.url, client)

        reading = await source.read()

    assert reading.up
    assert (reading.tier, reading.target, reading.source) == ("chat", "a", "scrape")
    assert reading.at == NOW
    assert reading.values["up"] == 1.0
    assert reading.values["scrape_seconds"] == reading.scrape_seconds > 0.0
    assert reading.values["requests_waiting"] == 45.0
    assert reading.histograms["ttft_seconds"].total == 55.0
    assert reading.identity.engine == "vllm"
    assert reading.absent["batch_tokens"] is Absence.NOT_IN_VERSION
    assert source.stats().outcomes == {Outcome.READ: 1}
    assert source.stats().aliases["kv_cache_usage_ratio"] == "vllm_kv_cache_usage_perc"


async def test_the_request_asks_for_classic_text_at_the_right_path(
    client: httpx2.AsyncClient,
) -> None:
    async with serving(text(PAGE)) as server:
        await a_source(server.url + "/", client).read()

    request = server.requests[0].decode()
    assert request.startswith("GET /metrics HTTP/1.1\r\n")
    assert "accept: text/plain;version=0.0.4;q=1, */*;q=0.1" in request.lower()
    assert "accept-encoding: gzip\r\n" in request.lower()


async def test_headers_of_the_target_are_sent(client: httpx2.AsyncClient) -> None:
    async with serving(text(PAGE)) as server:
        target = ScrapeTarget("chat", "a", server.url, headers={"Authorization": "Bearer x"})
        await ScrapeSource(target, client=client, now=lambda: NOW, monotonic=monotonic).read()

    assert b"bearer x" in server.requests[0].lower()


@pytest.mark.parametrize("members", [1, 2, 30])
async def test_gzip_is_read_whole_also_in_several_members(
    client: httpx2.AsyncClient, members: int
) -> None:
    parts = [b"#\n"] * (members - 1) + [PAGE]
    packed = b"".join(map(gzip.compress, parts))
    async with serving(text(packed, headers=GZIP)) as server:
        reading = await a_source(server.url, client).read()

    assert reading.values["requests_running"] == 3.0


@pytest.mark.parametrize("kind", ["application/json", "text/html", "text/plain; version=1.0.0", ""])
async def test_the_content_type_is_not_believed(client: httpx2.AsyncClient, kind: str) -> None:
    async with serving(text(PAGE, headers=f"Content-Type: {kind}\r\n")) as server:
        reading = await a_source(server.url, client).read()

    assert reading.up
    assert reading.values["requests_running"] == 3.0


FAILURES: dict[str, tuple[Callable[[], Answer], Outcome, str]] = {
    "silent": (lambda: silence, Outcome.TIMEOUT, "no whole answer within 0.3 s"),
    "dripping": (lambda: dripping, Outcome.TIMEOUT, "no whole answer within 0.3 s"),
    "hanging up": (lambda: hanging_up, Outcome.CONNECTION, "broke before a page came"),
    "not HTTP": (lambda: garbage, Outcome.CONNECTION, "broke before a page came"),
    "500": (lambda: text(PAGE, status="500 Oops"), Outcome.STATUS, "answered 500 Oops: expected"),
    "404": (lambda: text(b"", status="404 No"), Outcome.STATUS, "no metrics page there"),
    "redirect": (
        lambda: text(b"", status="307 Moved", headers="Location: /metrics/?ticket=hush\r\n"),
        Outcome.REDIRECT,
        "a redirect to '/metrics/'",
    ),
    "html": (lambda: text(b"<!doctype html><p>hi</p>"), Outcome.HTML, "answered HTML, not metrics"),
    "json": (lambda: text(b'{"detail":"No"}'), Outcome.JSON, "answered JSON, not metrics"),
    "text": (lambda: text(b"pong\n"), Outcome.NOT_METRICS, "without one metrics line"),
    "binary": (lambda: text(b"\0\xff" * 500), Outcome.NOT_METRICS, "without one metrics line"),
    "short gzip": (lambda: zipped(PAGE * 50, keep=40), Outcome.GZIP, "gzip: it ends early"),
    "second member cut": (
        lambda: text(gzip.compress(PAGE) + gzip.compress(PAGE)[:15], headers=GZIP),
        Outcome.GZIP,
        "gzip: it ends early",
    ),
    "garbage after gzip": (
        lambda: text(gzip.compress(PAGE) + b"garbage", headers=GZIP),
        Outcome.GZIP,
        "broken gzip",
    ),
    "countless members": (
        lambda: text(gzip.compress(b"") * 65 + gzip.compress(PAGE), headers=GZIP),
        Outcome.GZIP,
        "more than 64 members",
    ),
    "no gzip": (lambda: text(PAGE, headers=GZIP), Outcome.GZIP, "broken gzip"),
    "brotli": (
        lambda: text(PAGE, headers="Content-Encoding: br\r\n"),
        Outcome.ENCODING,
        "only gzip was offered",
    ),
    "bomb": (lambda: bomb(40 * MEGABYTE), Outcome.TOO_LARGE, "larger than 4,194,304 bytes"),
    "endless": (lambda: endless(100 * MEGABYTE), Outcome.TOO_LARGE, "larger than 4,194,304 bytes"),
    "no body": (lambda: text(b"", length=500), Outcome.CONNECTION, "the connection broke"),
    "half a line": (
        lambda: text(PAGE[:20], length=500),
        Outcome.CONNECTION,
        "broke before the first whole line",
    ),
}


@pytest.mark.parametrize("kind", FAILURES)
async def test_trouble_of_the_target_is_a_reading_with_a_problem(
    client: httpx2.AsyncClient, kind: str
) -> None:
    answer, outcome, words = FAILURES[kind]
    async with serving(answer()) as server:
        quick = outcome is Outcome.TIMEOUT
        source = a_source(
            server.url, client, timeout_seconds=0.3 if quick else 20.0, max_bytes=4 * MEGABYTE
        )

        reading = await source.read()

    assert not reading.up
    assert words in reading.problem
    assert reading.values["up"] == 0.0
    assert set(reading.absent.values()) == {Absence.SCRAPE_FAILED}
    assert set(reading.absent) == offered(ENGINES)
    assert source.stats().outcomes == {outcome: 1}


async def test_a_refused_connection_and_a_bad_url_are_told(client: httpx2.AsyncClient) -> None:
    async with serving(silence) as server:
        closed = server.url

    refused = await a_source(closed, client).read()
    strange = await a_source("ftp://127.0.0.1/metrics", client).read()

    assert "cannot connect" in refused.problem
    assert "expected http:// or https://" in strange.problem


async def test_a_page_that_ends_early_is_used_up_to_its_last_whole_line(
    client: httpx2.AsyncClient,
) -> None:
    page = body("vllm-0.32.0-load.txt")
    async with serving(text(page[:30_000], length=len(page))) as server:
        source = a_source(server.url, client)

        reading = await source.read()

    assert reading.up
    assert reading.values["requests_waiting"] == 45.0
    assert reading.absent["decode_seconds"] is Absence.SCRAPE_FAILED
    assert reading.absent["e2e_seconds"] is Absence.UNUSABLE, "the cut goes through it"
    assert source.stats().outcomes == {Outcome.CUT: 1}
    assert source.stats().skipped["cut"] == 1


async def test_an_empty_answer_is_up_with_no_data(client: httpx2.AsyncClient) -> None:
    async with serving(text(b"")) as server:
        source = a_source(server.url, client)

        reading = await source.read()

    assert reading.up
    assert set(reading.absent.values()) == {Absence.NO_DATA}
    assert source.stats().outcomes == {Outcome.NO_DATA: 1}


async def a_read_without_threads(source: ScrapeSource, fetched: asyncio.Event) -> Reading | None:
    """Read while no thread is to be had; None if the page cannot be understood without one."""
    async with busy_threads():
        read = asyncio.create_task(source.read())
        await fetched.wait()
        await turns()
        done = read.done()
    reading = await read
    return reading if done else None


@pytest.mark.parametrize(
    ("size", "seen", "on_the_loop"),
    [
        pytest.param(0, True, True, id="small and known"),
        pytest.param(0, False, False, id="small and new: each key is parsed"),
        pytest.param(LARGE_BYTES, True, False, id="large"),
    ],
)
async def test_a_page_is_understood_on_the_loop_only_if_it_is_small_and_known(
    client: httpx2.AsyncClient, *, size: int, seen: bool, on_the_loop: bool
) -> None:
    fetched = asyncio.Event()
    calls = 0

    def counting() -> float:
        nonlocal calls
        calls += 1
        if calls % 2 == 0:  # a read asks when it starts, and when the page is there
            fetched.set()
        return float(calls)

    page = b"# nothing of interest\n" * (size // 22 + 1) + PAGE
    async with serving(text(page)) as server:
        target = ScrapeTarget("chat", "a", server.url)
        source = ScrapeSource(target, client=client, now=lambda: NOW, monotonic=counting)
        if seen:
            await source.read()
            fetched.clear()

        reading = await a_read_without_threads(source, fetched)

    assert (reading is not None) is on_the_loop
    if reading is not None:
        assert reading.values["requests_running"] == 3.0


async def test_a_bad_target_costs_its_own_slot_only(client: httpx2.AsyncClient) -> None:
    async with serving(silence) as silent, serving(endless(100 * MEGABYTE)) as huge:
        async with serving(text(PAGE)) as good:
            bad = [
                asyncio.create_task(a_source(url, client, timeout_seconds=20.0).read())
                for url in (silent.url, silent.url, huge.url)
            ]
            await asyncio.sleep(0)

            readings = [await a_source(good.url, client).read() for _ in range(5)]

            waiting = [not task.done() for task in bad[:2]]
        for task in bad:
            task.cancel()
        await asyncio.gather(*bad, return_exceptions=True)

    assert all(reading.up for reading in readings)
    assert waiting == [True, True], "the good target was read while the silent ones were"


@pytest.mark.parametrize("error", [OverflowError, ValueError, KeyError, RecursionError])
async def test_a_page_that_gets_past_every_check_costs_its_scrape_only(
    client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    def overflowing(*_: object, **__: object) -> Translation:
        raise error("intermediate overflow in fsum")

    async with serving(text(PAGE)) as server:
        source = a_source(server.url, client)
        with monkeypatch.context() as patched:
            patched.setattr(understanding, "translate", overflowing)
            failed = await source.read()
        after = await source.read()

    assert not failed.up
    assert f"cannot be used: {error.__name__}" in failed.problem
    assert after.up
    assert source.stats().outcomes == {Outcome.UNUSABLE: 1, Outcome.READ: 1}


async def test_a_cookie_that_cannot_be_sent_back_ends_no_later_scrape(
    client: httpx2.AsyncClient,
) -> None:
    async def with_cookie(writer: asyncio.StreamWriter) -> None:
        head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(PAGE)}\r\nSet-Cookie: a=\xff\r\n\r\n"
        writer.write(head.encode("latin-1") + PAGE)

    async with serving(with_cookie) as server:
        source = a_source(server.url, client)
        readings = [await source.read() for _ in range(2)]

    assert [reading.problem for reading in readings] == ["", ""]
    assert len(client.cookies) == 0


async def test_a_head_that_the_client_cannot_take_is_a_problem_of_the_target() -> None:
    def refused(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, content="é".encode("ascii"), request=request)

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(refused)) as client:
        reading = await a_source("http://127.0.0.1:1", client).read()

    assert "head of the answer cannot be read" in reading.problem


async def test_being_cancelled_is_not_swallowed(client: httpx2.AsyncClient) -> None:
    async with serving(silence) as server:
        task = asyncio.create_task(a_source(server.url, client).read())
        await asyncio.sleep(0.05)
        task.cancel()

        with pytest.raises(asyncio.CancelledError):
            await task


async def test_a_failed_scrape_keeps_identity_and_counters(client: httpx2.AsyncClient) -> None:
    answers = [text(body("vllm-0.32.0-load.txt")), text(b"", status="503 Unavailable")]

    async def in_turn(writer: asyncio.StreamWriter) -> None:
        await answers[min(len(server.requests) - 1, 1)](writer)

    async with serving(in_turn) as server:
        source = a_source(server.url, client)
        before = await source.read()
        failed = await source.read()

    assert not failed.up
    assert failed.identity == before.identity
    assert source.stats().outcomes == {Outcome.READ: 1, Outcome.STATUS: 1}
    assert source.stats().series > 0


async def test_configured_capacities_are_in_the_reading(client: httpx2.AsyncClient) -> None:
    async with serving(text(body("tgi-3.3-full-2025-09.txt"))) as server:
        target = ScrapeTarget("chat", "a", server.url, request_slots=128, batch_token_budget=16_000)
        source = ScrapeSource(target, client=client, now=lambda: NOW, monotonic=monotonic)

        reading = await source.read()

    assert reading.values["request_slots"] == 128.0
    assert reading.values["kv_cache_usage_ratio"] == 0.0


async def test_further_wanted_signals_are_told_absent(client: httpx2.AsyncClient) -> None:
    async with serving(text(PAGE)) as server:
        source = ScrapeSource(
            ScrapeTarget("chat", "a", server.url),
            client=client,
            now=lambda: NOW,
            monotonic=monotonic,
            wanted=frozenset({"gpu_temperature_celsius"}),
        )

        reading = await source.read()

    assert reading.absent["gpu_temperature_celsius"] is Absence.NO_FAMILY


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://a:8000", "http://a:8000/metrics"),
        ("http://a:8000/?x=1", "http://a:8000/metrics?x=1"),
        ("http://a/tgi/metrics", "http://a/tgi/metrics"),
    ],
)
async def test_a_url_without_a_path_gets_the_usual_one(url: str, expected: str) -> None:
    assert metrics_url(url) == expected


async def test_an_unknown_engine_is_refused_before_serving(client: httpx2.AsyncClient) -> None:
    target = ScrapeTarget("chat", "a", "http://127.0.0.1", engine="ollama")

    with pytest.raises(ValueError, match="expected auto or one of vllm, tgi"):
        ScrapeSource(target, client=client, now=lambda: NOW, monotonic=monotonic)
