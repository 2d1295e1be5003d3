"""The controller: evaluations and time go in, breakers change, gateways are told.

One task at a time changes anything (a lock); what is decided is written first, then in force. The
ways out, `admit` and `state_document`, read memory and never wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from random import Random

from alerts.breaker import outlook
from alerts.breaker.admission import Admission, let_in
from alerts.breaker.book import Book, Move, TierSetup, released, withholding
from alerts.breaker.events import Event, Force, Release
from alerts.breaker.journal import Journal, JournalError
from alerts.breaker.machine import renewal_due, renewed, step
from alerts.breaker.overrides import OverrideError, bounded, check_force, check_known
from alerts.breaker.payload import Route
from alerts.breaker.reconcile import configured, reconcile
from alerts.breaker.records import Breaker, Entry, Forced, Key, Override, State, Transition
from alerts.breaker.state_document import StateDocument
from alerts.breaker.watch import Watch
from detectors.records import Verdict

_LOG = logging.getLogger(__name__)


def _ignore(_entry: Entry) -> None:
    return None


class Controller:
    """Owns every breaker of every tier.

    Args:
        journal: Where decisions are written before they are in force.
        tiers: Name to setup; `update_tiers` replaces them.
        now: The clock, aware UTC.
        rng: For jitter and for sampling requests that carry no key.
        controller: This installation's name in what gateways receive.
        endpoints: Who is told by webhook.
        on_change: Called after each change or refusal that was audited, and each renewal.
    """

    def __init__(  # noqa: PLR0913  # all named, and called by the wiring only
        self,
        journal: Journal,
        tiers: Mapping[str, TierSetup],
        *,
        now: Callable[[], datetime],
        rng: Random,
        controller: str = "fusewire",
        endpoints: Sequence[Route] = (),
        on_change: Callable[[Entry], None] = _ignore,
    ) -> None:
        self._book = Book(
            journal,
            tiers,
            now=now,
            rng=rng,
            controller=controller,
            routes=endpoints,
            on_change=on_change,
        )
        self._watch = Watch()
        self._journal = journal
        self._now = now
        self._rng = rng
        self._lock = asyncio.Lock()
        self._ticked_at: datetime | None = None
        self._asked: dict[Key, Override | None] = {}

    @property
    def breakers(self) -> Mapping[Key, Breaker]:
        """Every breaker as gateways should see it; in observe mode closed."""
        return {key: self._book.public(breaker) for key, breaker in self._book.machines.items()}

    @property
    def shadows(self) -> Mapping[Key, Breaker]:
        """What the machine would do in the tiers that only observe."""
        machines = self._book.machines.items()
        return {key: breaker for key, breaker in machines if self._book.observes(key.tier)}

    @property
    def journal_writable(self) -> bool:
        return self._book.ledger.writable

    @property
    def journal_failures(self) -> int:
        return self._book.ledger.failures

    @property
    def entries_dropped(self) -> int:
        """Audit rows lost because the journal could not be written for long."""
        return self._book.ledger.dropped

    async def start(self) -> None:
        """Load and reconcile; what stays withheld has its lease renewed before anything else.

        Raises:
            JournalError: If the journal cannot be loaded: then nothing may be decided.
        """
        async with self._lock:
            loaded = await self._journal.load()
            now, book = self._now(), self._book
            book.begin(loaded.epoch)
            await book.commit(reconcile(book, loaded.breakers, now, self._rng.uniform))
            longest = max((s.parameters.warmup_seconds for s in book.tiers.values()), default=0)
            self._watch.warm_at = now + timedelta(seconds=longest)
            self._ticked_at = now

    async def evaluate(
        self, tier: str, target: str, verdicts: Sequence[Verdict], *, reading_ok: bool
    ) -> None:
        """Take the verdicts of one completed scrape of a target.

        With an empty `target` they are those of a tick, about pushed generations: those are
        remembered, and may shed the tier only together with harm and where configured. A journal
        that cannot be written shows in `journal_writable`, not as an exception.
        """
        async with self._lock:
            setup, now = self._book.tiers.get(tier), self._now()
            if setup is None or (target and target not in setup.targets):
                return
            if not target:
                self._watch.take_drift(tier, verdicts, now, reading_ok=reading_ok)
                return
            key = Key(tier, target)
            await self._judge(key, setup, verdicts, now, reading_ok=reading_ok)
            breaker = self._book.machines[key]
            event = self._watch.round_event(key, breaker, setup, now)
            if event is not None:
                await self._apply(Key(tier), event, now)

    async def tick(self) -> None:
        """Let time pass, about once a second: timers, overrides, requests, leases."""
        async with self._lock:
            now, book = self._now(), self._book
            await book.ledger.retry()
            await self._take_over_requests(now)
            waiting = [
                breaker
                for breaker in book.machines.values()
                if breaker.state is not State.CLOSED or breaker.override is not None
            ]
            for breaker in sorted(waiting, key=_turn):
                setup = book.tiers[breaker.key.tier]
                tick = self._watch.tick(breaker, self._pool(breaker.key.tier), setup, now)
                await self._apply(breaker.key, tick, now)
            await self._renew(now)
            self._ticked_at = now

    async def override(
        self, key: Key, forced: Forced, *, actor: str, reason: str, seconds: float
    ) -> Breaker:
        """Force a breaker open or closed for `seconds`, durable when this returns.

        Raises:
            OverrideError: If the breaker is unknown or only observed, the reason is empty, or
                `seconds` is not within 0 and `override_max_seconds`.
            JournalError: If it could not be written; then nothing changed.
        """
        async with self._lock:
            now = self._now()
            check_force(self._book, key, reason=reason, seconds=seconds)
            expires = now + timedelta(seconds=seconds)
            override = Override(forced, actor, reason, now, expires)
            await self._apply(key, Force(override), now, must_be_durable=True)
            return self._book.public(self._book.machines[key])

    async def release(self, key: Key, *, actor: str, reason: str) -> Breaker:
        """End an override and any latch; traffic comes back over the ramp.

        It works without a journal too: then it is written when the journal can be again.

        Raises:
            OverrideError: If the breaker is unknown or the reason is empty.
        """
        async with self._lock:
            check_known(self._book, key, reason)
            await self._apply(key, Release(actor, reason), self._now())
            return self._book.public(self._book.machines[key])

    async def update_tiers(
        self, tiers: Mapping[str, TierSetup], endpoints: Sequence[Route] | None = None
    ) -> None:
        """Swap the setup after a reload: breakers that stay keep their state.

        What enforce withheld is given back where a breaker goes or its tier now only observes.
        """
        async with self._lock:
            now, book = self._now(), self._book
            kept = {
                key
                for key in book.machines
                if key in configured(tiers) and book.tiers[key.tier].mode == tiers[key.tier].mode
            }
            gone = [breaker for key, breaker in book.machines.items() if key not in kept]
            told = [b for b in gone if withholding(b) and not book.observes(b.key.tier)]
            await book.commit([released(breaker, "configuration changed", now) for breaker in told])
            for breaker in gone:
                book.drop(breaker.key)
                self._watch.forget(breaker.key)
            book.tiers = dict(tiers)
            book.routes = book.routes if endpoints is None else tuple(endpoints)
            for key in configured(tiers) - kept:
                book.add(key)
            book.tell()

    def admit(self, tier: str, target: str = "", key: str = "") -> Admission:
        """Answer for one request; equal keys get equal answers while the ratio stays."""
        now, setup = self._now(), self._book.tiers.get(tier)
        if setup is not None and self._stale(now, setup.parameters.lease_seconds):
            return let_in("stale", "evaluator_stale")
        return outlook.admit(self._book, self._rng, now, tier=tier, target=target, key=key)

    def state_document(self) -> StateDocument:
        """Return every tier and target as gateways should treat them now."""
        return outlook.document(self._book, self._rng, self._now())

    async def wait_for(self, after_rev: int, timeout_seconds: float) -> StateDocument | None:
        """Return the state once it is another than `after_rev`, or None after the timeout."""
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._book.changed_since(after_rev)
        except TimeoutError:
            return None
        return self.state_document()

    def _stale(self, now: datetime, lease_seconds: float) -> bool:
        ticked = self._ticked_at
        return ticked is None or (now - ticked).total_seconds() > lease_seconds

    def _pool(self, tier: str) -> Mapping[Key, Breaker]:
        keys = (Key(tier, target) for target in self._book.tiers[tier].targets)
        return {key: self._book.machines[key] for key in keys}

    async def _judge(
        self,
        key: Key,
        setup: TierSetup,
        verdicts: Sequence[Verdict],
        now: datetime,
        *,
        reading_ok: bool,
    ) -> None:
        breaker, watch = self._book.machines[key], self._watch
        seen = watch.take(breaker, verdicts, setup, now, reading_ok=reading_ok)
        refused = watch.refused(breaker, seen, self._pool(key.tier), setup, now)
        if refused and watch.suppress(key, refused, now):
            note = Transition(key, "suppressed", now, "auto", breaker, breaker, refused)
            await self._book.note(note)
        event = watch.event(breaker, seen, setup, refused)
        if event is None:
            return
        await self._apply(key, event, now)
        after = self._book.machines[key]
        if breaker.state is State.CLOSED and after.state is State.OPEN:
            watch.tripped(key, now)

    async def _apply(
        self, key: Key, event: Event, now: datetime, *, must_be_durable: bool = False
    ) -> None:
        before = self._book.machines[key]
        parameters = self._book.parameters(key.tier)
        after, transitions = step(before, event, parameters, now, self._rng.uniform)
        if after.seq == before.seq:
            self._book.machines[key] = after
            return
        move = Move(after, transitions[0] if transitions else None)
        await self._book.commit([move], must_be_durable=must_be_durable)

    async def _renew(self, now: datetime) -> None:
        """Renew leases; without a journal only in memory and not beyond what is durable."""
        due = [
            breaker
            for key, breaker in self._book.machines.items()
            if not self._book.observes(key.tier)
            and renewal_due(breaker, self._book.parameters(key.tier), now, self._rng.uniform)
        ]
        moves = [Move(renewed(b, self._book.parameters(b.key.tier), now)) for b in due]
        if await self._book.commit(moves):
            return
        for breaker in due:
            until = breaker.override.expires_at if breaker.override else breaker.open_until
            if until is not None and until > now:
                self._book.extend_in_memory(breaker.key, now, until)

    async def _take_over_requests(self, now: datetime) -> None:
        """Honour overrides that commands left in the journal while nobody answered them."""
        try:
            self._asked.update(await self._journal.overrides())
        except JournalError:
            self._book.ledger.failed()
        for key, asked in list(self._asked.items()):
            try:
                await self._honour(key, asked, now)
            except OverrideError as error:
                _LOG.warning("override request refused", extra={"problem": str(error)})
                await self._answer(key, f"request refused: {error}", now)
            except JournalError:
                continue  # kept, and tried again on the next tick
            del self._asked[key]

    async def _answer(self, key: Key, reason: str, now: datetime) -> None:
        """Audit that a request changed nothing, so that no later start honours it anew."""
        breaker = self._book.machines.get(key, Breaker(key, epoch=self._book.epoch))
        done = Transition(key, "override_ended", now, "command", breaker, breaker, reason[:400])
        await self._book.note(done)

    async def _honour(self, key: Key, asked: Override | None, now: datetime) -> None:
        book = self._book
        if asked is None:
            check_known(book, key, "by command")
            before = book.machines[key]
            await self._apply(key, Release("command", "released by command"), now)
            if book.machines[key] == before:
                await self._answer(key, "nothing to release", now)
            return
        override = bounded(book, key, asked, now)
        seconds = (override.expires_at - now).total_seconds()
        check_force(book, key, reason=override.reason, seconds=seconds)
        await self._apply(key, Force(override), now, must_be_durable=True)


def _turn(breaker: Breaker) -> tuple[bool, float, Key]:
    """Order ticks so that who waits longest for half open has the first turn."""
    until = breaker.open_until
    return until is None, until.timestamp() if until else 0.0, breaker.key
