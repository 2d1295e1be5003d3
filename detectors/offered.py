"""When a detector of what only some targets have says nothing, and when it does not know.

Whether a target has a GPU source, an allocator probe or a memory limit is the user's choice. A
detector that needs one is silent where it is not offered, instead of filling every board with
`unknown`; where it is offered and missing, not knowing is a verdict like any other.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from detectors.records import Absence, Level, Reading, Verdict

NEVER = frozenset({Absence.NO_FAMILY, Absence.NOT_IN_VERSION})


@dataclass(frozen=True, slots=True)
class Subject:
    """Who speaks, of which signal, and for which cause."""

    detector: str
    signal: str
    cause: str


def unjudged(
    subject: Subject,
    reading: Reading,
    needed: Collection[str],
    *,
    stale_seconds: float,
    idle: Collection[Absence] = (),
) -> tuple[Verdict, ...] | None:
    """Return the verdicts of a reading that cannot be judged, None if it can.

    Args:
        subject: What an unknown verdict is about.
        reading: The completed scrape.
        needed: Signals without which nothing can be said, gauges, counters or histograms.
        stale_seconds: Older values are not judged.
        idle: Absences that are no trouble (a target without traffic): unknown without a cause, so
            that no alert follows.

    Returns:
        Nothing in it where a signal is offered by no source of the target, and by none ever; else
        one unknown verdict. A reading that knows none of the signals was not meant for this
        detector: it is unknown, without a cause if the scrape succeeded.
    """
    obstacle = _obstacle(reading, needed, stale_seconds)
    if not obstacle:
        return None
    missing = [it for it in needed if it not in reading.values and it not in reading.histograms]
    reasons = {reading.absent.get(it, Absence.NO_FAMILY) for it in missing}
    cause = subject.cause
    if reading.known.isdisjoint(needed):
        cause = subject.cause if not reading.up else ""
    elif reasons & NEVER:
        return ()
    elif missing and reasons <= set(idle):
        cause = ""
    unknown = reading.verdict(
        subject.detector, subject.signal, Level.UNKNOWN, reason=obstacle, cause=cause
    )
    return (unknown,)


def _obstacle(reading: Reading, needed: Collection[str], stale_seconds: float) -> str:
    gauges = [it for it in needed if it not in reading.histograms]
    obstacle = reading.obstacle(gauges, stale_seconds=stale_seconds)
    oldest = max(map(reading.age_of, needed), default=0.0)
    if not obstacle and oldest > stale_seconds:
        return f"reading is {oldest:.0f} s old, at most {stale_seconds:g} s is judged"
    return obstacle
