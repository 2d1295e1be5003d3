"""The proxy inside the gateway: where requests go, and what is logged of them."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from random import Random

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from collector.demo.intake import IntakeQueue
from collector.demo.proxy import Proxy

pytestmark = pytest.mark.anyio

NOW = datetime(2026, 11, 29, 15, 0, tzinfo=UTC)
TARGETS = {"a": "http://a", "b": "http://b", "c": "http://c"}
REQUEST = b'{"prompt": "x"}'


class Scene:
    """A proxy in front of three targets that answer with their own name."""

    def __init__(self, **ratios: float) -> None:
        self.ratios = dict.fromkeys(TARGETS, 1.0) | ratios
        self.intake = IntakeQueue(tier="chat")
        self.status = 200
        self.down: set[str] = set()
        self.proxy = Proxy(
            TARGETS,
            ratio_of=self.ratios.__getitem__,
            http=httpx2.AsyncClient(transport=httpx2.MockTransport(self._target)),
            intake=self.intake,
            rng=Random(1),
            clocks=(lambda: NOW, lambda: 5.0),
        )
        routes = [
            Route("/v1/completions", self.proxy.completions, methods=["POST"]),
            Route("/health", self.proxy.health),
        ]
        self.http = httpx2.AsyncClient(
            transport=httpx2.ASGITransport(app=Starlette(routes=routes)), base_url="http://gateway"
        )

    def _target(self, request: httpx2.Request) -> httpx2.Response:
        if request.url.host in self.down:
            raise httpx2.ConnectError("refused", request=request)
        return httpx2.Response(self.status, json={"from": request.url.host})

    async def send(self, times: int = 1, segment: str = "batch") -> list[httpx2.Response]:
        headers = {"x-upstream": segment}
        return [
            await self.http.post("/v1/completions", content=REQUEST, headers=headers)
            for _ in range(times)
        ]


async def test_requests_are_spread_by_the_ratios_of_the_targets() -> None:
    scene = Scene(c=0.0, b=0.5)

    answers = await scene.send(600)

    seen = Counter(answer.json()["from"] for answer in answers)
    assert set(seen) == {"a", "b"}
    assert 0.25 < seen["b"] / 600 < 0.42
    assert scene.proxy.passed == {"a": seen["a"], "b": seen["b"], "c": 0}


async def test_a_target_gets_traffic_again_when_its_ratio_rises() -> None:
    scene = Scene(c=0.0)
    await scene.send(20)
    assert scene.proxy.passed["c"] == 0

    scene.ratios["c"] = 1.0
    await scene.send(30)

    assert scene.proxy.passed["c"] > 0


async def test_an_answered_request_is_logged_with_target_and_segment() -> None:
    sent: list[bytes] = []

    def service(request: httpx2.Request) -> httpx2.Response:
        sent.append(request.content)
        return httpx2.Response(200)

    scene = Scene(b=0.0, c=0.0)
    await scene.send(segment="batch")
    async with httpx2.AsyncClient(transport=httpx2.MockTransport(service)) as http:
        await scene.intake.send_batch(http, "http://service")

    line = json.loads(sent[0])
    assert (line["tier"], line["target"], line["segment"]) == ("chat", "a", "batch")
    assert line["request"] == {"prompt": "x"}
    assert line["response"] == {"from": "a"}
    assert line["at"] == "2026-11-29T15:00:00Z"


async def test_what_a_target_refuses_is_passed_back_and_not_logged() -> None:
    scene = Scene()
    scene.status = 503

    (answer,) = await scene.send()

    assert answer.status_code == 503
    assert "retry-after" not in answer.headers
    assert len(scene.intake) == 0


async def test_a_target_that_is_down_is_502_and_counted() -> None:
    scene = Scene(b=0.0, c=0.0)
    scene.down = {"a"}

    (answer,) = await scene.send()

    assert answer.status_code == 502
    assert answer.json()["error"]["message"] == "target a: ConnectError"
    assert (await scene.http.get("/health")).json()["unreachable"] == 1


async def test_without_any_target_that_admits_the_answer_is_503_with_retry_after() -> None:
    scene = Scene(a=0.0, b=0.0, c=0.0)

    (answer,) = await scene.send()

    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "1"


async def test_health_tells_what_was_dropped() -> None:
    scene = Scene()
    await scene.send(3)

    told = (await scene.http.get("/health")).json()

    assert sum(told["passed"].values()) == 3
    assert told["generations"] == {
        "queued": 3, "sent": 0, "dropped": 0, "lost": 0, "problem": "",
    }  # fmt: skip
