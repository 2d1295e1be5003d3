"""What the status page shows: plain values, made from live state by whoever serves the page.

Every moment is aware UTC; an age is in seconds, None where there is no value at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class SignalView:
    """One signal of one target; without a value `absent` says why there is none.

    `between` are the bounds of a quantile's bucket, the upper one None where it is open.
    """

    name: str
    value: float | None
    unit: str
    age_seconds: float | None
    absent: str = ""
    between: tuple[float, float | None] | None = None


@dataclass(frozen=True, slots=True)
class FindingView:
    """Something about a target that a person should know."""

    code: str
    signal: str
    text: str


@dataclass(frozen=True, slots=True)
class TargetView:
    """One target with the signals of its newest scrape; `up` is None before the first one.

    A neighbour of the tier has no `url`; its `engine` is its kind.
    """

    id: str
    url: str
    engine: str
    up: bool | None
    age_seconds: float | None
    problem: str = ""
    signals: tuple[SignalView, ...] = ()
    findings: tuple[FindingView, ...] = ()


@dataclass(frozen=True, slots=True)
class VerdictView:
    """One verdict that holds now; `level` is unknown, ok, warning or critical.

    An unknown one without a `cause` is about a signal that its target need not have.
    """

    scope: str
    signal: str
    detector: str
    level: str
    reason: str
    age_seconds: float
    baseline: str = ""
    cause: str = ""
    variant: str = ""


@dataclass(frozen=True, slots=True)
class OverrideView:
    """A person's hand on a breaker."""

    forced: str
    actor: str
    reason: str
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class BreakerView:
    """One breaker; an empty `target` is the tier's own. Ratios are 0 to 1."""

    target: str
    shown_state: str
    admit_ratio: float
    effective_ratio: float
    cause: str = ""
    reason: str = ""
    open_until: datetime | None = None
    lease_expires_at: datetime | None = None
    override: OverrideView | None = None


@dataclass(frozen=True, slots=True)
class BaselineView:
    """The baseline of one scope, or how far its collection is (`stage` is then collecting)."""

    scope: str
    stage: str
    requests: int
    needed: int
    id: str = ""
    variant: str = ""


@dataclass(frozen=True, slots=True)
class TierView:
    """One tier; `mode` is observe or enforce, `role` production or shadow."""

    name: str
    mode: str
    role: str = "production"
    targets: tuple[TargetView, ...] = ()
    neighbours: tuple[TargetView, ...] = ()
    verdicts: tuple[VerdictView, ...] = ()
    breakers: tuple[BreakerView, ...] = ()
    baselines: tuple[BaselineView, ...] = ()


@dataclass(frozen=True, slots=True)
class TransitionView:
    """One audit row, of whichever tier."""

    at: datetime
    tier: str
    target: str
    kind: str
    reason: str
    actor: str
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class PartView:
    """One part of the service that has failed; `problem` is empty once it works again."""

    name: str
    failures: int
    problem: str = ""


@dataclass(frozen=True, slots=True)
class HealthView:
    """How the service itself is; empty problems mean it is well."""

    parts: tuple[PartView, ...] = ()
    journal_problem: str = ""
    config_problem: str = ""
    config_loaded_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class StatusView:
    """The whole page as of `at`; it asks to be loaded again after `refresh_seconds` (0: never)."""

    at: datetime
    version: str
    tiers: tuple[TierView, ...] = ()
    transitions: tuple[TransitionView, ...] = ()
    health: HealthView = HealthView()
    refresh_seconds: int = 5
