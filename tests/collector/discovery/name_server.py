"""A name server on the loopback that knows what a test tells it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TypeAlias, cast

import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset

Zone: TypeAlias = Mapping[tuple[str, str], list[str]]  # (name, type) -> records


class _Server(asyncio.DatagramProtocol):
    def __init__(self, zone: Zone) -> None:
        self.zone = dict(zone)
        self.transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        question = dns.message.from_wire(data)
        answer = dns.message.make_response(question)
        asked = question.question[0]
        name, kind = asked.name.to_text(omit_final_dot=True), dns.rdatatype.to_text(asked.rdtype)
        records = self.zone.get((name, kind))
        if records:
            answer.answer.append(dns.rrset.from_text(asked.name, 5, "IN", kind, *records))
        elif not any(known == name for known, _ in self.zone):
            answer.set_rcode(dns.rcode.NXDOMAIN)
        assert self.transport is not None
        self.transport.sendto(answer.to_wire(), addr)


@asynccontextmanager
async def a_name_server(zone: Zone) -> AsyncIterator[int]:
    """Run the server; yields its port."""
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(
        lambda: _Server(zone), local_addr=("127.0.0.1", 0)
    )
    try:
        yield transport.get_extra_info("sockname")[1]
    finally:
        transport.close()
