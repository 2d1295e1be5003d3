"""Parameters of a tier's breakers, as in the configuration: `tiers.NAME.breaker`."""

from __future__ import annotations

import itertools
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator


class BreakerParameters(BaseModel):
    """How fast breakers open, how they let traffic back, and what guards hold them.

    Durations are in seconds. An evaluation is a completed scrape.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    breach_n: int = Field(default=3, ge=1, description="Breaches among the last breach_m to open.")
    breach_m: int = Field(default=5, ge=1, le=20, description="Evaluations looked back on.")
    open_base_seconds: float = Field(default=30, gt=0, description="Open time at trip level 1.")
    open_cap_seconds: float = Field(default=300, gt=0, description="Longest open time.")
    level_decay_seconds: float = Field(default=60, gt=0, description="Clean time per level down.")
    jitter: float = Field(default=0.2, ge=0.05, le=0.5, description="Spread of every timer.")
    ramp: tuple[float, ...] = Field(
        default=(0.05, 0.25, 0.5), description="Admit ratios of half_open, rising, below 1."
    )
    ramp_evaluations: int = Field(default=3, ge=1, description="Good evaluations per ramp step.")
    half_open_deadline_seconds: float = Field(
        default=120, gt=0, description="Longest wait for evidence at one ramp step."
    )
    soft_max_fraction: float = Field(
        default=0.34, ge=0, le=1, description="Most of a pool that soft causes may open."
    )
    hard_max_fraction: float = Field(
        default=0.5, ge=0, le=1, description="Most of a pool that hard causes may open."
    )
    trips_per_minute: int = Field(
        default=0, ge=0, description="Most trips a minute in a pool; 0: a tenth of it, at least 1."
    )
    flap_opens: int = Field(
        default=3,
        ge=1,
        le=20,
        description="More opens than this in 30 minutes are flapping: open time is the longest.",
    )
    latch_max_seconds: float = Field(
        default=14_400,
        gt=0,
        le=86_400,
        description="A latched cause (corrupted logits) holds open so long, or until released.",
    )
    lease_seconds: float = Field(
        default=60, ge=1, description="Without renewal for so long, gateways admit everything."
    )
    renew_seconds: float = Field(default=20, gt=0, description="How often leases are renewed.")
    shed_factor: float = Field(
        default=0.7, gt=0, lt=1, description="Tier admit ratio times this per breached evaluation."
    )
    shed_step: float = Field(
        default=0.05, gt=0, le=1, description="Added to it per clean evaluation."
    )
    shed_floor: float = Field(default=0.2, ge=0, le=1, description="Lowest tier admit ratio.")
    warmup_seconds: float = Field(
        default=60, ge=0, description="No automatic opens for so long after start."
    )
    override_max_seconds: float = Field(
        default=86_400, gt=0, le=86_400, description="Longest override."
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.breach_n > self.breach_m:
            msg = f"breach_n {self.breach_n} must not be above breach_m {self.breach_m}"
            raise ValueError(msg)
        if self.lease_seconds < 3 * self.renew_seconds:
            msg = (
                f"lease_seconds {self.lease_seconds:g} must be at least 3 times renew_seconds "
                f"{self.renew_seconds:g}, or one lost renewal lets traffic back"
            )
            raise ValueError(msg)
        if self.open_cap_seconds < self.open_base_seconds:
            msg = (
                f"open_cap_seconds {self.open_cap_seconds:g} must not be below "
                f"open_base_seconds {self.open_base_seconds:g}"
            )
            raise ValueError(msg)
        steps = (0.0, *self.ramp, 1.0)
        if any(right <= left for left, right in itertools.pairwise(steps)):
            msg = f"ramp {list(self.ramp)} must rise strictly between 0 and 1"
            raise ValueError(msg)
        return self
