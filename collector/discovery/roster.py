"""Who is a target: what was found, less what was never ready, and what vanished for a while more.

A target that is gone from the list stays until `vanish_after_seconds` have passed, so that a
registry that blinks, or a rolling update, does not throw away counters, breakers and history. A
discovery that fails removes nobody. One whose address another target has now is gone at once: what
answers there is not the old one. The number of targets is bounded; what is refused is counted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from collector.discovery.found import Found

MOST_TARGETS: Final = 1024


@dataclass(slots=True)
class Roster:
    """The targets of one tier that were found by one discovery.

    `refused` counts those of the newest list that there was no room for.
    """

    vanish_after_seconds: float
    most: int = MOST_TARGETS
    refused: int = 0
    _seen: dict[str, tuple[Found, float]] = field(default_factory=dict)

    @property
    def targets(self) -> tuple[Found, ...]:
        """The targets now, by id."""
        return tuple(found for _, (found, _) in sorted(self._seen.items()))

    def restore(self, targets: Iterable[Found], moment: float) -> None:
        """Begin with targets that were known before a restart; they vanish like any other."""
        for found in targets:
            self._seen.setdefault(found.id, (found, moment))

    def update(self, found: Iterable[Found], moment: float) -> bool:
        """Take what was found at `moment` (monotonic s); return whether the targets changed.

        Of several entries with one id the last counts. A change of labels alone is none.
        """
        before, listed = self.targets, {one.id: one for one in found}
        addresses = {one.url for one in listed.values() if one.ready}
        for id_, (known, seen) in list(self._seen.items()):
            vanished = moment - seen > self.vanish_after_seconds or known.url in addresses
            if vanished and id_ not in listed:
                del self._seen[id_]
        self.refused = 0
        for one in listed.values():
            known_before = one.id in self._seen
            if not known_before and not one.ready:
                continue
            if not known_before and len(self._seen) >= self.most:
                self.refused += 1
                continue
            self._seen[one.id] = (one if one.ready else replace(one, ready=True), moment)
        return self.targets != before
