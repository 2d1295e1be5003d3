"""The records of the breaker: what is persisted, what is audited, what is delivered.

A breaker is one `Breaker` value, changed only by `alerts/breaker/machine.py` and written only
through the `Journal` (`alerts/journal.py`): the breaker row, its audit row and its deliveries in
one transaction. Every moment here is aware UTC.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Literal, TypeAlias


class State(StrEnum):
    """The states of the machine; `forced_open` and `forced_closed` are overrides, not states."""

    CLOSED = "closed"
    HALF_OPEN = "half_open"
    OPEN = "open"

    @property
    def number(self) -> int:
        """The value of `fusewire_breaker_state`: 0 closed, 1 half_open, 2 open."""
        return {State.CLOSED: 0, State.HALF_OPEN: 1, State.OPEN: 2}[self]


Forced: TypeAlias = Literal["forced_open", "forced_closed"]
CauseKind: TypeAlias = Literal["soft", "hard", "quality"]
Mode: TypeAlias = Literal["observe", "enforce"]


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """Which breaker: of a target, or with an empty `target` of the whole tier (it sheds)."""

    tier: str
    target: str = ""

    def __str__(self) -> str:
        return f"{self.tier}/{self.target}" if self.target else self.tier


@dataclass(frozen=True, slots=True)
class Cause:
    """Why: a code that alerts and audit share, in words, with the numbers that decided.

    `signals` maps a signal to its value, threshold and evidence as shown to people.
    """

    code: str
    kind: CauseKind
    reason: str
    signals: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Override:
    """A person's hand on the breaker; it always ends."""

    forced: Forced
    actor: str
    reason: str
    since: datetime
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class Breaker:
    """The whole state of one breaker, as persisted.

    `admit_ratio` (0..1) is what the machine wants; `effective_ratio` what gateways apply, the
    override first. `(epoch, seq)` rises with every change and fences stale writers. `level_since`
    is when `trip_level` last changed or was last earned anew; `recent_opens` are the moments of
    the opens of the last half hour, oldest first, at most one more than count as flapping.
    """

    key: Key
    state: State = State.CLOSED
    admit_ratio: float = 1.0
    ramp_step: int = 0
    trip_level: int = 0
    good_evaluations: int = 0
    changed_at: datetime | None = None
    open_until: datetime | None = None
    half_open_deadline: datetime | None = None
    lease_expires_at: datetime | None = None
    epoch: int = 0
    seq: int = 0
    cause: Cause | None = None
    override: Override | None = None
    level_since: datetime | None = None
    recent_opens: tuple[datetime, ...] = ()

    @property
    def effective_ratio(self) -> float:
        if self.override is None:
            return self.admit_ratio
        return 0.0 if self.override.forced == "forced_open" else 1.0

    @property
    def shown_state(self) -> str:
        """`closed`, `half_open`, `open`, or the override in force."""
        return self.override.forced if self.override else str(self.state)


@dataclass(frozen=True, slots=True)
class Transition:
    """One audit row: what changed, when, by whom and why. `kind` is the event's short name.

    Kinds: `open`, `half_open` (each ramp step), `closed`, `shed` (tier ratio), `forced_open`,
    `forced_closed`, `override_ended`, `would_open`, `would_shed` (observe mode), `suppressed`
    (a guard refused; `reason` names it). Renewals of a lease are deliveries, not transitions.
    """

    key: Key
    kind: str
    at: datetime
    actor: str  # "auto" or the person's name
    before: Breaker
    after: Breaker
    reason: str
    dry_run: bool = False


class DeliveryStatus(StrEnum):
    """The life of one outbox row."""

    PENDING = "pending"
    CLAIMED = "claimed"
    DELIVERED = "delivered"  # accepted, not confirmed to be in force
    CONFIRMED = "confirmed"
    SUPERSEDED = "superseded"  # a newer state of the same breaker took its place
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class Delivery:
    """One outbox row: the whole present state of one breaker for one endpoint, newest wins.

    `id` is the `webhook-id`, constant over retries. `body` are the exact bytes that are signed
    and sent. `expires_at` is the end of the lease in the payload: later attempts are pointless.
    """

    id: str
    endpoint: str
    key: Key
    epoch: int
    seq: int
    body: bytes
    created_at: datetime
    due_at: datetime
    expires_at: datetime
    status: DeliveryStatus = DeliveryStatus.PENDING
    attempts: int = 0
    claimed_until: datetime | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """What one decision writes, in one transaction.

    Pending or claimed deliveries of the same (endpoint, key) with no higher (epoch, seq) become
    `superseded`. A renewal has no transition.
    """

    breaker: Breaker
    transition: Transition | None = None
    deliveries: tuple[Delivery, ...] = ()
