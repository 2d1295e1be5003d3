"""Carries the outbox to gateways: claim, sign, post, settle; newest state wins.

A control message is tried until it is confirmed, superseded, or its lease has ended; after that the
controller's next renewal makes a fresh one from the present state, so nothing old is ever replayed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from random import Random

import httpx2

from alerts.breaker.records import Delivery, DeliveryStatus, Key
from alerts.delivery.answers import Meaning, Outcome
from alerts.delivery.egress import Resolve
from alerts.delivery.endpoint import Endpoint
from alerts.delivery.sending import Sender
from alerts.journal import Journal, JournalError

_LOG = logging.getLogger(__name__)
LADDER_SECONDS = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0)
JITTER = 0.2
SLOW_AFTER = 5  # failures in a row: then one attempt per SLOW_SECONDS
SLOW_SECONDS = 15.0
POLL_SECONDS = 0.25
QUIET_POLL_SECONDS = 5.0  # with nothing to expect: a look for what was written unknown to us
WATCH_SECONDS = 30.0  # longer than any retry waits and any claim holds
PER_ENDPOINT_MOST = 8  # on the wire at once: one that hangs takes no other's place
_STATUS: Mapping[Outcome, DeliveryStatus] = {
    Outcome.CONFIRMED: DeliveryStatus.CONFIRMED,
    Outcome.DELIVERED: DeliveryStatus.DELIVERED,
    Outcome.SUPERSEDED: DeliveryStatus.SUPERSEDED,
    Outcome.DEPOSED: DeliveryStatus.DEAD,
    Outcome.MISCONFIGURED: DeliveryStatus.DEAD,
}


@dataclass(frozen=True, slots=True)
class EndpointHealth:
    """What is known of one endpoint since start.

    `failures` counts attempts that failed since one succeeded; `deposed` says that the gateway
    follows another controller's newer epoch.
    """

    attempts: Mapping[str, int]
    failures: int = 0
    problem: str = ""
    deposed: bool = False
    oldest_pending_seconds: float = 0.0
    oldest_unconfirmed_seconds: float = 0.0


@dataclass
class _Ledger:
    """The running counts of one endpoint; at most one entry a breaker."""

    attempts: dict[str, int]
    pending: dict[Key, datetime]
    unconfirmed: dict[Key, tuple[datetime, datetime]]  # since when, and until when it matters
    failures: int = 0
    problem: str = ""
    deposed: bool = False


def a_client() -> httpx2.AsyncClient:
    """Return a client that follows nothing, heeds no proxy of the environment, reuses nothing.

    Connections are made to checked addresses: two names behind one address must not share one.
    """
    alone = httpx2.Limits(max_keepalive_connections=0, max_connections=None)  # the claim bounds it
    return httpx2.AsyncClient(follow_redirects=False, trust_env=False, limits=alone)


class DeliveryWorker:
    """Sends what is due; run one per process.

    Args:
        journal: The outbox.
        endpoints: By name; deliveries to unknown names are given up as misconfigured.
        client: From `a_client`.
        now: The clock, aware UTC.
        rng: For the spread of retries.
        resolve: How names become addresses, as `egress.resolve_by_system`.
        controller: This installation's name, for the user agent.

    `journal_failures` counts calls of the outbox that failed.
    """

    def __init__(  # noqa: PLR0913  # all named, and called by the wiring only
        self,
        journal: Journal,
        endpoints: Mapping[str, Endpoint],
        *,
        client: httpx2.AsyncClient,
        now: Callable[[], datetime],
        rng: Random,
        resolve: Resolve,
        controller: str = "fusewire",
    ) -> None:
        self.journal_failures = 0
        self._journal = journal
        self._endpoints = dict(endpoints)
        self._sender = Sender(client, resolve, now=now, controller=controller)
        self._now = now
        self._rng = rng
        self._ledgers: dict[str, _Ledger] = {}
        self._in_flight: dict[tuple[str, Key], asyncio.Task[None]] = {}
        self._wake = asyncio.Event()
        self._watching = WATCH_SECONDS  # left to look often: after a start claims may yet lapse
        self._broken: set[str] = set()

    def wake(self) -> None:
        """Look at the outbox at once: something was recorded."""
        self._wake.set()

    def update_endpoints(self, endpoints: Mapping[str, Endpoint]) -> None:
        """Swap the endpoints after a reload."""
        self._endpoints = dict(endpoints)

    def health(self) -> Mapping[str, EndpointHealth]:
        """Return counts and ages by endpoint, for metrics."""
        now = self._now()
        for name in self._endpoints:
            _forget_ended(self._ledger(name), now)
        return {
            name: EndpointHealth(
                attempts=dict(ledger.attempts),
                failures=ledger.failures,
                problem=ledger.problem,
                deposed=ledger.deposed,
                oldest_pending_seconds=_oldest(ledger.pending.values(), now),
                oldest_unconfirmed_seconds=_oldest(
                    (since for since, _ in ledger.unconfirmed.values()), now
                ),
            )
            for name, ledger in self._ledgers.items()
        }

    async def run(self) -> None:
        """Send until cancelled; what is in flight then is claimed again by the next process.

        The outbox is looked at when something was recorded, and often for as long as a retry or
        the claim of a process that died can come due. With nothing to expect it is looked at now
        and then: a write that was told to have failed may be there all the same.
        """
        try:
            while True:
                self._watching -= POLL_SECONDS
                failures = self.journal_failures
                if await self.send_due() or self._in_flight or self.journal_failures > failures:
                    self._watching = WATCH_SECONDS
                seconds = POLL_SECONDS if self._watching > 0 else QUIET_POLL_SECONDS
                self._wake.clear()
                try:
                    async with asyncio.timeout(seconds):
                        await self._wake.wait()
                    self._watching = WATCH_SECONDS
                except TimeoutError:
                    continue
        finally:
            for task in list(self._in_flight.values()):
                task.cancel()

    async def send_due(self) -> int:
        """Claim what is due and start sending it; return how many were started."""
        room = PER_ENDPOINT_MOST * (len(self._endpoints) + 1) - len(self._in_flight)
        longest = max((e.timeout_seconds for e in self._endpoints.values()), default=5.0)
        if room <= 0:
            return 0
        try:
            claimed = await self._journal.claim(
                now=self._now(),
                limit=room,
                hold_seconds=longest + 2,
                per_endpoint=PER_ENDPOINT_MOST,
                busy=tuple(self._in_flight),
            )
        except JournalError as error:
            self._failed("outbox cannot be read", error)
            return 0
        self._works("outbox cannot be read")
        for delivery in claimed:
            task = asyncio.create_task(self._attempt(delivery))
            self._in_flight[delivery.endpoint, delivery.key] = task
            task.add_done_callback(partial(self._landed, delivery))
        return len(claimed)

    async def drain(self) -> None:
        """Wait until nothing is in flight."""
        while self._in_flight:
            await asyncio.wait(list(self._in_flight.values()))

    def _landed(self, delivery: Delivery, task: asyncio.Task[None]) -> None:
        """Free the place of an attempt that ended, however it did, and say if it should not so.

        What was not settled is due again when its hold ends.
        """
        del self._in_flight[delivery.endpoint, delivery.key]
        self._wake.set()
        error = None if task.cancelled() else task.exception()
        if error is not None:
            problem = f"{type(error).__name__}: {error}"
            ledger = self._ledger(delivery.endpoint)
            if ledger.problem != problem:
                extra = {"endpoint": delivery.endpoint, "problem": problem}
                _LOG.error("webhook attempt failed by a fault of ours", extra=extra, exc_info=error)
            self._note(ledger, delivery, Meaning(Outcome.BROKEN, problem))

    async def _attempt(self, delivery: Delivery) -> None:
        ledger = self._ledger(delivery.endpoint)
        ledger.pending.setdefault(delivery.key, delivery.created_at)
        since, _ = ledger.unconfirmed.get(delivery.key, (delivery.created_at, None))
        ledger.unconfirmed[delivery.key] = (since, delivery.expires_at)
        endpoint = self._endpoints.get(delivery.endpoint)
        if self._now() >= delivery.expires_at:
            found = Meaning(Outcome.SUPERSEDED, "its lease has ended; a renewal takes its place")
        elif endpoint is None:
            found = Meaning(Outcome.MISCONFIGURED, "no such webhook is configured any more")
        else:
            found = await self._sender.post(endpoint, delivery)
        self._note(ledger, delivery, found)
        if found.outcome is Outcome.RETRY:
            due = self._now() + timedelta(seconds=self._wait(delivery, ledger, found))
            await self._settle(delivery, DeliveryStatus.PENDING, problem=found.problem, due_at=due)
        else:
            await self._settle(delivery, _STATUS[found.outcome], problem=found.problem)

    def _wait(self, delivery: Delivery, ledger: _Ledger, found: Meaning) -> float:
        step = LADDER_SECONDS[min(max(delivery.attempts, 1), len(LADDER_SECONDS)) - 1]
        seconds = SLOW_SECONDS if ledger.failures >= SLOW_AFTER else step
        if found.wait_seconds is not None:
            seconds = min(max(seconds, found.wait_seconds), SLOW_SECONDS)
        return seconds * self._rng.uniform(1 - JITTER, 1 + JITTER)

    def _note(self, ledger: _Ledger, delivery: Delivery, found: Meaning) -> None:
        outcome = found.outcome
        again = {Outcome.RETRY, Outcome.BROKEN}
        ledger.attempts[outcome] = ledger.attempts.get(outcome, 0) + 1
        if outcome not in again:
            ledger.pending.pop(delivery.key, None)
        if outcome is Outcome.CONFIRMED:
            ledger.unconfirmed.pop(delivery.key, None)
        bad = outcome in again | {Outcome.MISCONFIGURED, Outcome.DEPOSED}
        extra = {"endpoint": delivery.endpoint, "problem": found.problem}
        if bad and not ledger.failures:
            _LOG.warning("webhook broke", extra=extra)
        elif not bad and ledger.failures:
            _LOG.info("webhook healed", extra={"endpoint": delivery.endpoint})
        ledger.failures = ledger.failures + 1 if bad else 0
        ledger.problem = found.problem if bad else ""
        ledger.deposed = outcome is Outcome.DEPOSED

    async def _settle(
        self,
        delivery: Delivery,
        status: DeliveryStatus,
        *,
        problem: str = "",
        due_at: datetime | None = None,
    ) -> None:
        try:
            await self._journal.settle(
                delivery.id, status=status, at=self._now(), problem=problem, due_at=due_at
            )
        except JournalError as error:  # its hold ends by itself, then it is sent again
            self._failed("deliveries cannot be settled", error)
        else:
            self._works("deliveries cannot be settled")

    def _failed(self, phrase: str, error: JournalError) -> None:
        """Count a failure of the outbox; say so when it begins."""
        self.journal_failures += 1
        if phrase not in self._broken:
            self._broken.add(phrase)
            _LOG.warning(phrase, extra={"problem": str(error)})

    def _works(self, phrase: str) -> None:
        if phrase in self._broken:
            self._broken.discard(phrase)
            _LOG.info("outbox healed", extra={"failures": self.journal_failures, "was": phrase})

    def _ledger(self, endpoint: str) -> _Ledger:
        return self._ledgers.setdefault(endpoint, _Ledger({}, {}, {}))


def _oldest(moments: Iterable[datetime], now: datetime) -> float:
    return max((0.0, *((now - at).total_seconds() for at in moments)))


def _forget_ended(ledger: _Ledger, now: datetime) -> None:
    """Forget what no gateway can hold any more: its lease has ended and nobody renewed it."""
    for key, (_, until) in list(ledger.unconfirmed.items()):
        if until <= now:
            del ledger.unconfirmed[key]
            ledger.pending.pop(key, None)
