"""One webhook endpoint, as the delivery worker needs it."""

from __future__ import annotations

from dataclasses import dataclass, field

from alerts.breaker.payload import Route
from alerts.delivery.egress import Rules
from alerts.delivery.signing import Secret


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One webhook endpoint, ready to be sent to.

    `secrets` holds the present one first and, while it is being rotated, the one before.
    """

    name: str
    url: str
    secrets: tuple[Secret, ...]
    tiers: tuple[str, ...] = ()
    rules: Rules = field(default_factory=Rules)
    timeout_seconds: float = 5.0

    @property
    def route(self) -> Route:
        """What the controller needs to know of it."""
        return Route(self.name, self.tiers)
