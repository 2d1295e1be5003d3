"""When a change is over: the newest traffic is surely well inside the gate.

An alarm stands until then, or until a person accepts the change by promoting another baseline.
Evidence that has stopped growing is no sign of an end: it may be the traffic that has stopped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from detectors.sequential.bets import Bets
from detectors.sequential.distance import calm
from detectors.sequential.evidence import released
from detectors.sequential.history import window
from detectors.sequential.watch import Plan, Watch

# Looked at from the shortest on: 10 minutes of 5 s ticks where traffic is busy, hours where it is
# not, since about 5,000 independent requests are needed to be sure of the page gate.
WINDOWS = (120, 480, 1920)


def settled(watch: Watch, plan: Plan, tier: str, bets: Sequence[Bets]) -> Watch:
    """Return the memory with those alarms of a tier released that are over.

    Args:
        watch: After a step with the plan.
        plan: Of that step.
        tier: Name of the tier.
        bets: The bets of its table, in their order there.

    Returns:
        A memory in which a stream is quiet again if, over one of `WINDOWS` that began after its
        newest alarm, it was calm.
    """
    some = watch.evidence[tier]
    rows = [
        row
        for row in np.flatnonzero(some.raised >= 0).tolist()
        if _over(watch, plan, row, since=int(some.latest[row]), bets=bets)
    ]
    if not rows:
        return watch
    quiet = released(some, np.asarray(rows, dtype=np.int64))
    return replace(watch, evidence={**watch.evidence, tier: quiet})


def _over(watch: Watch, plan: Plan, row: int, *, since: int, bets: Sequence[Bets]) -> bool:
    band = bets[int(plan.placed.which[row])].band
    ticks = 0 if watch.number is None else watch.number - since
    for size in WINDOWS:
        if size > ticks:
            return False
        counts = window(watch.history, row, size)[: len(band.counts)]
        if calm(band, counts, float(plan.tau[row])):
            return True
    return False
