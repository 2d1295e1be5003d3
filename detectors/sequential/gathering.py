"""Counts of ticks from several workers, each part taken once, late ones into the open tick.

A worker numbers its parts; a part that comes twice (a retry) is dropped. A part whose tick is
closed already goes into the oldest open one: each request is still counted once, a little later,
and nothing that evidence rests on is hurt. All bounds count what they refuse.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from detectors.records import IntArray

WATERMARK = 2  # ticks that stay open for workers that are behind
AHEAD = 64  # ticks beyond the oldest open one; a part beyond is of a worker whose clock is wrong
REMEMBERED = 256  # newest parts of a worker told apart; older ones count as repeated
MAX_WORKERS = 1024


@dataclass(frozen=True)
class Part:
    """What one worker counted of one tick: `counts` (S, W); `sequence` rises from part to part."""

    worker: str
    sequence: int
    number: int
    counts: IntArray


@dataclass(frozen=True)
class Seen:
    """Parts of one worker: `newest` sequence, and those of the last `REMEMBERED` that came."""

    newest: int
    come: frozenset[int]


@dataclass(frozen=True)
class Gathering:
    """Open ticks by number, from `oldest` on; what was `late`, `repeated`, `refused` so far."""

    oldest: int
    counts: Mapping[int, IntArray] = field(default_factory=dict)
    workers: Mapping[str, Seen] = field(default_factory=dict)
    late: int = 0
    repeated: int = 0
    refused: int = 0


def gathered(gathering: Gathering, part: Part) -> Gathering:
    """Return the gathering with one more part, unless it is repeated or beyond all bounds."""
    seen = gathering.workers.get(part.worker)
    if seen is None and len(gathering.workers) >= MAX_WORKERS:
        return replace(gathering, refused=gathering.refused + 1)
    if part.number > gathering.oldest + AHEAD:
        return replace(gathering, refused=gathering.refused + 1)
    if seen is not None and _repeated(seen, part.sequence):
        return replace(gathering, repeated=gathering.repeated + 1)
    number = max(part.number, gathering.oldest)
    counts = dict(gathering.counts)
    counts[number] = counts[number] + part.counts if number in counts else part.counts
    return replace(
        gathering,
        counts=counts,
        workers={**gathering.workers, part.worker: _with(seen, part.sequence)},
        late=gathering.late + (part.number < gathering.oldest),
    )


def _repeated(seen: Seen, sequence: int) -> bool:
    return sequence in seen.come or sequence <= seen.newest - REMEMBERED


def _with(seen: Seen | None, sequence: int) -> Seen:
    newest = sequence if seen is None else max(seen.newest, sequence)
    come = frozenset() if seen is None else seen.come
    return Seen(newest, frozenset(s for s in (*come, sequence) if s > newest - REMEMBERED))


def closed(gathering: Gathering, now: int) -> tuple[Gathering, tuple[tuple[int, IntArray], ...]]:
    """Close the ticks that are `WATERMARK` or more behind tick `now`.

    Returns:
        The gathering, and numbers and counts of the closed ticks in order; ticks of which nothing
        came are not among them.
    """
    oldest = max(gathering.oldest, now - WATERMARK + 1)
    done = sorted(number for number in gathering.counts if number < oldest)
    kept = {number: some for number, some in gathering.counts.items() if number >= oldest}
    ended = tuple((number, gathering.counts[number]) for number in done)
    return replace(gathering, oldest=oldest, counts=kept), ended


def forgotten(gathering: Gathering, worker: str) -> Gathering:
    """Return the gathering without a worker that is gone for good."""
    workers = {name: seen for name, seen in gathering.workers.items() if name != worker}
    return replace(gathering, workers=workers)
