"""One server for many targets: rounds, bounds, and what is said when it fails."""

from __future__ import annotations

import httpx2
import pytest

from collector.sources.stored.settings import PrometheusConfig
from detectors.records import Absence
from tests.collector.sources.fake_prometheus import (
    URL,
    Clock,
    FakePrometheus,
    a_server,
    a_stored,
    an_engine,
    one_read,
)

pytestmark = pytest.mark.anyio


@pytest.fixture
def fake() -> FakePrometheus:
    return FakePrometheus()


@pytest.fixture
def clock() -> Clock:
    return Clock()


async def test_the_age_is_that_of_the_sample_and_grows_while_the_share_waits(
    fake: FakePrometheus, clock: Clock
) -> None:
    an_engine(fake)
    fake.now += 12.0
    server = a_server(fake, clock)
    first = a_stored(server, clock, match={"instance": "a:8000"})
    second = a_stored(server, clock, match={"instance": "b:8000"}, target="b")
    fake.hold("vllm:num_requests_running", 1.0, instance="b:8000")

    now = await first.read()
    asked = len(fake.queries)
    clock.seconds += 4.0
    later = await second.read()

    assert now.age_seconds == pytest.approx(12.0)
    assert later.age_seconds == pytest.approx(4.0)
    assert len(fake.queries) == asked  # one round served both


ERRORS = {
    "400": (400, b'{"status":"error","errorType":"bad_data","error":"parse error"}', "parse error"),
    "401": (401, b"no org id", "tenant (no org id)"),
    "403": (403, b"", "refuses these credentials"),
    "404": (404, b"404 page not found", "/prometheus"),
    "422": (422, b'{"status":"error","errorType":"execution","error":"too many"}', "too many"),
    "429": (429, b"", "overload"),
    "503": (503, b'{"status":"error","errorType":"timeout","error":"late"}', "timeout: late"),
    "html": (200, b"<html>login</html>", "proxy"),
    "json": (200, b'{"data":[]}', "another form"),
    "text": (200, b"ok", "not JSON"),
    "failed": (200, b'{"status":"error","error":"x"}', "the query failed: x"),
    "matrix": (200, b'{"status":"success","data":{"resultType":"matrix","result":[]}}', "matrix"),
    "moved": (302, b"", "redirect"),
}


@pytest.mark.parametrize("case", ERRORS)
async def test_what_goes_wrong_is_said_in_words(
    case: str, fake: FakePrometheus, clock: Clock
) -> None:
    status, body, words = ERRORS[case]
    fake.failure = (status, body)

    reading = await one_read(fake, clock)

    assert reading.problem.startswith("Prometheus server 'main': ")
    assert words in reading.problem
    assert reading.absent["requests_running"] is Absence.SCRAPE_FAILED


async def test_a_server_that_fails_again_and_again_is_asked_less_often(
    fake: FakePrometheus, clock: Clock
) -> None:
    source = a_stored(a_server(fake, clock), clock, match={"instance": "a:8000"})
    fake.failure = httpx2.ConnectError("refused")
    for _ in range(60):  # five minutes
        assert "refused" in (await source.read()).problem
        clock.seconds += 5.0
    asked = len(fake.queries)
    fake.failure = None
    an_engine(fake)
    clock.seconds += 60.0
    healed = await source.read()

    assert asked <= 20  # of 120
    assert healed.values["requests_running"] == 3.0


async def test_many_targets_share_rounds_and_a_bound_of_queries(
    fake: FakePrometheus, clock: Clock
) -> None:
    config = PrometheusConfig(url=URL, batch=25, concurrency=3)
    server = a_server(fake, clock, config)
    sources = []
    for number in range(100):
        instance = f"10.0.0.{number}:8000"
        fake.hold("up", 1.0, instance=instance, job="vllm")
        fake.hold("vllm:num_requests_running", float(number), instance=instance, job="vllm")
        match = {"instance": instance}
        sources.append(a_stored(server, clock, match=match, target=f"t{number}"))
    fake.delay = 0.001
    first = [await source.read() for source in sources]
    searched = len(fake.queries)
    clock.seconds += 5.0
    fake.now += 5.0
    again = [await source.read() for source in sources]

    assert [it.values["requests_running"] for it in first] == list(range(100))
    assert [it.values["requests_running"] for it in again] == list(range(100))
    assert fake.most_running == 3
    assert len(fake.queries) - searched <= 30  # of 100 targets


async def test_one_that_leaves_is_not_asked_for_any_more(
    fake: FakePrometheus, clock: Clock
) -> None:
    server = a_server(fake, clock)
    one = a_stored(server, clock, match={"instance": "a:8000"})
    two = a_stored(server, clock, match={"instance": "b:8000"}, target="b")
    an_engine(fake)
    await one.read()
    await two.close()
    fake.queries.clear()

    reading = await one.read()

    assert reading.values["requests_running"] == 3.0
    assert not any("b:8000" in query for query in fake.queries)


async def test_tenant_and_wishes_are_sent_and_no_name_pattern(
    fake: FakePrometheus, clock: Clock
) -> None:
    config = PrometheusConfig(url=f"{URL}/prometheus", tenant="team-a", partial_response=False)
    an_engine(fake)

    await a_stored(a_server(fake, clock, config), clock, match={"job": "vllm"}).read()

    assert all(it["x-scope-orgid"] == "team-a" for it in fake.headers)
    assert all(it["partial_response"] == ["false"] for it in fake.forms)
    assert not any("__name__" in query for query in fake.queries)


async def test_a_target_that_joins_does_not_make_the_others_be_searched_anew(
    fake: FakePrometheus, clock: Clock
) -> None:
    server = a_server(fake, clock, PrometheusConfig(url=URL, batch=1))
    one = a_stored(server, clock, match={"instance": "a:8000"})
    an_engine(fake)
    await one.read()
    a_stored(server, clock, match={"instance": "b:8000"}, target="b")
    fake.queries.clear()

    await one.read()

    assert fake.queries
    assert not any("count(" in query for query in fake.queries)
