"""Targets from DNS: the addresses of a name (A, AAAA), or host and port from SRV records."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, Literal, Self

import dns.asyncresolver
import dns.exception
import dns.rdatatype
import dns.resolver
from pydantic import BaseModel, ConfigDict, Field, model_validator

from collector.discovery.addresses import netloc, target
from collector.discovery.found import Discovery, DiscoveryError, Finders, Found
from collector.values import Seconds, refuse

_LIFETIME_SECONDS: Final = 5.0


class DnsConfig(BaseModel):
    """Targets behind DNS names: every address is one target."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["dns"] = "dns"
    names: tuple[str, ...] = Field(min_length=1, max_length=32, description="Names to look up.")
    record: Literal["A", "AAAA", "SRV"] = Field(
        default="A", description="Type of record; SRV brings its own ports."
    )
    port: int | None = Field(
        default=None, ge=1, le=65_535, description="Port of A and AAAA targets; required there."
    )
    scheme: Literal["http", "https"] = Field(default="http", description="How to talk to them.")
    nameservers: tuple[str, ...] = Field(
        default=(), max_length=8, description="Addresses of name servers; the system's if empty."
    )
    nameserver_port: int = Field(default=53, ge=1, le=65_535, description="Their port.")
    refresh: Seconds = Field(default=30.0, description="Time between look-ups.")
    vanish_after: Seconds = Field(
        default=120.0, description="How long a target that is no longer listed stays."
    )

    @model_validator(mode="after")
    def _port_where_needed(self) -> Self:
        if self.record != "SRV" and self.port is None:
            refuse(f"a 'port' for {self.record} records", "only SRV records bring their ports")
        return self

    def build(self, tier: str, finders: Finders) -> Discovery:  # noqa: ARG002  # own sockets
        """Return the discovery; nothing is looked up yet."""
        return Dns(f"dns:{tier}", self)


class Dns:
    """Looks the names up, all at once."""

    def __init__(self, name: str, config: DnsConfig) -> None:
        self.name = name
        self._config = config

    async def find(self) -> tuple[Found, ...]:
        """Return a target for every address.

        A name that exists and has no such record is an empty list; one that does not exist is a
        failure, as it is what a broken resolver says, too.

        Raises:
            DiscoveryError: If a name cannot be resolved.
        """
        resolver = self._resolver()
        found = await asyncio.gather(*(self._look_up(resolver, it) for it in self._config.names))
        return tuple(one for several in found for one in several)

    async def close(self) -> None:
        """Hold nothing open."""

    def _resolver(self) -> dns.asyncresolver.Resolver:
        """Return a resolver: the system's file may change while the service runs."""
        config = self._config
        try:
            resolver = dns.asyncresolver.Resolver(configure=not config.nameservers)
        except dns.resolver.NoResolverConfiguration as error:
            msg = f"{self.name}: the system has no name server; set 'nameservers'"
            raise DiscoveryError(msg) from error
        if config.nameservers:
            resolver.nameservers = list(config.nameservers)
            resolver.port = config.nameserver_port
        resolver.lifetime = _LIFETIME_SECONDS
        return resolver

    async def _look_up(self, resolver: dns.asyncresolver.Resolver, name: str) -> Sequence[Found]:
        config = self._config
        try:
            answer = await resolver.resolve(name, config.record, raise_on_no_answer=False)
        except dns.exception.DNSException as error:
            text = str(error) or type(error).__name__
            msg = (
                f"{self.name}: {name} ({config.record}) cannot be looked up: {text[:200]}; "
                "the targets found before stay"
            )
            raise DiscoveryError(msg) from error
        labels = {"name": name}
        if config.record == "SRV":
            return [
                target(
                    netloc(record.target.to_text(omit_final_dot=True), record.port),
                    labels,
                    scheme=config.scheme,
                )
                for record in answer
            ]
        return [
            target(netloc(record.address, config.port), labels, scheme=config.scheme)
            for record in answer
        ]
