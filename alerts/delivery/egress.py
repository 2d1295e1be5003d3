"""Where webhooks may go: checked as text when configured, and as an address on every attempt.

A name is resolved once an attempt, every address it has is checked, and the connection is made to
a checked address itself, so that a name that changes its answer gains nothing.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TypeAlias
from urllib.parse import SplitResult, urlsplit

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network
Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]

_METADATA = (ip_network("169.254.0.0/16"), ip_network("fd00:ec2::254/128"))
_EMBEDDING = (  # IPv6 forms that carry an IPv4 address inside, past every check of that address
    ip_network("64:ff9b::/96"),
    ip_network("64:ff9b:1::/48"),
    ip_network("2002::/16"),
    ip_network("2001::/32"),
)
_SHARED = ip_network("100.64.0.0/10")


class EgressError(Exception):
    """A place that a webhook may not be sent to; the message says why and how to allow it."""


class UnresolvedError(Exception):
    """A name that has no address at present; trying again may help."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What one endpoint is allowed: plain http, and networks besides the public internet."""

    insecure_http: bool = False
    allow: tuple[str, ...] = ()

    def networks(self) -> tuple[Network, ...]:
        """Return the allowed networks.

        Raises:
            ValueError: If an entry is not a network in CIDR form.
        """
        return tuple(ip_network(entry) for entry in self.allow)


@dataclass(frozen=True, slots=True)
class Place:
    """Checked addresses to connect to, and the name to say there.

    `url` has the first address in the place of the name; `others` those to try where that one
    cannot be connected to, in the resolver's order.
    """

    url: str
    host: str  # the `Host` header
    name: str  # for TLS: what the certificate must be for
    others: tuple[str, ...] = ()


def check_url(url: str, rules: Rules, *, where: str) -> SplitResult:
    """Return the parts of `url` if its form is allowed; no name is resolved.

    Raises:
        EgressError: If scheme, port, user or fragment are not as they may be.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        msg = f"{where}: not a URL: {error}; expected https://host[:port]/path"
        raise EgressError(msg) from error
    problem = ""
    if parts.scheme not in {"http", "https"}:
        problem = f"scheme {parts.scheme!r}, expected https"
    elif parts.scheme == "http" and not rules.insecure_http:
        problem = "plain http; use https, or set `insecure_http: true` for this webhook"
    elif not parts.hostname:
        problem = "no host in it; expected https://host[:port]/path"
    elif parts.username is not None or parts.password is not None:
        problem = "a user or password in it; leave it out, messages are signed"
    elif parts.fragment:
        problem = "a fragment in it; leave out what follows '#'"
    elif port == 0:
        problem = "port 0; expected 1 to 65535"
    if problem:
        msg = f"{where}: {problem}"
        raise EgressError(msg)
    return parts


def refused(address: Address, allowed: Sequence[Network]) -> str:
    """Return why nothing may be sent to `address`, or an empty string.

    Link-local (cloud metadata), multicast, unspecified and broadcast are refused whatever is
    allowed; loopback, private, shared and embedding ranges unless `allowed` holds them.
    """
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    never = (
        address.is_link_local
        or address.is_multicast
        or address.is_unspecified
        or address == ip_address("255.255.255.255")
        or _within(address, _METADATA)
    )
    if never:
        return "link-local, metadata, multicast, unspecified or broadcast: never allowed"
    if _within(address, allowed):
        return ""
    site_local = isinstance(address, IPv6Address) and address.is_site_local  # passes as global
    inner = address.is_loopback or address.is_private or address.is_reserved or site_local
    if inner or not address.is_global or _within(address, (*_EMBEDDING, _SHARED)):
        return "loopback, private or reserved: list its network under `allow` of this webhook"
    return ""


async def pinned(url: str, rules: Rules, resolve: Resolve, *, where: str) -> Place:
    """Resolve the name in `url` once, check every address, and return where to connect.

    Raises:
        EgressError: If the form or any address is refused.
        UnresolvedError: If the name has no address at present.
    """
    parts = check_url(url, rules, where=where)
    name = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        found = await resolve(name, port)
        addresses = [ip_address(text.partition("%")[0]) for text in found]
    except (OSError, ValueError) as error:
        msg = f"{where}: {name!r} could not be resolved: {error}"
        raise UnresolvedError(msg) from error
    if not addresses:
        msg = f"{where}: {name!r} has no address"
        raise UnresolvedError(msg)
    allowed = rules.networks()
    for address in addresses:
        problem = refused(address, allowed)
        if problem:
            msg = f"{where}: {name!r} is {address}, {problem}"
            raise EgressError(msg)
    first, *others = (
        parts._replace(netloc=f"{_literal(address)}:{port}").geturl()
        for address in dict.fromkeys(addresses)
    )
    return Place(first, parts.netloc, name, tuple(others))


async def resolve_by_system(name: str, port: int) -> Sequence[str]:
    """Return every address that the system's resolver knows for `name`.

    Raises:
        OSError: If it knows none.
    """
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(name, port, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in found]


def _literal(address: Address) -> str:
    return f"[{address}]" if isinstance(address, IPv6Address) else str(address)


def _within(address: Address, networks: Sequence[Network]) -> bool:
    return any(address in network for network in networks if network.version == address.version)
