"""What the routes work on: the running parts, made by the wiring, found through the request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, cast

from fastapi import Depends, HTTPException, Request

from alerts.breaker.controller import Controller
from collector.api.access import Access
from collector.baselines import BaselineKeeper
from collector.ingest.intake import Intake
from collector.state import State
from collector.store import Store
from collector.verdicts import NewestVerdicts
from detectors.records import Batch
from exporters.prometheus import MetricsPage


@dataclass(frozen=True, slots=True)
class TierFacts:
    """What the routes tell of a tier's configuration; `targets` maps an id to its address."""

    role: str
    mode: str
    targets: Mapping[str, str]
    segments: tuple[str, ...]
    baseline_requests: int


@dataclass(frozen=True, slots=True)
class Reloaded:
    """How a reload went; a refused one changed nothing and lists every problem."""

    ok: bool
    at: datetime
    problems: tuple[str, ...] = ()


@dataclass(slots=True)
class Parts:
    """Everything that the routes use. What a reload changes is replaced here, at once."""

    access: Access
    tiers: Mapping[str, TierFacts]
    deny_status: int
    max_body_bytes: int
    page: MetricsPage
    state: State
    controller: Controller
    intake: Intake
    store: Store
    keeper: BaselineKeeper
    newest: NewestVerdicts
    take_batch: Callable[[Batch], None]
    reload: Callable[[], Awaitable[Reloaded]]
    now: Callable[[], datetime]
    last_reload: Reloaded
    missing: list[str] = field(default_factory=list)  # what keeps the service from being ready


def parts_of(request: Request) -> Parts:
    """Return the running parts behind this request."""
    return cast("Parts", request.app.state.parts)


PartsDep = Annotated[Parts, Depends(parts_of)]


def may_change(request: Request, parts: PartsDep) -> None:
    """Refuse a mutating call that the access rule does not allow."""
    refusal = parts.access.refusal(request)
    if refusal is not None:
        raise refusal


MayChange = Depends(may_change)


def known_tier(tier: str, parts: PartsDep) -> str:
    """Return the tier of the path, or answer 404 with the tiers there are."""
    if tier not in parts.tiers:
        known = ", ".join(sorted(parts.tiers))
        raise HTTPException(404, detail=f"no tier {tier!r}; known: {known}")
    return tier


KnownTier = Annotated[str, Depends(known_tier)]
