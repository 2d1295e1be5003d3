"""The gateway obeys what the receiver was told: by signed webhook, and by pulling."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import threading
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from typing import cast

import httpx2
import pytest
from starlette.applications import Starlette

from alerts.embed.receiver import FusewireReceiver
from collector.demo.gateway import SERVED, gateway, receiver_of

pytestmark = pytest.mark.anyio

KEY = bytes(range(32))
SECRET = "whsec_" + base64.b64encode(KEY).decode()
NOW = datetime(2026, 11, 29, 15, 0, tzinfo=UTC)
WALL = NOW.timestamp()
TARGETS = {"a": "http://a", "b": "http://b", "c": "http://c"}


class Scene:
    """A gateway with a clock to turn, in front of three targets that answer with their name."""

    def __init__(self) -> None:
        self.monotonic = 100.0
        self.seq = 0
        self.receiver = gateway(
            TARGETS,
            around=self._around,
            http=httpx2.AsyncClient(
                transport=httpx2.MockTransport(
                    lambda request: httpx2.Response(200, json={"from": request.url.host})
                )
            ),
            ingest_url="http://service/v1/ingest/generations",
            rng=Random(1),
            clocks=(lambda: NOW, lambda: self.monotonic),
        )
        self.http = httpx2.AsyncClient(
            transport=httpx2.ASGITransport(app=self.receiver), base_url="http://gateway"
        )

    def _around(self, app: Starlette) -> FusewireReceiver:
        chance = Random(3)
        return FusewireReceiver(
            app,
            tier="chat",
            secret=SECRET,
            path="/fusewire",
            prefixes=SERVED,
            monotonic=lambda: self.monotonic,
            wall=lambda: WALL,
            uniform=chance.uniform,
        )

    async def tell(
        self, ratio: float, *, target: str = "", lease_seconds: float = 15, key: bytes = KEY
    ) -> httpx2.Response:
        """Send what a controller would send, signed with `key`."""
        self.seq += 1
        data = {
            "schema": 1,
            "controller": "demo",
            "epoch": 1,
            "seq": self.seq,
            "tier": "chat",
            "target": {"id": target, "address": ""} if target else None,
            "state": "open" if ratio < 1 else "closed",
            "admit_ratio": ratio,
            "retry_after_seconds": 5 if ratio < 1 else 0,
            "lease": {"seconds": lease_seconds} if ratio < 1 else None,
            "dry_run": False,
        }
        body = json.dumps({"type": "fusewire.breaker.open", "data": data}).encode()
        signed = f"msg_{self.seq}.{WALL:.0f}.".encode() + body
        mac = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
        headers = {
            "webhook-id": f"msg_{self.seq}",
            "webhook-timestamp": f"{WALL:.0f}",
            "webhook-signature": f"v1,{mac}",
        }
        return await self.http.post("/fusewire", content=body, headers=headers)

    async def send(self, times: int) -> Counter[str]:
        """Send completions; count answers by target, refusals by what they are."""
        seen: Counter[str] = Counter()
        for _ in range(times):
            answer = await self.http.post("/v1/completions", content=b'{"prompt": "x"}')
            if answer.status_code == 503:
                assert 1 <= int(answer.headers["retry-after"]) <= 6
                assert answer.json()["error"]["code"] == "fusewire_breaker_open"
                seen["shed"] += 1
            else:
                seen[answer.json()["from"]] += 1
        return seen


async def test_untold_the_gateway_uses_all_targets() -> None:
    seen = await Scene().send(60)

    assert set(seen) == {"a", "b", "c"}


async def test_a_target_that_a_webhook_opened_gets_nothing() -> None:
    scene = Scene()

    answer = await scene.tell(0.0, target="c")

    assert answer.json()["applied"] is True
    assert set(await scene.send(60)) == {"a", "b"}


async def test_a_tier_that_sheds_answers_503_with_retry_after_for_its_share() -> None:
    scene = Scene()

    await scene.tell(0.3)
    seen = await scene.send(200)

    assert 110 < seen["shed"] < 170


async def test_recovery_by_ramp_gives_a_target_its_share_back() -> None:
    scene = Scene()
    await scene.tell(0.0, target="c")
    await scene.tell(0.25, target="c")
    ramped = await scene.send(300)
    await scene.tell(1.0, target="c")
    whole = await scene.send(300)

    assert 0 < ramped["c"] < 70
    assert whole["c"] > 70


async def test_without_renewal_everything_is_let_in_again() -> None:
    scene = Scene()
    await scene.tell(0.0, target="c", lease_seconds=15)
    await scene.tell(0.2, lease_seconds=15)
    scene.monotonic += 16

    seen = await scene.send(90)

    assert set(seen) == {"a", "b", "c"}


async def test_a_webhook_with_another_signature_changes_nothing() -> None:
    scene = Scene()

    answer = await scene.tell(0.0, target="c", key=bytes(32))

    assert answer.status_code == 401
    assert "c" in await scene.send(60)


async def test_health_is_never_shed() -> None:
    scene = Scene()
    await scene.tell(0.0)

    assert (await scene.http.get("/health")).status_code == 200
    assert await scene.send(5) == {"shed": 5}


async def test_the_log_of_generations_runs_while_the_application_is_up() -> None:
    bodies: list[bytes] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        if request.url.path == "/v1/ingest/generations":
            bodies.append(request.content)
        return httpx2.Response(200, json={})

    receiver = gateway(
        TARGETS,
        around=receiver_of(SECRET, state_url=None),
        http=httpx2.AsyncClient(transport=httpx2.MockTransport(answer)),
        ingest_url="http://service/v1/ingest/generations",
        rng=Random(1),
        clocks=(lambda: NOW, lambda: 0.0),
    )
    app = cast("Starlette", receiver._app)
    async with app.router.lifespan_context(app):
        http = httpx2.AsyncClient(
            transport=httpx2.ASGITransport(app=receiver), base_url="http://gateway"
        )
        await http.post("/v1/completions", content=b"{}", headers={"x-upstream": "batch"})
        for _ in range(100):
            await asyncio.sleep(0.02)
            if bodies:
                break

    assert json.loads(bodies[0])["segment"] == "batch"


class StateHandler(BaseHTTPRequestHandler):
    """Answers like `/v1/state`."""

    def do_GET(self) -> None:
        document = {
            "controller": "demo", "epoch": 1, "rev": 4, "ttl_seconds": 15,
            "tiers": [{"id": "chat", "admit_ratio": 0.5, "epoch": 1, "seq": 3}],
            "targets": [{"id": "c", "tier": "chat", "admit_ratio": 0.0, "epoch": 1, "seq": 2}],
        }  # fmt: skip
        body = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        return None


@pytest.fixture
def state_url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), StateHandler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/v1/state"
        server.shutdown()
        thread.join()


async def test_pulling_the_gateway_takes_the_state_document_over(state_url: str) -> None:
    receiver = receiver_of("", state_url=state_url)(Starlette())
    http = httpx2.AsyncClient(
        transport=httpx2.ASGITransport(app=receiver), base_url="http://gateway"
    )
    for _ in range(200):
        await http.get("/health")
        if receiver.ratios():
            break
        await asyncio.sleep(0.01)
    receiver.close()

    assert (receiver.admit_ratio(), receiver.ratios()) == (0.5, {"c": 0.0})
