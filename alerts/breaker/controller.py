"""The controller: evaluations and time go in, breakers change, gateways are told.

One task at a time changes anything (a lock); what is decided is written first, then in force. The
ways out, `admit` and `state_document`, read memory and never wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from random import Random

from alerts.breaker import outlook
from alerts.breaker.admission import Admission, let_in
from alerts.breaker.book import Book, Move, TierSetup, released, withholding
from alerts.breaker.clock import WATCHED_SECONDS, Clock, Instant, extended, shifted
from alerts.breaker.events import Force, Release
from alerts.breaker.evidence import Seen
from alerts.breaker.hands import Hands
from alerts.breaker.journal import Journal
from alerts.breaker.machine import renewal_due, renewed
from alerts.breaker.overrides import check_force
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
        now: The wall clock, aware UTC.
        monotonic: Counts intervals, in seconds; derived from `now` if not given.
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
        monotonic: Callable[[], float] | None = None,
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
        self._watch = Watch(self._book.pools)
        self._hands = Hands(self._book, journal)
        self._documents = outlook.Documents(self._book, rng)
        self._journal = journal
        self._clock = Clock(now, monotonic)
        self._rng = rng
        self._lock = asyncio.Lock()
        self._ticked: float | None = None

    @property
    def breakers(self) -> Mapping[Key, Breaker]:
        """Every breaker as gateways should see it; in observe mode closed."""
        return dict(self._book.shown)

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
            at, book = await self._at(), self._book
            book.begin(loaded.epoch)
            await book.commit(reconcile(book, loaded.breakers, at.wall, self._rng.uniform))
            self._warm_up(book.tiers, at)
            self._ticked = at.seconds

    async def evaluate(
        self, tier: str, target: str, verdicts: Sequence[Verdict], *, reading_ok: bool
    ) -> None:
        """Take the verdicts of one completed scrape of a target.

        With an empty `target` they are those of a tick, about pushed generations: those are
        remembered, and may shed the tier only together with harm and where configured. A journal
        that cannot be written shows in `journal_writable`, not as an exception.
        """
        async with self._lock:
            setup, at = self._book.tiers.get(tier), await self._at()
            if setup is None or (target and target not in setup.targets):
                return
            if not target:
                self._watch.take_drift(tier, verdicts, at.seconds, reading_ok=reading_ok)
                return
            key = Key(tier, target)
            breaker = self._book.machines[key]
            seen = self._watch.take(breaker, verdicts, setup, at.seconds, reading_ok=reading_ok)
            await self._judge(breaker, seen, setup, at)
            breaker = self._book.machines[key]
            event = self._watch.round_event(breaker, seen, setup, at.seconds)
            if event is not None:
                await self._book.apply(Key(tier), event, at.wall)

    async def tick(self) -> None:
        """Let time pass, about once a second: timers, overrides, requests, leases."""
        async with self._lock:
            at, book = await self._at(), self._book
            await book.ledger.retry()
            self._give_time_back(at)
            await self._hands.take_over(at.wall)
            waiting = [book.machines[key] for key in book.pools.waiting]
            for breaker in sorted(waiting, key=_turn):
                tick = self._watch.tick(breaker, book.tiers[breaker.key.tier], at.seconds)
                await self._book.apply(breaker.key, tick, at.wall)
            await self._renew(at.wall)
            self._ticked = at.seconds

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
            now = (await self._at()).wall
            check_force(self._book, key, reason=reason, seconds=seconds)
            expires = now + timedelta(seconds=seconds)
            override = Override(forced, actor, reason, now, expires)
            await self._book.apply(key, Force(override), now, must_be_durable=True)
            return self._book.public(self._book.machines[key])

    async def release(self, key: Key, *, actor: str, reason: str) -> Breaker:
        """End an override and any latch; traffic comes back over the ramp.

        It works without a journal too, where it lets traffic back: then it is written when the
        journal can be again.

        Raises:
            OverrideError: If the breaker is unknown or the reason is empty.
            JournalError: If it would withhold more (`forced_closed` ends) and could not be written;
                then nothing changed.
        """
        async with self._lock:
            now = (await self._at()).wall
            await self._hands.release(key, Release(actor, reason), now)
            return self._book.public(self._book.machines[key])

    async def update_tiers(
        self, tiers: Mapping[str, TierSetup], endpoints: Sequence[Route] | None = None
    ) -> None:
        """Swap the setup after a reload: breakers that stay keep their state.

        What enforce withheld is given back where a breaker goes or its tier now only observes. A
        tier that is new or was switched starts closed, with a warm-up of its own.
        """
        async with self._lock:
            at, book = await self._at(), self._book
            asked = configured(tiers)
            same = {t for t in tiers if t in book.tiers and book.tiers[t].mode == tiers[t].mode}
            kept = {key for key in book.machines if key in asked and key.tier in same}
            gone = [breaker for key, breaker in book.machines.items() if key not in kept]
            told = [b for b in gone if withholding(b) and not book.observes(b.key.tier)]
            await book.commit(
                [released(breaker, "configuration changed", at.wall) for breaker in told]
            )
            for breaker in gone:
                book.drop(breaker.key)
                self._watch.forget(breaker.key)
            self._watch.forget_trips(book.tiers.keys() - tiers.keys())
            book.tiers = dict(tiers)
            book.routes = book.routes if endpoints is None else tuple(endpoints)
            for key in asked - kept:
                book.add(key)
            self._warm_up(tiers.keys() - same, at)
            book.tell()

    def admit(self, tier: str, target: str = "", key: str = "") -> Admission:
        """Answer for one request; equal keys get equal answers while the ratio stays."""
        at, setup = self._clock.read(), self._book.tiers.get(tier)
        if setup is not None and self._stale(at, setup):
            return let_in("stale", "evaluator_stale")
        return outlook.admit(self._book, self._rng, at.wall, tier=tier, target=target, key=key)

    def state_document(self) -> StateDocument:
        """Return every tier and target as gateways should treat them now."""
        at, tiers = self._clock.read(), self._book.tiers.items()
        stale = frozenset(tier for tier, setup in tiers if self._stale(at, setup))
        return self._documents.document(at, stale=stale)

    async def wait_for(self, after_rev: int, timeout_seconds: float) -> StateDocument | None:
        """Return the state once it is another than `after_rev`, or None after the timeout.

        Once closed, None at once.
        """
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._book.changed_since(after_rev)
        except TimeoutError:
            return None
        return None if self._book.closed else self.state_document()

    def close(self) -> None:
        """Let everyone go who waits for a newer state, now and from now on: the service stops."""
        self._book.close()

    def _stale(self, at: Instant, setup: TierSetup) -> bool:
        return self._ticked is None or at.seconds - self._ticked > setup.parameters.lease_seconds

    def _warm_up(self, tiers: Iterable[str], at: Instant) -> None:
        for tier in tiers:
            seconds = self._book.parameters(tier).warmup_seconds
            self._watch.warm_up(tier, at.seconds + seconds)

    async def _at(self) -> Instant:
        """Return this moment; if the wall clock was set, every breaker follows it first."""
        at = self._clock.read()
        jump = self._clock.jump(at)
        if jump:
            await self._follow(jump, at)
        return at

    async def _follow(self, jump_seconds: float, at: Instant) -> None:
        """Move deadlines with the wall clock; what was brought nearer is written and told."""
        book = self._book
        _LOG.warning("the wall clock was set", extra={"jump_seconds": jump_seconds})
        for breaker in list(book.machines.values()):
            book.put(shifted(breaker, jump_seconds))
        book.tell()
        if jump_seconds > 0:  # set forward, or the machine was suspended: evidence may be old
            self._watch.doubt(at.seconds)
        else:
            waiting = (book.machines[key] for key in sorted(book.pools.waiting))
            enforced = [breaker for breaker in waiting if not book.observes(breaker.key.tier)]
            await book.commit(
                [Move(renewed(b, book.parameters(b.key.tier), at.wall)) for b in enforced]
            )

    def _give_time_back(self, at: Instant) -> None:
        """Do not count the time against half-open targets in which nobody ticked."""
        passed = at.seconds - (at.seconds if self._ticked is None else self._ticked)
        if passed > WATCHED_SECONDS:
            for key in list(self._book.pools.waiting):
                late = extended(self._book.machines[key], passed - WATCHED_SECONDS)
                self._book.put(late)

    async def _judge(self, breaker: Breaker, seen: Seen, setup: TierSetup, at: Instant) -> None:
        key, watch = breaker.key, self._watch
        refused = watch.refused(breaker, seen, setup, at.seconds)
        if refused and watch.suppress(key, refused, at.seconds):
            note = Transition(key, "suppressed", at.wall, "auto", breaker, breaker, refused)
            await self._book.note(note)
        event = watch.event(breaker, seen, setup, refused)
        if event is None:
            return
        await self._book.apply(key, event, at.wall)
        after = self._book.machines[key]
        if breaker.state is State.CLOSED and after.state is State.OPEN:
            watch.tripped(key, at.seconds)

    async def _renew(self, now: datetime) -> None:
        """Renew leases; without a journal only in memory and not beyond what is durable."""
        book = self._book
        waiting = (book.machines[key] for key in sorted(book.pools.waiting))
        due = [
            breaker
            for breaker in waiting
            if not book.observes(breaker.key.tier)
            and renewal_due(breaker, book.parameters(breaker.key.tier), now, self._rng.uniform)
        ]
        moves = [Move(renewed(b, book.parameters(b.key.tier), now)) for b in due]
        if not await book.commit(moves):
            book.extend_in_memory(due, now)


def _turn(breaker: Breaker) -> tuple[bool, float, Key]:
    """Order ticks so that who waits longest for half open has the first turn."""
    until = breaker.open_until
    return until is None, until.timestamp() if until else 0.0, breaker.key
