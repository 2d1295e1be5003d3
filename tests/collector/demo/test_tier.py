"""The recorded tier as its callers see it: three targets and a control port."""

from __future__ import annotations

import json

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

from collector.demo.recorded import BASELINE, HOT, Exchange, read_exchanges
from collector.demo.tier import recorded_tier

PORTS = {9741: "a", 9742: "b", 9743: "c"}
CONTROL = "http://127.0.0.1:9744"

pytestmark = pytest.mark.anyio


def a_http() -> httpx2.AsyncClient:
    """A client of a new tier; the port in the URL chooses the target."""
    app = recorded_tier(PORTS, seed=1).app()
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app))


def target(name: str, path: str) -> str:
    port = next(port for port, found in PORTS.items() if found == name)
    return f"http://127.0.0.1:{port}{path}"


async def waiting(http: httpx2.AsyncClient, name: str) -> float:
    page = (await http.get(target(name, "/metrics"))).text
    families = {family.name: family for family in text_string_to_metric_families(page)}
    return families["vllm:num_requests_waiting"].samples[0].value


@pytest.fixture(scope="module")
def asked() -> Exchange:
    return read_exchanges(BASELINE)[0]


async def test_each_target_serves_pages_version_and_health() -> None:
    async with a_http() as http:
        for name in PORTS.values():
            page = await http.get(target(name, "/metrics"))
            assert page.headers["content-type"].startswith("text/plain; version=1.0.0")
            assert "vllm:kv_cache_usage_perc" in page.text
            assert (await http.get(target(name, "/version"))).json() == {"version": "0.32.0"}
            assert (await http.get(target(name, "/health"))).status_code == 200


async def test_a_scene_changes_the_targets_it_names_and_no_other() -> None:
    async with a_http() as http:
        answer = await http.put(f"{CONTROL}/scene", json={"targets": ["c"], "scene": "kvfull"})

        assert answer.json()["playing"] == {"a": "normal", "b": "normal", "c": "kvfull"}
        assert await waiting(http, "c") > 0
        assert await waiting(http, "a") == 0


async def test_completions_are_the_recorded_answers_of_the_set_in_force(asked: Exchange) -> None:
    hot = next(row for row in read_exchanges(HOT) if row.prompt == asked.prompt)
    async with a_http() as http:
        plain = await http.post(target("a", "/v1/completions"), content=asked.request)
        await http.put(f"{CONTROL}/scene", json={"answers": HOT})
        changed = await http.post(target("b", "/v1/completions"), content=asked.request)

    assert plain.json()["choices"] == json.loads(asked.response)["choices"]
    assert changed.json()["choices"] == json.loads(hot.response)["choices"]


@pytest.mark.parametrize(
    ("order", "problem"),
    [
        ({"targets": ["d"], "scene": "kvfull"}, "not of this tier"),
        ({"targets": ["c"], "scene": "fire"}, "expected one of"),
        ({"answers": "z-unknown"}, "expected one of"),
        ({"target": "c"}, "Extra inputs"),
    ],
)
async def test_an_order_that_cannot_be_followed_changes_nothing(
    order: dict[str, object], problem: str
) -> None:
    async with a_http() as http:
        answer = await http.put(f"{CONTROL}/scene", json=order)

        assert answer.status_code == 422
        assert problem in answer.json()["detail"]
        assert await waiting(http, "c") == 0


async def test_targets_and_control_answer_on_their_own_ports_only(asked: Exchange) -> None:
    async with a_http() as http:
        answers = [
            await http.put(target("a", "/scene"), json={"answers": HOT}),
            await http.get(f"{CONTROL}/metrics"),
            await http.get(f"{CONTROL}/version"),
            await http.post(f"{CONTROL}/v1/completions", content=asked.request),
        ]

    assert [answer.status_code for answer in answers] == [404] * 4


@pytest.mark.parametrize("body", [b"", b"{", b'{"prompt": 3}', b"\xff"])
async def test_a_body_that_is_no_completion_request_is_400(body: bytes) -> None:
    async with a_http() as http:
        answer = await http.post(target("a", "/v1/completions"), content=body)

    assert answer.status_code == 400
