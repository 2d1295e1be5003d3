"""`GET /v1/limits/{tier}`: what clients of a tier may send now, from what its targets last told.

It is advice for batch jobs and clients, not an admission: `/v1/admit/{tier}` decides. A limit that
no target tells is null, and `unknown` says why.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field

from collector.api.parts import KnownTier, PartsDep
from collector.parts import Parts
from detectors.records import Absence, Reading

router = APIRouter(prefix="/v1", tags=["tiers"])
STALE_SECONDS: Final = 60.0  # an older reading limits nothing
KV_FILLED: Final = 0.9  # share of the KV cache that advice fills
_LEAST_USAGE: Final = 0.05  # below it a request's share of the cache is a guess


class LimitsOut(BaseModel):
    """What a tier takes now; null is not known."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tier: str
    state: str = Field(description="State of the tier's breaker.")
    admit_ratio: float = Field(description="Share of requests that the tier's breaker admits.")
    retry_after_seconds: int = Field(description="When to come back if not all are admitted.")
    max_prompt_tokens: int | None = Field(
        description="Longest prompt that every target in rotation takes, its answer included."
    )
    batch_token_budget: int | None = Field(
        description="Most tokens of a batch that one target takes: TGI's budget, or what the KV "
        "cache holds; of the smallest target."
    )
    request_slots: int | None = Field(
        description="Requests that the targets in rotation run at once, together."
    )
    in_flight_requests: int | None = Field(
        description="Most requests that all clients together should have open now: the slots, or "
        "what fits the KV cache at the present size of a request, times the admit ratios."
    )
    free_requests: int | None = Field(
        description="Of those, how many more than run and wait already."
    )
    targets: int = Field(description="Targets of the tier.")
    targets_used: int = Field(description="Targets in rotation whose reading is fresh.")
    age_seconds: float | None = Field(description="Age of the oldest reading that was used.")
    unknown: dict[str, str] = Field(description="Why a limit is null.")


@dataclass(frozen=True, slots=True)
class _Seen:
    """A target in rotation: its newest reading, that reading's age, its breaker's ratio."""

    reading: Reading
    age_seconds: float
    ratio: float


@router.get("/limits/{tier}")
async def limits(tier: KnownTier, parts: PartsDep, response: Response) -> LimitsOut:
    """Return what clients of a tier may send now."""
    response.headers["cache-control"] = "no-store"
    return limits_out(parts, tier)


def limits_out(parts: Parts, tier: str) -> LimitsOut:
    """Return the limits of one tier, from the newest readings and its breakers."""
    document = parts.controller.state_document()
    own = next((it for it in document.tiers if it.id == tier), None)
    ratio = own.admit_ratio if own else 1.0
    ratios = {it.id: it.admit_ratio for it in document.targets if it.tier == tier}
    seen = _in_rotation(parts, tier, ratios)
    readings = [it.reading for it in seen]
    capacities = [_capacity(it.reading) for it in seen]
    found: dict[str, float | None] = {
        "max_prompt_tokens": _least(readings, ("context_tokens", "kv_cache_capacity_tokens")),
        "batch_token_budget": _first(readings, ("batch_token_budget", "kv_cache_capacity_tokens")),
        "request_slots": _total(it.reading.values.get("request_slots") for it in seen),
        "in_flight_requests": _total(
            None if room is None else room * it.ratio * ratio
            for it, room in zip(seen, capacities, strict=True)
        ),
    }
    whole = {name: None if it is None else math.floor(it) for name, it in found.items()}
    flying = _total(_flying(it) for it in readings)
    most = whole["in_flight_requests"]
    return LimitsOut(
        tier=tier,
        state=own.state if own else "closed",
        admit_ratio=ratio,
        retry_after_seconds=own.retry_after_seconds if own else 0,
        **whole,
        free_requests=None if most is None or flying is None else max(most - int(flying), 0),
        targets=len(parts.tiers[tier].targets),
        targets_used=len(seen),
        age_seconds=max((it.age_seconds for it in seen), default=None),
        unknown={name: _why(name, readings) for name, it in whole.items() if it is None},
    )


def _in_rotation(parts: Parts, tier: str, ratios: Mapping[str, float]) -> list[_Seen]:
    """Return the targets that take traffic and were read lately."""
    now = parts.now()
    found = []
    for target in parts.tiers[tier].targets:
        reading = parts.state.readings.get((tier, target))
        ratio = ratios.get(target, 1.0)
        if reading is None or not reading.up or ratio <= 0.0:
            continue
        age = max((now - reading.at).total_seconds() + reading.age_seconds, 0.0)
        if age <= STALE_SECONDS:
            found.append(_Seen(reading, age, ratio))
    return found


def _capacity(reading: Reading) -> float | None:
    """Return the requests that a target holds well: its slots, or fewer if its KV cache is short.

    The running requests take `kv_cache_usage_ratio` of the cache, so one takes that share over
    their number, and `KV_FILLED` of the cache holds so many of their size.
    """
    values = reading.values
    slots, usage = values.get("request_slots"), values.get("kv_cache_usage_ratio")
    running = values.get("requests_running", 0.0)
    if usage is None or usage < _LEAST_USAGE or running < 1.0:
        return slots
    fits = max(running * KV_FILLED / usage, 1.0)
    return fits if slots is None else min(slots, fits)


def _flying(reading: Reading) -> float | None:
    running = reading.values.get("requests_running")
    waiting = reading.values.get("requests_waiting")
    return None if running is None or waiting is None else running + waiting


def _total(values: Iterable[float | None]) -> float | None:
    """Return the sum of what is known: less than there is, if a target does not tell."""
    known = [value for value in values if value is not None]
    return math.fsum(known) if known else None


def _least(readings: Sequence[Reading], signals: Sequence[str]) -> float | None:
    """Return the smallest value of any of the signals on any target."""
    known = [it.values[signal] for it in readings for signal in signals if signal in it.values]
    return min(known, default=None)


def _first(readings: Sequence[Reading], signals: Sequence[str]) -> float | None:
    """Return the smallest over the targets of the first signal that each of them knows."""
    known = [
        next((it.values[signal] for signal in signals if signal in it.values), None)
        for it in readings
    ]
    return min((value for value in known if value is not None), default=None)


_SOURCES: Final[Mapping[str, str]] = {
    "max_prompt_tokens": "context_tokens",
    "batch_token_budget": "batch_token_budget",
    "request_slots": "request_slots",
    "in_flight_requests": "request_slots",
}


def _why(name: str, readings: Sequence[Reading]) -> str:
    """Say why no target tells a limit."""
    if not readings:
        return "no target in rotation was read in the last minute"
    signal = _SOURCES[name]
    return f"{signal}: {readings[0].absent.get(signal, Absence.NO_FAMILY)}; configure it"
