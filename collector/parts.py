"""The running parts that routes, gauges and the status page look at, in one place."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from alerts.breaker.controller import Controller
from collector.access import Access
from collector.baselines import BaselineKeeper
from collector.counting import Counting
from collector.ingest.intake import Intake
from collector.remarks import LogRemarks
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
    vocabulary_tokens: int
    neighbours: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Reloaded:
    """How a reload went; a refused one changed nothing and lists every problem."""

    ok: bool
    at: datetime
    problems: tuple[str, ...] = ()


def _not_connected(_: Batch) -> None:
    msg = "generations came before the pipeline was connected"
    raise RuntimeError(msg)


async def _no_reload() -> Reloaded:
    msg = "a reload was asked for before the service was connected"
    raise RuntimeError(msg)


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
    counting: Counting
    store: Store
    keeper: BaselineKeeper
    newest: NewestVerdicts
    remarks: LogRemarks
    now: Callable[[], datetime]
    last_reload: Reloaded
    missing: list[str] = field(default_factory=list)  # what keeps the service from being ready
    take_batch: Callable[[Batch], None] = _not_connected
    reload: Callable[[], Awaitable[Reloaded]] = _no_reload
