"""The breakers in force and the one way they change: journal first, then memory, then listeners.

In `observe` mode the machine runs on a shadow: what is public and persisted stays closed, what the
machine would have done is audited as a dry run, and nothing is delivered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from random import Random

from alerts.breaker.admission import retry_after_seconds
from alerts.breaker.events import Event
from alerts.breaker.journal import Journal, JournalError
from alerts.breaker.ledger import Ledger
from alerts.breaker.machine import step
from alerts.breaker.parameters import BreakerParameters
from alerts.breaker.payload import Facts, Route, deliveries
from alerts.breaker.pools import Pools
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
    """Holds every breaker; callers hold the controller's lock around what changes it.

    `machines` is changed through `put`, `add` and `drop` only: `pools` is its index, and `shown`
    what is public of it.
    """

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
        self.shown: dict[Key, Breaker] = {}  # as `public`, kept up with `machines`
        self.pools = Pools()
        self.epoch = 0
        self.rev = 0
        self.closed = False
        self._retired: dict[Key, Breaker] = {}
        self._now = now
        self._rng = rng
        self._on_change = on_change
        self._changed = asyncio.Event()

    def begin(self, epoch: int) -> None:
        """Start at a raised epoch; `rev` starts beyond all that an earlier epoch used."""
        self.epoch = epoch
        self.rev = epoch * REVS_PER_EPOCH

    def put(self, breaker: Breaker) -> None:
        """Hold this state of a breaker from now on."""
        self.machines[breaker.key] = breaker
        self.pools.note(breaker)
        known = self.shown.get(breaker.key)
        public = self.public(breaker)
        if public != known:  # the same object while it is the same: a reader sees what changed
            self.shown[breaker.key] = public

    def add(self, key: Key, known: Breaker | None = None) -> None:
        """Hold a breaker from now on; `known` is its persisted state, if there is one."""
        before = known or self._retired.pop(key, None)
        self.put(replace(before or Breaker(key), epoch=self.epoch))

    def drop(self, key: Key) -> None:
        """Hold a breaker no longer, but remember how far its `seq` came, and nothing else.

        What a shadow would have withheld must not come into force when its tier is enforced.
        """
        self._retired[key] = fresh(self.machines.pop(key))
        self.shown.pop(key, None)
        self.pools.forget(key)
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

    def decided(self, key: Key, event: Event, now: datetime) -> Move | None:
        """Return what `event` changes for anyone outside; what it only counts is counted."""
        before, parameters = self.machines[key], self.parameters(key.tier)
        after, transitions = step(before, event, parameters, now, self._rng.uniform)
        if after.seq == before.seq:
            if after is not before:
                self.put(after)
            return None
        return Move(after, transitions[0] if transitions else None)

    async def apply(
        self, key: Key, event: Event, now: datetime, *, must_be_durable: bool = False
    ) -> None:
        """Put in force what `event` changes; as `commit`."""
        move = self.decided(key, event, now)
        if move is not None:
            await self.commit([move], must_be_durable=must_be_durable)

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
        if not (self.ledger.writable or must_be_durable):
            return not self._let_back(moves, entries)
        try:
            await self.ledger.write(entries, anyway=True)
        except asyncio.CancelledError:  # the transaction ends without whoever asked for it
            self._use_up(moves)
            raise
        except JournalError:
            if must_be_durable:
                self._use_up(moves)
                raise
            refused = self._let_back(moves, entries)
            self._use_up(refused)
            return not refused
        for move, entry in zip(moves, entries, strict=True):
            self._take(move, entry)
        self.tell()
        return True

    async def note(self, transition: Transition) -> None:
        """Audit something that changed no breaker; later, if the journal cannot be written."""
        breaker = self.public(transition.after)
        dry_run = self.observes(breaker.key.tier)
        entry = Entry(breaker, replace(transition, dry_run=dry_run))
        try:
            await self.ledger.write([entry])
        except JournalError:
            self.ledger.defer_row(entry)
        self._on_change(entry)

    def extend_in_memory(self, breakers: Iterable[Breaker], now: datetime) -> None:
        """Renew leases that cannot be written, not beyond what is on disk."""
        before = {breaker.key: self.machines[breaker.key] for breaker in breakers}
        for breaker in before.values():
            until = breaker.override.expires_at if breaker.override else breaker.open_until
            if until is not None and until > now:
                whole = now + timedelta(seconds=self.parameters(breaker.key.tier).lease_seconds)
                lease = max(breaker.lease_expires_at or now, min(whole, until))
                self.put(replace(breaker, lease_expires_at=lease))
        if any(self.machines[key] != breaker for key, breaker in before.items()):
            self.tell()

    def tell(self) -> None:
        """Wake everyone who waits for a newer state."""
        self.rev += 1
        self._changed.set()
        self._changed = asyncio.Event()

    async def changed_since(self, rev: int) -> None:
        """Return once the state is another than `rev`, or the book is closed."""
        while self.rev == rev and not self.closed:
            await self._changed.wait()

    def close(self) -> None:
        """Let go of everyone who waits, for good."""
        self.closed = True
        self._changed.set()

    def _let_back(self, moves: Sequence[Move], entries: Sequence[Entry]) -> list[Move]:
        """Put in force what lets traffic back, to be written later; return the other moves."""
        refused = []
        for move, entry in zip(moves, entries, strict=True):
            before = self.machines.get(move.after.key)
            if before is None or (move.transition and _lets_back(before, move.after)):
                self.ledger.defer(entry)
                self._take(replace(move, after=_leased_as(before, move.after)), entry)
            else:
                refused.append(move)
        if len(refused) < len(moves):
            self.tell()
        return refused

    def _use_up(self, moves: Sequence[Move]) -> None:
        """Leave what is in force as it is, under a number beyond that of `moves`.

        They may be on disk and on the wire all the same: what is in force has to follow them.
        """
        for move in moves:
            before = self.machines.get(move.after.key)
            if before is not None:
                kept = replace(before, seq=move.after.seq + 1)
                self.put(kept)
                self.ledger.defer(self._entry(Move(kept)))
        if moves:
            self.tell()

    def _take(self, move: Move, entry: Entry) -> None:
        if move.after.key in self.machines:
            self.put(move.after)
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
    """Return whether `after` withholds at no moment more than `before`.

    Where an override ends, what it admitted counts and not what lay under it: that begins its
    ramp anew.
    """
    longer = after.open_until is not None and (
        before.open_until is None or after.open_until > before.open_until
    )
    if longer or after.effective_ratio < before.effective_ratio:
        return False
    if before.override is not None and after.override is None:
        return True
    return after.admit_ratio >= before.admit_ratio and after.state.number <= before.state.number


def _leased_as(before: Breaker | None, after: Breaker) -> Breaker:
    """Return `after` with no longer a lease than `before` had: it could not be written."""
    lease = before.lease_expires_at if before else None
    if lease is None or after.lease_expires_at is None:
        return after
    return replace(after, lease_expires_at=min(lease, after.lease_expires_at))
