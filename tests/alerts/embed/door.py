"""A receiver around an app, a client in front of it, and what it is told."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import httpx2

from alerts.delivery.signing import headers, secret
from alerts.embed.receiver import FusewireReceiver

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OLD_SECRET = "whsec_" + "QUJD" * 8
NOW = datetime(2026, 11, 29, 15, 26, 40, tzinfo=UTC)


@dataclass
class Clock:
    at: float = 1000.0

    def __call__(self) -> float:
        return self.at


async def the_app(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"served"})


@dataclass
class Door:
    """A receiver around an app, and a client in front of it."""

    clock: Clock = field(default_factory=Clock)
    lot: float = 0.5
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        settings = {"secret": SECRET, "workers": 1, **self.settings}
        self.receiver = FusewireReceiver(
            the_app,
            tier="chat",
            monotonic=self.clock,
            wall=NOW.timestamp,
            uniform=lambda low, high: low + (high - low) * self.lot,
            **settings,
        )
        transport = httpx2.ASGITransport(app=self.receiver)
        self.client = httpx2.AsyncClient(transport=transport, base_url="http://gateway")

    async def told(
        self, body: bytes, *, with_secret: str = SECRET, at: datetime = NOW
    ) -> httpx2.Response:
        signed = headers([secret(with_secret, where="test")], "msg_1", at, body)
        return await self.client.post("/hooks/fusewire", content=body, headers=signed)

    async def asked(self, path: str = "/v1/chat/completions") -> httpx2.Response:
        return await self.client.post(path, content=b"{}")


def message(
    seq: int,
    ratio: float = 0.0,
    *,
    epoch: int = 1,
    target: str = "",
    lease_seconds: float = 60,
    **data: object,
) -> dict[str, Any]:
    return {
        "schema": 1,
        "controller": "fw",
        "epoch": epoch,
        "seq": seq,
        "tier": "chat",
        "target": {"id": target, "address": "10.0.0.1:8000"} if target else None,
        "state": "open",
        "admit_ratio": ratio,
        "retry_after_seconds": 20,
        "lease": {"seconds": lease_seconds} if ratio < 1 else None,
        **data,
    }


def wire(data: Mapping[str, object]) -> bytes:
    return json.dumps({"type": "fusewire.breaker.open", "data": data}).encode()


def a_document(rev: int, ratio: float, *, epoch: int = 1, ttl: float = 60) -> dict[str, Any]:
    row = {"epoch": epoch, "seq": rev, "admit_ratio": ratio, "retry_after_seconds": 5}
    return {
        "controller": "fw",
        "epoch": epoch,
        "rev": rev,
        "ttl_seconds": ttl,
        "tiers": [{"id": "chat", **row}, {"id": "code", **row, "admit_ratio": 0.1}],
        "targets": [{"id": "a", "tier": "chat", **row}, {"id": "a", "tier": "code", **row}],
    }
