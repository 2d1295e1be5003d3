"""Decision to gateway and back: controller, outbox, signature, receiver, lease."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import httpx2
import pytest

from alerts.breaker.records import DeliveryStatus, Key
from alerts.delivery.egress import EgressError, Rules
from alerts.delivery.signing import SecretError
from alerts.delivery.worker import DeliveryWorker
from alerts.embed.receiver import FusewireReceiver
from alerts.gateways.webhook import endpoint
from tests.alerts.breaker.scene import START, Scene
from tests.alerts.memory_journal import MemoryJournal

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
INNER = Rules(insecure_http=True, allow=("127.0.0.0/8",))


async def no_app(_scope: Any, _receive: Any, _send: Any) -> None:
    return None


class Loop:
    """A scene whose gateway is a real receiver on the scene's clock."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.receiver = FusewireReceiver(
            no_app,
            tier="chat",
            secret=SECRET,
            workers=1,
            monotonic=self.seconds,
            wall=self.wall_seconds,
        )
        self.client = httpx2.AsyncClient(transport=httpx2.ASGITransport(app=self.receiver))
        self.worker = DeliveryWorker(
            MemoryJournal(scene.disk),
            {"gw": endpoint("gw", "http://gw/hooks/fusewire", secret_text=SECRET, rules=INNER)},
            client=self.client,
            now=scene.clock,
            rng=Random(1),
            resolve=self.resolve,
        )

    def wall_seconds(self) -> float:
        return self.scene.clock.at.timestamp()

    def seconds(self) -> float:
        return (self.scene.clock.at - START).total_seconds()

    async def resolve(self, _name: str, _port: int) -> Sequence[str]:
        return ["127.0.0.1"]

    async def send(self) -> None:
        while await self.worker.send_due():
            await self.worker.drain()


@pytest.mark.anyio
async def test_a_trip_is_confirmed_by_its_gateway_renewed_and_taken_back() -> None:
    loop = Loop(await Scene().start())
    async with loop.client:
        await loop.scene.trip("a")
        await loop.send()
        opened = loop.receiver.ratios()

        ratios = [opened["a"]]
        for _ in range(100):
            await loop.scene.wait(1, well=True)
            await loop.scene.all_well()
            await loop.send()
            ratios.append(loop.receiver.ratios()["a"])

    assert opened == {"a": 0.0}
    assert sorted(set(ratios)) == [0.0, 0.05, 0.25, 0.5, 1.0]
    assert ratios == sorted(ratios)
    assert "lease_lapsed" not in loop.receiver.ledger.counts
    statuses = {row.status for row in loop.scene.disk.deliveries.values()}
    assert statuses == {DeliveryStatus.CONFIRMED}
    assert loop.worker.health()["gw"].oldest_unconfirmed_seconds == 0


@pytest.mark.anyio
async def test_when_fusewire_dies_its_gateway_admits_everything_after_the_lease() -> None:
    """I2."""
    loop = Loop(await Scene().start())
    async with loop.client:
        await loop.scene.controller.override(
            Key("chat"), "forced_open", actor="ana", reason="test", seconds=3600
        )
        await loop.send()

    loop.scene.clock.forward(59)
    before = loop.receiver.admit_ratio()
    loop.scene.clock.forward(1)

    assert (before, loop.receiver.admit_ratio()) == (0.0, 1.0)


@pytest.mark.anyio
async def test_after_a_restart_the_gateway_follows_the_higher_epoch() -> None:
    loop = Loop(await Scene().start())
    async with loop.client:
        await loop.scene.trip("a")
        await loop.send()
        loop.scene.clock.forward(10)
        await loop.scene.restart()
        await loop.send()

    held = loop.receiver.ledger.strictest()["a"]
    assert (held.epoch, held.ratio, held.ends) == (2, 0.0, loop.seconds() + 60)


def test_an_endpoint_is_refused_with_the_name_of_the_webhook() -> None:
    with pytest.raises(EgressError, match=r"webhook 'gw'.*insecure_http"):
        endpoint("gw", "http://gw/hook", secret_text=SECRET)
    with pytest.raises(SecretError, match="webhook 'gw'"):
        endpoint("gw", "https://gw/hook", secret_text="whsec_x")
    with pytest.raises(SecretError, match="previous secret"):
        endpoint("gw", "https://gw/hook", secret_text=SECRET, previous_text="whsec_x")
    with pytest.raises(ValueError, match=r"10\.0\.0\.0/99"):
        endpoint("gw", "https://gw/", secret_text=SECRET, rules=Rules(allow=("10.0.0.0/99",)))


def test_an_endpoint_signs_with_the_new_secret_first() -> None:
    made = endpoint(
        "gw",
        "https://gw/",
        secret_text=SECRET,
        previous_text="whsec_" + "QUJD" * 8,
        tiers=("chat",),
    )

    assert [len(one.key) for one in made.secrets] == [24, 24]
    assert made.secrets[1].key == b"ABC" * 8
    assert made.route.tiers == ("chat",)
