"""The document of `GET /v1/state`: every tier and target, always all of them.

A document that left out what takes full traffic could not say "all is well": gateways ignore empty
ones. Clients treat a document older than `ttl_seconds` as "all admit 1.0".
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class TierState:
    """What a tier's own breaker says; `admit_ratio` 0..1 with override and lease considered."""

    id: str
    mode: str
    state: str
    admit_ratio: float
    retry_after_seconds: int
    epoch: int
    seq: int
    cause: str


@dataclass(frozen=True, slots=True)
class TargetState:
    """What a target's breaker says; `weight` is `admit_ratio` in whole hundredths."""

    id: str
    tier: str
    address: str
    state: str
    admit_ratio: float
    weight: int
    retry_after_seconds: int
    epoch: int
    seq: int
    cause: str


@dataclass(frozen=True, slots=True)
class StateDocument:
    """All tiers and targets at `rev`; `rev` changes whenever anything in it or a lease does."""

    controller: str
    epoch: int
    rev: int
    generated_at: datetime
    ttl_seconds: float
    tiers: tuple[TierState, ...]
    targets: tuple[TargetState, ...]

    def encode(self) -> bytes:
        """Return the document as JSON."""
        document = asdict(self)
        document["generated_at"] = self.generated_at.isoformat().replace("+00:00", "Z")
        return json.dumps(document, allow_nan=False, separators=(",", ":")).encode()
