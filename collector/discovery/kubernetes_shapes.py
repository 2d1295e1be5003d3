"""The members of Kubernetes' answers that are read; everything else in them is skipped."""

from __future__ import annotations

from typing import Final, Generic, TypeVar

import msgspec

Item = TypeVar("Item")


class Meta(msgspec.Struct, frozen=True):
    """Name, labels, and when its deletion began."""

    name: str = ""
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    deleted: str | None = msgspec.field(default=None, name="deletionTimestamp")


class Continued(msgspec.Struct, frozen=True):
    """The token of the next page, empty on the last."""

    token: str = msgspec.field(default="", name="continue")


class Conditions(msgspec.Struct, frozen=True):
    """What is known of an endpoint; null where it is not."""

    ready: bool | None = None
    terminating: bool | None = None


class Reference(msgspec.Struct, frozen=True):
    """What stands behind an endpoint: a pod."""

    name: str = ""


class Endpoint(msgspec.Struct, frozen=True):
    """One endpoint of a slice."""

    addresses: list[str] = msgspec.field(default_factory=list)
    conditions: Conditions = Conditions()
    target: Reference | None = msgspec.field(default=None, name="targetRef")
    node: str = msgspec.field(default="", name="nodeName")
    zone: str = ""


class Port(msgspec.Struct, frozen=True):
    """A port of all endpoints of a slice."""

    name: str | None = None
    port: int | None = None


class Slice(msgspec.Struct, frozen=True):
    """An EndpointSlice; null lists are what an empty service has."""

    metadata: Meta = Meta()
    endpoints_or_null: list[Endpoint] | None = msgspec.field(default=None, name="endpoints")
    ports_or_null: list[Port] | None = msgspec.field(default=None, name="ports")

    @property
    def endpoints(self) -> list[Endpoint]:
        return self.endpoints_or_null or []

    @property
    def ports(self) -> list[Port]:
        return self.ports_or_null or []


class ContainerPort(msgspec.Struct, frozen=True):
    """A port that a container says it listens on."""

    port: int = msgspec.field(name="containerPort")
    name: str = ""


class Container(msgspec.Struct, frozen=True):
    """A container of a pod."""

    ports: list[ContainerPort] = msgspec.field(default_factory=list)


class PodSpec(msgspec.Struct, frozen=True):
    """What was asked for."""

    containers: list[Container] = msgspec.field(default_factory=list)
    node: str = msgspec.field(default="", name="nodeName")


class Condition(msgspec.Struct, frozen=True):
    """One condition of a pod."""

    type: str = ""
    status: str = ""


class PodStatus(msgspec.Struct, frozen=True):
    """What has become of it."""

    phase: str = ""
    ip: str = msgspec.field(default="", name="podIP")
    conditions: list[Condition] = msgspec.field(default_factory=list)


class Pod(msgspec.Struct, frozen=True):
    """A pod."""

    metadata: Meta = Meta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class Listed(msgspec.Struct, Generic[Item], frozen=True):
    """One page of a list."""

    metadata: Continued = Continued()
    items_or_null: list[Item] | None = msgspec.field(default=None, name="items")


SLICES: Final = msgspec.json.Decoder(Listed[Slice])
PODS: Final = msgspec.json.Decoder(Listed[Pod])
