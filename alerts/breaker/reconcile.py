"""From what the journal holds, and what is configured now, to what is in force after a start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from alerts.breaker.book import Book, Move, TierSetup, fresh, released, withholding
from alerts.breaker.events import Uniform
from alerts.breaker.machine import leased, reconciled, renewed
from alerts.breaker.records import Breaker, Key


def configured(tiers: Mapping[str, TierSetup]) -> set[Key]:
    """Return the keys of every breaker that `tiers` ask for."""
    targets = {Key(tier, target) for tier, setup in tiers.items() for target in setup.targets}
    return targets | {Key(tier) for tier in tiers}


def reconcile(
    book: Book, loaded: Sequence[Breaker], now: datetime, rng_uniform: Uniform
) -> list[Move]:
    """Fill `book` from what was loaded; return what must be written before anything else.

    Whatever stays withheld gets a new lease, at the new epoch. What belongs to nothing that is
    configured, or to a tier that now only observes, is given back.
    """
    known = {breaker.key: breaker for breaker in loaded}
    keys = configured(book.tiers)
    moves = [
        released(replace(breaker, epoch=book.epoch), "no longer configured", now)
        for key, breaker in known.items()
        if key not in keys and withholding(breaker)
    ]
    for key in sorted(keys):
        book.add(key, known.get(key))
        moves.extend(_of_one(book, key, now, rng_uniform))
    return moves


def _of_one(book: Book, key: Key, now: datetime, rng_uniform: Uniform) -> list[Move]:
    loaded, parameters = book.machines[key], book.parameters(key.tier)
    if book.observes(key.tier):
        book.put(fresh(loaded))
        return [released(loaded, "the tier only observes", now)] if withholding(loaded) else []
    after, transitions = reconciled(loaded, parameters, now, rng_uniform)
    if transitions:
        return [Move(after, transitions[0])]
    if after.effective_ratio < 1:
        book.put(after)
        return [Move(renewed(after, parameters, now))]
    book.put(leased(after, parameters, now))
    return []
