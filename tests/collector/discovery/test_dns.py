"""Targets behind names, looked up at a real name server on the loopback."""

from __future__ import annotations

from typing import Literal

import pytest
from pydantic import ValidationError

from collector.discovery.dns import Dns, DnsConfig
from collector.discovery.found import DiscoveryError
from tests.collector.discovery.name_server import a_name_server

pytestmark = pytest.mark.anyio

ZONE = {
    ("vllm.test", "A"): ["10.0.0.1", "10.0.0.2"],
    ("vllm.test", "AAAA"): ["fd00::1"],
    ("_metrics._tcp.vllm.test", "SRV"): ["0 5 8000 a.test.", "0 5 8001 b.test."],
}
Record = Literal["A", "AAAA", "SRV"]


def looking_up(name: str, record: Record, port: int | None, server: int) -> Dns:
    config = DnsConfig(
        names=(name,), record=record, port=port, nameservers=("127.0.0.1",), nameserver_port=server
    )
    return Dns("dns:chat", config)


@pytest.mark.parametrize(
    ("name", "record", "port", "ids"),
    [
        ("vllm.test", "A", 8000, ["10.0.0.1:8000", "10.0.0.2:8000"]),
        ("vllm.test", "AAAA", 8000, ["[fd00::1]:8000"]),
        ("_metrics._tcp.vllm.test", "SRV", None, ["a.test:8000", "b.test:8001"]),
        ("vllm.test", "SRV", None, []),
    ],
)
async def test_every_address_is_a_target(
    name: str, record: Record, port: int | None, ids: list[str]
) -> None:
    async with a_name_server(ZONE) as server:
        found = await looking_up(name, record, port, server).find()

    assert sorted(it.id for it in found) == ids
    assert sorted(it.url for it in found) == [f"http://{id_}" for id_ in ids]


async def test_a_name_that_does_not_exist_is_a_failure_and_not_an_empty_tier() -> None:
    async with a_name_server(ZONE) as server:
        with pytest.raises(DiscoveryError, match=r"gone\.test"):
            await looking_up("gone.test", "A", 1, server).find()


async def test_a_name_server_that_is_not_there_is_a_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("collector.discovery.dns._LIFETIME_SECONDS", 0.2)
    async with a_name_server(ZONE) as server:
        pass

    with pytest.raises(DiscoveryError, match="cannot be looked up"):
        await looking_up("vllm.test", "A", 1, server).find()


def test_addresses_need_a_port() -> None:
    with pytest.raises(ValidationError, match="only SRV records bring their ports"):
        DnsConfig(names=("vllm.test",))
