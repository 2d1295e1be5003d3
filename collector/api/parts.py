"""What the routes work on: the running parts, made by the wiring, found through the request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, cast

from fastapi import Depends, HTTPException, Request

from alerts.breaker.controller import Controller
from collector.api.access import Access
from collector.baselines import BaselineKeeper
from collector.config import Config
from collector.health import Health
from collector.ingest.intake import Intake
from collector.pipeline import Pipeline
from collector.state import State
from collector.store import Store
from collector.verdicts import NewestVerdicts
from exporters.prometheus import MetricsPage


@dataclass(frozen=True, slots=True)
class Reloaded:
    """How a reload went; a refused one changed nothing and lists every problem."""

    ok: bool
    problems: tuple[str, ...] = ()


@dataclass(slots=True)
class Parts:
    """Everything that runs, in one place. `config` and `access` change with a reload."""

    config: Config
    access: Access
    page: MetricsPage
    state: State
    pipeline: Pipeline
    controller: Controller
    intake: Intake
    store: Store
    keeper: BaselineKeeper
    health: Health
    newest: NewestVerdicts
    reload: Callable[[], Awaitable[Reloaded]]
    ready: Callable[[], list[str]]
    now: Callable[[], datetime]
    last_reload: Reloaded


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
    if tier not in parts.config.tiers:
        known = ", ".join(sorted(parts.config.tiers))
        raise HTTPException(404, detail=f"no tier {tier!r}; known: {known}")
    return tier


KnownTier = Annotated[str, Depends(known_tier)]
