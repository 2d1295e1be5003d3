"""The document of `GET /v1/state`: every tier and target, always all of them.

A document that left out what takes full traffic could not say "all is well": gateways ignore empty
ones. Clients treat a document older than `ttl_seconds` as "all admit 1.0".
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
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
    """All tiers and targets at `rev`; `rev` changes whenever anything in it or a lease does.

    `rows` is `tiers` and `targets` as JSON where that was made already: it is the larger part.
    """

    controller: str
    epoch: int
    rev: int
    generated_at: datetime
    ttl_seconds: float
    tiers: tuple[TierState, ...]
    targets: tuple[TargetState, ...]
    rows: bytes = field(default=b"", repr=False, compare=False)

    def encode(self) -> bytes:
        """Return the document as JSON."""
        head = {
            "controller": self.controller,
            "epoch": self.epoch,
            "rev": self.rev,
            "generated_at": self.generated_at.isoformat().replace("+00:00", "Z"),
            "ttl_seconds": self.ttl_seconds,
        }
        return _json(head)[:-1] + b"," + (self.rows or encoded(self.tiers, self.targets))[1:]


def encoded(tiers: Iterable[TierState], targets: Iterable[TargetState]) -> bytes:
    """Return the rows of a document as a JSON object with the members `tiers` and `targets`."""
    of_tier = tuple(field.name for field in fields(TierState))
    of_target = tuple(field.name for field in fields(TargetState))
    return _json(
        {
            "tiers": [{name: getattr(row, name) for name in of_tier} for row in tiers],
            "targets": [{name: getattr(row, name) for name in of_target} for row in targets],
        }
    )


def _json(value: object) -> bytes:
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()
