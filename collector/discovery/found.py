"""What a discovery yields, and what one must offer; nothing inherits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

import httpx2


class DiscoveryError(Exception):
    """The list could not be had; what was found before stays. The text is for people."""


@dataclass(frozen=True, slots=True, order=True)
class Found:
    """One target as found.

    `id` is stable over restarts of the target and of Fusewire (a pod's name, `host:port`), `url`
    its address. A target that is not `ready` enters only once it is; one that was ready stays.
    `labels` are for the template of the configuration.
    """

    id: str
    url: str
    region: str = ""
    ready: bool = True
    labels: Mapping[str, str] = field(default_factory=dict, compare=False)


class Discovery(Protocol):
    """Anything that lists targets when asked."""

    @property
    def name(self) -> str: ...

    async def find(self) -> tuple[Found, ...]:
        """Return everything there is now, in any order.

        Raises:
            DiscoveryError: If the list could not be had whole.
        """
        ...

    async def close(self) -> None:
        """Let go of what is held open; it is not asked again."""
        ...


@dataclass(frozen=True, slots=True)
class Finders:
    """What a discovery is built with."""

    client: httpx2.AsyncClient
    now: Callable[[], datetime]
    monotonic: Callable[[], float]
