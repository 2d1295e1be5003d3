"""Which breakers are out, probing or waiting for time to pass, kept up to date change by change."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import TypeVar

from alerts.breaker.records import Breaker, Key, State

NameT = TypeVar("NameT")


class Pools:
    """An index over the breakers of all tiers; each look-up is O(1)."""

    def __init__(self) -> None:
        self.waiting: set[Key] = set()
        self._out: dict[str, set[str]] = {}
        self._probing: dict[str, set[str]] = {}

    def note(self, breaker: Breaker) -> None:
        """Take over the present state of a breaker."""
        key, closed = breaker.key, breaker.state is State.CLOSED
        _set(self.waiting, key, member=not closed or breaker.override is not None)
        if key.target:
            out = not closed or breaker.effective_ratio < 1
            probing = breaker.state is State.HALF_OPEN
            _set(self._out.setdefault(key.tier, set()), key.target, member=out)
            _set(self._probing.setdefault(key.tier, set()), key.target, member=probing)

    def forget(self, key: Key) -> None:
        """Drop a breaker that is no more."""
        self.waiting.discard(key)
        for members in (self._out, self._probing):
            members.get(key.tier, set()).discard(key.target)
            if not key.target:
                members.pop(key.tier, None)

    def out(self, tier: str) -> AbstractSet[str]:
        """Return the targets of `tier` whose breakers do not admit everything."""
        return self._out.get(tier, frozenset())

    def another_probes(self, key: Key) -> bool:
        """Return whether a target of the pool other than `key` is half open."""
        probing: AbstractSet[str] = self._probing.get(key.tier, frozenset())
        return len(probing) > (key.target in probing)


def _set(members: set[NameT], name: NameT, *, member: bool) -> None:
    if member:
        members.add(name)
    else:
        members.discard(name)
