"""Gauges of workers that are gone: Ray keeps a dead worker's series on the page for a while.

Its counters do no harm, they stand still. Its gauges do: what it last ran and held is added to what
the others run and hold. A worker that claims work, and none of whose counters has moved for long
while another's have, is taken for dead.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from collector.sources.engine.engines import ENGINES
from collector.sources.page.keys import Series
from collector.sources.page.page import Page, Sample
from collector.sources.page.series import is_count
from detectors.remarks import Finding

DEAD_SECONDS: Final = 600.0
MAX_WORKERS: Final = 256  # of one page; those beyond are believed
_CLAIMS: Final = frozenset(
    term.family
    for engine in ENGINES
    for row in engine.rows
    if row.signal in {"requests_running", "requests_waiting", "kv_cache_usage_ratio"}
    for alias in row.aliases
    for term in alias.terms
)
_IDLE: Final = 0.01  # an idle cache of some versions is not exactly 0


@dataclass(slots=True)
class _Worker:
    counted: float
    moved_seconds: float


class Workers:
    """The workers of one page, and when each of them last counted something."""

    def __init__(self) -> None:
        self._known: dict[str, _Worker] = {}
        self._begun: float | None = None

    def living(self, page: Page, seconds: float) -> tuple[Page, tuple[Finding, ...]]:
        """Return a page without the gauges of dead workers, and what is to be said of that.

        Args:
            page: As parsed; one whose series name no worker is returned as it is.
            seconds: When it was read, monotonic.
        """
        if not _named(page):
            return page, ()
        dead = self._dead(page, seconds)
        if not dead:
            return page, ()
        samples = {
            family: [it for it in found if _worker(it[0]) not in dead]
            if _is_gauge(page, family)
            else found
            for family, found in page.samples.items()
        }
        text = (
            f"{len(dead)} workers on this page claim work and have counted nothing for "
            f"{DEAD_SECONDS / 60.0:.0f} minutes while others have: series of dead workers, or "
            "workers that hang; their gauges are left out: see whether Ray still runs them"
        )
        return replace(page, samples=samples), (Finding("dead_workers", "requests_running", text),)

    def _dead(self, page: Page, seconds: float) -> set[str]:
        counted, claiming = _counted(page)
        before = self._known
        self._known = {}
        for worker, total in list(counted.items())[:MAX_WORKERS]:
            known = before.get(worker)
            still = known is not None and known.counted == total
            moved = known.moved_seconds if known is not None and still else seconds
            self._known[worker] = _Worker(total, moved)
        newest = max((it.moved_seconds for it in self._known.values()), default=seconds)
        return {
            worker
            for worker, it in self._known.items()
            if worker in claiming and newest - it.moved_seconds >= DEAD_SECONDS
        }


def _named(page: Page) -> bool:
    """Whether series name a worker; those of one family are labelled alike."""
    for found in page.samples.values():
        labels = found[0][0].labels if found else {}
        if "WorkerId" in labels or "ReplicaId" in labels:
            return True
    return False


def _counted(page: Page) -> tuple[dict[str, float], set[str]]:
    """Return what each worker has counted so far, and the workers that claim to have work."""
    counted: dict[str, list[float]] = {}
    claiming = set()
    for family, found in page.samples.items():
        gauge = _is_gauge(page, family)
        for series, value in found:
            worker = _worker(series)
            if not worker:
                continue
            if not gauge and series.role != "bucket" and is_count(value):
                counted.setdefault(worker, []).append(value)
            elif family in _CLAIMS and value > _IDLE:
                claiming.add(worker)
    return {worker: math.fsum(values) for worker, values in counted.items()}, claiming


def _worker(series: Series) -> str:
    return series.labels.get("WorkerId") or series.labels.get("ReplicaId", "")


def _is_gauge(page: Page, family: str) -> bool:
    kind = page.types.get(family, "")
    if kind in {"", "unknown", "untyped"}:
        return not family.endswith("_total") and _values_only(page.samples.get(family, ()))
    return kind == "gauge"


def _values_only(found: Sequence[Sample]) -> bool:
    return all(series.role == "value" for series, _ in found)
