"""What gateways see of the book: the answer for one request, and the whole state as a document."""

from __future__ import annotations

from datetime import datetime
from random import Random

from alerts.breaker.admission import (
    Admission,
    admitted,
    lapsed,
    let_in,
    ratio_in_force,
    retry_after_seconds,
)
from alerts.breaker.book import Book, TierSetup
from alerts.breaker.records import Breaker, Key
from alerts.breaker.state_document import StateDocument, TargetState, TierState


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


def document(book: Book, rng: Random, now: datetime) -> StateDocument:
    """Return every tier and target as gateways should treat them now."""
    tiers: list[TierState] = []
    targets: list[TargetState] = []
    ttl_seconds = min((s.parameters.lease_seconds for s in book.tiers.values()), default=60.0)
    for tier, setup in sorted(book.tiers.items()):
        for key in (Key(tier), *(Key(tier, target) for target in sorted(setup.targets))):
            breaker = book.public(book.machines[key])
            ttl_seconds = min(ttl_seconds, _lease_left(breaker, now, ttl_seconds))
            wait = _wait(breaker, setup, rng, now)
            if key.target:
                targets.append(_target(breaker, setup, wait, now))
            else:
                tiers.append(_tier(breaker, setup, wait, now))
    return StateDocument(
        controller=book.controller,
        epoch=book.epoch,
        rev=book.rev,
        generated_at=now,
        ttl_seconds=ttl_seconds,
        tiers=tuple(tiers),
        targets=tuple(targets),
    )


def _lease_left(breaker: Breaker, now: datetime, otherwise: float) -> float:
    lease = breaker.lease_expires_at
    if lease is None or lapsed(breaker, now):
        return otherwise
    return (lease - now).total_seconds()


def _wait(breaker: Breaker, setup: TierSetup, rng: Random, now: datetime) -> int:
    if ratio_in_force(breaker, now) >= 1:
        return 0
    return retry_after_seconds(breaker, setup.parameters, now, rng.uniform)


def _shown(breaker: Breaker, now: datetime) -> str:
    return "stale" if lapsed(breaker, now) else breaker.shown_state


def _code(breaker: Breaker) -> str:
    return breaker.cause.code if breaker.cause else ""


def _tier(breaker: Breaker, setup: TierSetup, wait: int, now: datetime) -> TierState:
    return TierState(
        id=breaker.key.tier,
        mode=setup.mode,
        state=_shown(breaker, now),
        admit_ratio=ratio_in_force(breaker, now),
        retry_after_seconds=wait,
        epoch=breaker.epoch,
        seq=breaker.seq,
        cause=_code(breaker),
    )


def _target(breaker: Breaker, setup: TierSetup, wait: int, now: datetime) -> TargetState:
    ratio = ratio_in_force(breaker, now)
    return TargetState(
        id=breaker.key.target,
        tier=breaker.key.tier,
        address=setup.targets[breaker.key.target],
        state=_shown(breaker, now),
        admit_ratio=ratio,
        weight=round(100 * ratio),
        retry_after_seconds=wait,
        epoch=breaker.epoch,
        seq=breaker.seq,
        cause=_code(breaker),
    )
