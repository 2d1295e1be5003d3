"""Webhooks go where they are allowed to, whatever a name resolves to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from ipaddress import ip_address, ip_network

import pytest

from alerts.delivery.egress import (
    EgressError,
    Rules,
    UnresolvedError,
    check_url,
    pinned,
    refused,
)


def resolving(*addresses: str) -> Callable[[str, int], Awaitable[Sequence[str]]]:
    async def resolve(_name: str, _port: int) -> Sequence[str]:
        return addresses

    return resolve


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "::1",
        "10.1.2.3",
        "192.168.0.1",
        "172.16.0.1",
        "100.64.0.1",
        "fd12::1",
        "::ffff:10.0.0.1",
        "64:ff9b::a00:1",
        "2002:a00:1::",
        "2001::1",
        "240.0.0.1",
        "fec0::1",
    ],
)
def test_inner_addresses_are_refused_unless_allowed(address: str) -> None:
    allowed = (ip_network("0.0.0.0/0"), ip_network("::/0"))

    assert "allow" in refused(ip_address(address), ())
    assert refused(ip_address(address), allowed) == ""


@pytest.mark.parametrize(
    "address",
    [
        "169.254.169.254",
        "::ffff:169.254.169.254",
        "fd00:ec2::254",
        "fe80::1",
        "224.0.0.1",
        "ff02::1",
        "0.0.0.0",
        "::",
        "255.255.255.255",
    ],
)
def test_metadata_multicast_and_the_like_are_refused_even_when_allowed(address: str) -> None:
    allowed = (ip_network("0.0.0.0/0"), ip_network("::/0"))

    assert "never allowed" in refused(ip_address(address), allowed)


@pytest.mark.parametrize("address", ["93.184.216.34", "2606:2800:220:1::1"])
def test_the_public_internet_is_allowed(address: str) -> None:
    assert refused(ip_address(address), ()) == ""


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("ftp://gw.example/x", "scheme"),
        ("file:///etc/passwd", "scheme"),
        ("http://gw.example/x", "insecure_http"),
        ("https:///x", "no host"),
        ("https://u:p@gw.example/", "user"),
        ("https://gw.example/#x", "fragment"),
        ("https://gw.example:0/", "port 0"),
        ("https://gw.example:70000/", "not a URL"),
        ("https://[::1/", "not a URL"),
    ],
)
def test_a_url_of_another_form_is_refused_with_the_remedy(url: str, problem: str) -> None:
    with pytest.raises(EgressError, match=problem):
        check_url(url, Rules(), where="webhook 'gw'")


@pytest.mark.anyio
async def test_the_connection_goes_to_the_checked_address_under_the_name() -> None:
    place = await pinned(
        "https://gw.example:8443/hooks?x=1", Rules(), resolving("93.184.216.34"), where="w"
    )

    assert place.url == "https://93.184.216.34:8443/hooks?x=1"
    assert (place.host, place.name) == ("gw.example:8443", "gw.example")


@pytest.mark.anyio
async def test_every_checked_address_is_there_to_be_tried_in_order_and_once() -> None:
    resolve = resolving("2606:2800:220:1::1", "93.184.216.34", "93.184.216.34", "1.1.1.1")

    place = await pinned("https://gw.example/h", Rules(), resolve, where="w")

    assert place.url == "https://[2606:2800:220:1::1]:443/h"
    assert place.others == ("https://93.184.216.34:443/h", "https://1.1.1.1:443/h")


@pytest.mark.anyio
async def test_an_ipv6_address_is_written_in_brackets() -> None:
    place = await pinned(
        "https://gw.example/h", Rules(), resolving("2606:2800:220:1::1"), where="w"
    )

    assert place.url == "https://[2606:2800:220:1::1]:443/h"


@pytest.mark.anyio
async def test_one_bad_address_of_several_is_enough_to_refuse() -> None:
    resolve = resolving("93.184.216.34", "169.254.169.254")

    with pytest.raises(EgressError, match=r"169\.254"):
        await pinned("https://gw.example/", Rules(), resolve, where="webhook 'gw'")


@pytest.mark.anyio
async def test_loopback_is_reached_only_when_listed() -> None:
    resolve, url = resolving("127.0.0.1"), "http://localhost:8000/hook"

    with pytest.raises(EgressError, match="loopback"):
        await pinned(url, Rules(insecure_http=True), resolve, where="w")
    listed = Rules(insecure_http=True, allow=("127.0.0.1/32",))
    assert (await pinned(url, listed, resolve, where="w")).url == "http://127.0.0.1:8000/hook"


@pytest.mark.anyio
async def test_a_name_without_an_address_may_have_one_later() -> None:
    with pytest.raises(UnresolvedError, match="no address"):
        await pinned("https://gw.example/", Rules(), resolving(), where="w")
