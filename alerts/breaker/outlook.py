"""What gateways see of the book: the answer for one request, and the whole state as a document."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime
from random import Random

from alerts.breaker.admission import (
    Admission,
    admitted,
    lapsed,
    let_in,
    retry_after_seconds,
)
from alerts.breaker.book import Book, TierSetup
from alerts.breaker.clock import Instant
from alerts.breaker.records import Breaker, Key
from alerts.breaker.state_document import StateDocument, TargetState, TierState, encoded

WAIT_KEPT_SECONDS = 5.0  # retry_after_seconds of a document may be so old


def admit(book: Book, rng: Random, now: datetime, *, tier: str, target: str, key: str) -> Admission:
    """Answer for one request: the tier lets it in, and the target if one is named."""
    setup = book.tiers.get(tier)
    if setup is None:
        return let_in("unknown", "unknown_tier")
    answers = [
        admitted(
            book.public(breaker),
            setup.parameters,
            now=now,
            key=key,
            rng_uniform=rng.uniform,
        )
        for place in ((Key(tier), Key(tier, target)) if target else (Key(tier),))
        if (breaker := book.machines.get(place)) is not None
    ]
    if not answers:
        return let_in("unknown", "unknown_target")
    denied = [answer for answer in answers if not answer.allowed]
    return denied[0] if denied else min(answers, key=lambda answer: answer.ratio)


@dataclass(frozen=True, slots=True)
class _Rows:
    """The rows of a document; `leases` is when the first lease in them ends."""

    rev: int
    stale: AbstractSet[str]
    built: Instant
    leases: datetime | None
    ttl_seconds: float
    tiers: tuple[TierState, ...]
    targets: tuple[TargetState, ...]
    encoded: bytes


class Documents:
    """The state document: its rows are built and encoded once for each rev, however many ask."""

    def __init__(self, book: Book, rng: Random) -> None:
        self._book = book
        self._rng = rng
        self._kept: _Rows | None = None

    def document(self, at: Instant, *, stale: AbstractSet[str]) -> StateDocument:
        """Return every tier and target as gateways should treat them now.

        Nothing is withheld in tiers that are `stale`: nobody decided about them for a lease.
        """
        book, rows = self._book, self._kept
        if rows is None or (rows.rev, rows.stale) != (book.rev, stale) or _past(rows, at):
            rows = self._kept = self._built(at, stale)
        ttl_seconds = rows.ttl_seconds
        if rows.leases is not None:
            ttl_seconds = min(ttl_seconds, (rows.leases - at.wall).total_seconds())
        return StateDocument(
            controller=book.controller,
            epoch=book.epoch,
            rev=book.rev,
            generated_at=at.wall,
            ttl_seconds=ttl_seconds,
            tiers=rows.tiers,
            targets=rows.targets,
            rows=rows.encoded,
        )

    def _built(self, at: Instant, stale: AbstractSet[str]) -> _Rows:
        tiers: list[TierState] = []
        targets: list[TargetState] = []
        leases: list[datetime] = []
        for tier, setup in sorted(self._book.tiers.items()):
            for key in (Key(tier), *(Key(tier, target) for target in sorted(setup.targets))):
                breaker = self._book.public(self._book.machines[key])
                withholds = breaker.effective_ratio < 1
                live = not (withholds and (tier in stale or lapsed(breaker, at.wall)))
                if live and withholds and breaker.lease_expires_at is not None:
                    leases.append(breaker.lease_expires_at)
                wait = _wait(breaker, setup, self._rng, at.wall) if live and withholds else 0
                if key.target:
                    targets.append(_target(breaker, setup, wait, live=live))
                else:
                    tiers.append(_tier(breaker, setup, wait, live=live))
        every = (setup.parameters.lease_seconds for setup in self._book.tiers.values())
        return _Rows(
            rev=self._book.rev,
            stale=stale,
            built=at,
            leases=min(leases, default=None),
            ttl_seconds=min(every, default=60.0),
            tiers=tuple(tiers),
            targets=tuple(targets),
            encoded=encoded(tiers, targets),
        )


def _past(rows: _Rows, at: Instant) -> bool:
    """Return whether something in `rows` that withholds is no longer so, or its wait too old."""
    if rows.leases is None:
        return False
    return at.wall >= rows.leases or at.seconds - rows.built.seconds > WAIT_KEPT_SECONDS


def _wait(breaker: Breaker, setup: TierSetup, rng: Random, now: datetime) -> int:
    return retry_after_seconds(breaker, setup.parameters, now, rng.uniform)


def _code(breaker: Breaker) -> str:
    return breaker.cause.code if breaker.cause else ""


def _tier(breaker: Breaker, setup: TierSetup, wait: int, *, live: bool) -> TierState:
    return TierState(
        id=breaker.key.tier,
        mode=setup.mode,
        state=breaker.shown_state if live else "stale",
        admit_ratio=breaker.effective_ratio if live else 1.0,
        retry_after_seconds=wait,
        epoch=breaker.epoch,
        seq=breaker.seq,
        cause=_code(breaker),
    )


def _target(breaker: Breaker, setup: TierSetup, wait: int, *, live: bool) -> TargetState:
    ratio = breaker.effective_ratio if live else 1.0
    return TargetState(
        id=breaker.key.target,
        tier=breaker.key.tier,
        address=setup.targets[breaker.key.target],
        state=breaker.shown_state if live else "stale",
        admit_ratio=ratio,
        weight=round(100 * ratio),
        retry_after_seconds=wait,
        epoch=breaker.epoch,
        seq=breaker.seq,
        cause=_code(breaker),
    )
