"""The time to first token of engines that do not tell it, approximated from what they time.

Means of the steps on the way to it (checks, queue, prefill) over the last minute, added up. It is
no measurement: a batch's prefill counts once however many requests are in it, the steps are of the
requests that passed them and not of the same ones, and a mean is no median. Hence a signal of its
own, and no quantiles.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import replace
from typing import Final, TypeAlias

from collector.sources.engine.chosen import chosen, merged, term_absence
from collector.sources.engine.engines import Engine
from collector.sources.engine.quantiles import MAX_SNAPSHOTS, WINDOW_SECONDS
from collector.sources.engine.rows import Term
from collector.sources.engine.translation import Translation
from collector.sources.page.page import Page
from collector.sources.page.series import Ledger, RawHistogram, is_count
from detectors.records import Absence

SIGNAL: Final = "ttft_estimate_seconds"
FEWEST: Final = 5.0  # of each step in the window
_Sums: TypeAlias = tuple[tuple[float, float], ...]  # seconds and number of each step


class FirstToken:
    """The sums and counts of one target's steps over the last minute."""

    def __init__(self) -> None:
        self._ring: deque[tuple[float, _Sums]] = deque(maxlen=MAX_SNAPSHOTS)

    def take(
        self, page: Page, found: Translation, engine: Engine, ledger: Ledger, seconds: float
    ) -> None:
        """Add the approximation to a scrape, or the reason for none.

        Args:
            page: As parsed.
            found: What it says, changed.
            engine: Whose page it is; one that names no steps gets nothing.
            ledger: The target's memory, so that a restart does not show as a fall.
            seconds: When it was read, monotonic.
        """
        if not engine.first_token:
            return
        sums = _sums(page, engine, ledger)
        if sums is None:
            missing = (term_absence(it, page, page.samples) for it in engine.first_token)
            found.absent[SIGNAL] = next(filter(None, missing), Absence.UNUSABLE)
            return
        self._ring.append((seconds, sums))
        while len(self._ring) > 2 and seconds - self._ring[1][0] >= WINDOW_SECONDS:  # noqa: PLR2004  # keep the pair
            self._ring.popleft()
        pairs = zip(sums, self._ring[0][1], strict=True)
        grown = [(new[0] - old[0], new[1] - old[1]) for new, old in pairs]
        if min(count for _, count in grown) < FEWEST:
            found.absent[SIGNAL] = Absence.TOO_FEW
            return
        if min(total for total, _ in grown) < 0.0:
            found.absent[SIGNAL] = Absence.UNUSABLE  # a sum that falls and a count that does not
            return
        found.absent.pop(SIGNAL, None)
        found.values[SIGNAL] = math.fsum(total / count for total, count in grown)
        found.aliases[SIGNAL] = " + ".join(term.family for term in engine.first_token)


def _sums(page: Page, engine: Engine, ledger: Ledger) -> _Sums | None:
    """Return each step's seconds and number without resets, None if one of them is no number."""
    found = []
    for place, term in enumerate(engine.first_token):
        series = _series(term, page)
        if not series:
            return None
        whole = ledger.histogram(f"{SIGNAL} {place}", term.family, series, whole=True)
        if whole is None:
            return None
        found.append((whole.sum, whole.total))
    return tuple(found)


def _series(term: Term, page: Page) -> list[RawHistogram]:
    plain = [it for it in page.samples.get(term.family, ()) if it[0].role != "bucket"]
    samples = chosen(term, {term.family: plain})
    numbers = {series.key: value for series, value in merged(replace(term, take="count"), samples)}
    found = [
        RawHistogram(series.key, (), (), numbers.get(series.key, math.nan), value)
        for series, value in merged(term, samples)
    ]
    sound = all(is_count(raw.total) and is_count(raw.sum) for raw in found)
    return found if sound else []
