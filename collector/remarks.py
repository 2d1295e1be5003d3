"""Failed reads, findings and changes in the log: once when they come, once when they are gone."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from alerts.breaker.records import Entry
from detectors.records import Reading, Verdict
from detectors.remarks import Finding

_LOG = logging.getLogger(__name__)


def tell_entry(entry: Entry) -> None:
    """Log a transition of a breaker: what is withheld from users belongs into the log."""
    it = entry.transition
    if it is None:
        return
    extra = {
        "breaker": str(it.key),
        "kind": it.kind,
        "admits": it.after.effective_ratio,
        "actor": it.actor,
        "reason": it.reason,
    }
    _LOG.warning("breaker would change" if it.dry_run else "breaker changed", extra=extra)


class LogRemarks:
    """An action that logs what a reading remarks, on transitions only.

    A failed scrape takes no finding back.
    """

    name = "remarks"

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], dict[tuple[str, str], Finding]] = {}
        self._failed: dict[tuple[str, str], int] = {}  # reads in a row

    async def take(
        self,
        verdicts: Sequence[Verdict],  # noqa: ARG002  # every action is given them
        reading: Reading | None,
    ) -> None:
        if reading is None:
            return
        self._tell_trouble(reading)
        before = self._known.get((reading.tier, reading.target))
        if not reading.noticed and (reading.findings, before) == ((), None):
            return
        place = {"tier": reading.tier, "target": reading.target}
        for noticed in (it for it in reading.noticed if not it.first):  # a first sight is no change
            extra = {"what": noticed.what, "before": noticed.before, "after": noticed.after}
            _LOG.info("change noticed", extra=place | extra)
        found = {(it.code, it.signal): it for it in reading.findings}
        before = before or {}
        if not reading.up:
            found = before | found
        for key in found.keys() - before.keys():
            extra = {"code": key[0], "signal": key[1], "problem": found[key].text}
            _LOG.warning("finding", extra=place | extra)
        for key in before.keys() - found.keys():
            _LOG.info("finding gone", extra=place | {"code": key[0], "signal": key[1]})
        if found:
            self._known[reading.tier, reading.target] = found
        else:
            self._known.pop((reading.tier, reading.target), None)

    def _tell_trouble(self, reading: Reading) -> None:
        key = (reading.tier, reading.target)
        failures = self._failed.get(key, 0)
        if reading.up and not failures:
            return
        place = {"tier": reading.tier, "target": reading.target}
        if reading.up:
            del self._failed[key]
            _LOG.info("reading works again", extra={**place, "failures": failures})
            return
        self._failed[key] = failures + 1
        if not failures:
            _LOG.warning("reading failed", extra={**place, "problem": reading.problem})

    def forget(self, tier: str, target: str = "") -> None:
        """Drop what is known of a target that is gone, or of a whole tier."""
        for kept in (self._known, self._failed):
            for key in [key for key in kept if key[0] == tier and target in {"", key[1]}]:
                del kept[key]
