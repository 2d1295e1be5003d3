"""The breakers in force and the one way they change: journal first, then memory, then listeners.

In `observe` mode the machine runs on a shadow: what is public and persisted stays closed, what the
machine would have done is audited as a dry run, and nothing is delivered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from random import Random

from alerts.breaker.admission import retry_after_seconds
from alerts.breaker.journal import Journal, JournalError
from alerts.breaker.ledger import Ledger
from alerts.breaker.parameters import BreakerParameters
from alerts.breaker.payload import Facts, Route, deliveries
from alerts.breaker.records import Breaker, Entry, Key, Mode, State, Transition

RETIRED_MOST = 10_000
REVS_PER_EPOCH = 1_000_000
_WOULD = {"open": "would_open", "shed": "would_shed"}


@dataclass(frozen=True, slots=True)
class TierSetup:
    """A tier as its breakers need it; `targets` maps a target's id to its address."""

    targets: Mapping[str, str]
    mode: Mode = "observe"
    parameters: BreakerParameters = field(default_factory=BreakerParameters)
    drift_may_shed: bool = False


@dataclass(frozen=True, slots=True)
class Move:
    """One decided change; `undo` is told to gateways even where the tier only observes."""

    after: Breaker
    transition: Transition | None = None
    undo: bool = False


class Book:
    """Holds every breaker; callers hold the controller's lock around what changes it."""

    def __init__(  # noqa: PLR0913  # all named, and called by the controller only
        self,
        journal: Journal,
        tiers: Mapping[str, TierSetup],
        *,
        now: Callable[[], datetime],
        rng: Random,
        controller: str,
        routes: Sequence[Route],
        on_change: Callable[[Entry], None],
    ) -> None:
        self.tiers = dict(tiers)
        self.routes = tuple(routes)
        self.ledger = Ledger(journal)
        self.controller = controller
        self.machines: dict[Key, Breaker] = {}
        self.epoch = 0
        self.rev = 0
        self._retired: dict[Key, Breaker] = {}
        self._now = now
        self._rng = rng
        self._on_change = on_change
        self._changed = asyncio.Event()

    def begin(self, epoch: int) -> None:
        """Start at a raised epoch; `rev` starts beyond all that an earlier epoch used."""
        self.epoch = epoch
        self.rev = epoch * REVS_PER_EPOCH

    def add(self, key: Key, known: Breaker | None = None) -> None:
        """Hold a breaker from now on; `known` is its persisted state, if there is one."""
        before = known or self._retired.pop(key, None)
        self.machines[key] = replace(before or Breaker(key), epoch=self.epoch)

    def drop(self, key: Key) -> None:
        """Hold a breaker no longer, but remember how far its `seq` came."""
        self._retired[key] = self.machines.pop(key)
        while len(self._retired) > RETIRED_MOST:
            del self._retired[next(iter(self._retired))]

    def parameters(self, tier: str) -> BreakerParameters:
        setup = self.tiers.get(tier)
        return setup.parameters if setup else BreakerParameters()

    def observes(self, tier: str) -> bool:
        setup = self.tiers.get(tier)
        return setup is not None and setup.mode == "observe"

    def public(self, breaker: Breaker) -> Breaker:
        """Return what is persisted and shown: in observe mode a closed breaker."""
        return fresh(breaker) if self.observes(breaker.key.tier) else breaker

    async def commit(self, moves: Sequence[Move], *, must_be_durable: bool = False) -> bool:
        """Put `moves` in force, in one transaction; return whether all are.

        When the journal fails, a move that lets traffic back is in force all the same and written
        later; every other one did not happen.

        Raises:
            JournalError: Only with `must_be_durable`; then nothing is in force.
        """
        if not moves:
            return True
        entries = [self._entry(move) for move in moves]
        try:
            await self.ledger.write(entries)
        except JournalError:
            if must_be_durable:
                raise
            return self._let_back(moves, entries)
        for move, entry in zip(moves, entries, strict=True):
            self._put(move, entry)
        self.tell()
        return True

    async def note(self, transition: Transition) -> None:
        """Audit something that changed no breaker."""
        breaker = self.public(transition.after)
        dry_run = self.observes(breaker.key.tier)
        entry = Entry(breaker, replace(transition, dry_run=dry_run))
        try:
            await self.ledger.write([entry])
        except JournalError:
            return
        self._on_change(entry)

    def extend_in_memory(self, key: Key, now: datetime, until: datetime) -> None:
        """Renew a lease that cannot be written, not beyond `until`."""
        breaker = self.machines[key]
        setup = self.parameters(key.tier)
        whole = now + timedelta(seconds=setup.lease_seconds)
        lease = max(breaker.lease_expires_at or now, min(whole, until))
        self.machines[key] = replace(breaker, lease_expires_at=lease)
        self.tell()

    def tell(self) -> None:
        """Wake everyone who waits for a newer state."""
        self.rev += 1
        self._changed.set()
        self._changed = asyncio.Event()

    async def changed_since(self, rev: int) -> None:
        """Return once the state is another than `rev`."""
        while self.rev == rev:
            await self._changed.wait()

    def _let_back(self, moves: Sequence[Move], entries: Sequence[Entry]) -> bool:
        every = True
        for move, entry in zip(moves, entries, strict=True):
            before = self.machines.get(move.after.key)
            if before is None or (move.transition and _lets_back(before, move.after)):
                self.ledger.defer(entry)
                self._put(replace(move, after=_leased_as(before, move.after)), entry)
            else:
                every = False
        self.tell()
        return every

    def _put(self, move: Move, entry: Entry) -> None:
        if move.after.key in self.machines:
            self.machines[move.after.key] = move.after
        self._on_change(entry)

    def _entry(self, move: Move) -> Entry:
        after, transition = move.after, move.transition
        if self.observes(after.key.tier) and not move.undo:
            if transition is not None:
                kind = _WOULD.get(transition.kind, transition.kind)
                transition = replace(transition, kind=kind, dry_run=True)
            return Entry(fresh(after), transition)
        now, parameters = self._now(), self.parameters(after.key.tier)
        setup = self.tiers.get(after.key.tier)
        facts = Facts(
            controller=self.controller,
            parameters=parameters,
            address=setup.targets.get(after.key.target, "") if setup else "",
            retry_after_seconds=retry_after_seconds(after, parameters, now, self._rng.uniform),
        )
        return Entry(after, transition, deliveries(self.routes, after, transition, facts, now))


def fresh(breaker: Breaker) -> Breaker:
    """Return a closed breaker that continues the numbers of `breaker`."""
    return Breaker(breaker.key, epoch=breaker.epoch, seq=breaker.seq)


def released(breaker: Breaker, reason: str, now: datetime) -> Move:
    """Return the move that gives everything back to gateways that were told otherwise."""
    closed = replace(fresh(breaker), seq=breaker.seq + 1, changed_at=now)
    transition = Transition(breaker.key, "closed", now, "auto", breaker, closed, reason)
    return Move(closed, transition, undo=True)


def withholding(breaker: Breaker) -> bool:
    """Return whether gateways may hold something other than full admission from `breaker`."""
    return breaker.state is not State.CLOSED or breaker.override is not None


def _lets_back(before: Breaker, after: Breaker) -> bool:
    """Return whether `after` withholds at no moment more than `before`."""
    longer = after.open_until is not None and (
        before.open_until is None or after.open_until > before.open_until
    )
    return (
        after.effective_ratio >= before.effective_ratio
        and after.admit_ratio >= before.admit_ratio
        and after.state.number <= before.state.number
        and not longer
    )


def _leased_as(before: Breaker | None, after: Breaker) -> Breaker:
    """Return `after` with no longer a lease than `before` had: it could not be written."""
    lease = before.lease_expires_at if before else None
    if lease is None or after.lease_expires_at is None:
        return after
    return replace(after, lease_expires_at=min(lease, after.lease_expires_at))
