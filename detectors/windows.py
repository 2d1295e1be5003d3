"""Rolling counts of streams in bounded memory, and what persists of their verdicts.

The window of a stream is made of `PARTS` parts. A part is closed when it holds its share of the
window's requests, and the oldest then makes room, so a busy stream looks back a few ticks and a
quiet one minutes, both on about the same number of requests. Counts add, so it does not matter
which worker counted what; only this memory, which one process owns, never merges. Ages are of the
monotonic clock: a clock that is set forward or back neither empties a window nor keeps it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from detectors.records import BoolArray, FloatArray, IntArray, Scope, Stream
from detectors.saved import pack, unpack

PARTS = 4
FORGET_SECONDS = 3600.0  # a stream that no panel has had for so long is dropped
MAX_STREAMS = 20_000  # the oldest are dropped beyond it


@dataclass(frozen=True, slots=True)
class Span:
    """How far a window looks back: in requests, and never beyond `window_seconds`."""

    window_requests: int
    window_seconds: float


@dataclass(frozen=True)
class DriftMemory:
    """Windows and persistence of N streams, W bins of the widest grid.

    `parts` (N, PARTS, W) counts, `place` (N,) the open part, `begun` (N, PARTS) when a part began
    (monotonic seconds, inf while empty), `seen` (N,) when a panel last had the stream, `against`
    the id of the baseline it was judged against; `breaches` and `calms` (N,) in a row; `raised`
    (N,).
    """

    streams: tuple[Stream, ...]
    parts: IntArray
    place: IntArray
    begun: FloatArray
    seen: FloatArray
    against: tuple[str, ...]
    breaches: IntArray
    calms: IntArray
    raised: BoolArray


def empty() -> DriftMemory:
    """Return the memory of no stream."""
    return _blank((), 1)


def _blank(streams: tuple[Stream, ...], bins: int) -> DriftMemory:
    many = len(streams)
    return DriftMemory(
        streams=streams,
        parts=np.zeros((many, PARTS, bins), dtype=np.int64),
        place=np.zeros(many, dtype=np.int64),
        begun=np.full((many, PARTS), np.inf),
        seen=np.zeros(many),
        against=("",) * many,
        breaches=np.zeros(many, dtype=np.int64),
        calms=np.zeros(many, dtype=np.int64),
        raised=np.zeros(many, dtype=np.bool_),
    )


def with_streams(
    memory: DriftMemory, streams: tuple[Stream, ...], bins: int, now: float
) -> DriftMemory:
    """Return the memory with room for `streams`; long unseen ones make room."""
    known = set(memory.streams)
    new = tuple(stream for stream in streams if stream not in known)
    kept = np.flatnonzero(now - memory.seen <= FORGET_SECONDS)
    wide = max(bins, memory.parts.shape[2])
    if not new and len(kept) == len(memory.streams) and wide == memory.parts.shape[2]:
        return memory
    room = max(MAX_STREAMS - len(new), 0)
    kept = np.sort(kept[np.argsort(-memory.seen[kept], kind="stable")[:room]])
    present = set(streams)
    back = [row for row in range(len(memory.streams)) if memory.streams[row] in present]
    kept = np.union1d(kept, np.asarray(back, dtype=np.int64))
    old = len(kept)
    grown = _blank((*(memory.streams[row] for row in kept), *new), wide)
    grown.parts[:old, :, : memory.parts.shape[2]] = memory.parts[kept]
    for name in ("place", "begun", "seen", "breaches", "calms", "raised"):
        getattr(grown, name)[:old] = getattr(memory, name)[kept]
    against = (*(memory.against[row] for row in kept), *("",) * len(new))
    return replace(grown, against=against)


def counted(
    memory: DriftMemory, rows: IntArray, counts: IntArray, *, now: float, span: Span
) -> DriftMemory:
    """Return a memory whose windows of `rows` (R,) hold `counts` (R, W) too, and nothing too old.

    `now` is the close of the tick in monotonic seconds.
    """
    parts, begun = memory.parts.copy(), memory.begun.copy()
    place, seen = memory.place.copy(), memory.seen.copy()
    seen[rows] = now
    old = begun < now - span.window_seconds
    parts[old] = 0
    begun[old] = np.inf
    share = -(-span.window_requests // PARTS)
    full = rows[parts[rows, place[rows]].sum(axis=1) >= share]
    place[full] = (place[full] + 1) % PARTS
    parts[full, place[full]] = 0
    begun[full, place[full]] = np.inf
    parts[rows, place[rows]] += counts
    first = rows[(counts.sum(axis=1) > 0) & np.isinf(begun[rows, place[rows]])]
    begun[first, place[first]] = now
    return replace(memory, parts=parts, begun=begun, place=place, seen=seen)


@dataclass(frozen=True, slots=True)
class _Saved:
    streams: list[tuple[str, str, str, str]]
    bins: int
    against: tuple[str, ...]
    arrays: dict[str, bytes]


_ARRAYS = {
    "parts": "<i8",
    "place": "<i8",
    "begun": "<f8",
    "seen": "<f8",
    "breaches": "<i8",
    "calms": "<i8",
    "raised": "|b1",
}


def save(memory: DriftMemory, *, mark: str) -> bytes:
    """Return `memory` as bytes."""
    return pack(
        _Saved(
            streams=[(s.tier, str(s.scope), s.signal, s.variant) for s in memory.streams],
            bins=memory.parts.shape[2],
            against=memory.against,
            arrays={
                name: getattr(memory, name).astype(kind).tobytes() for name, kind in _ARRAYS.items()
            },
        ),
        mark=mark,
    )


def load(data: bytes, *, mark: str) -> DriftMemory:
    """Return what `save` was given.

    Raises:
        ValueError: If the bytes are damaged or of another mark.
    """
    saved = unpack(data, _Saved, mark=mark)
    streams = tuple(
        Stream(tier, Scope.parse(scope), signal, variant)
        for tier, scope, signal, variant in saved.streams
    )
    memory = _blank(streams, saved.bins)
    if set(saved.arrays) != set(_ARRAYS) or len(saved.against) != len(streams):
        msg = f"saved memory of {mark}: arrays {sorted(saved.arrays)}, expected {sorted(_ARRAYS)}"
        raise ValueError(msg)
    for name, kind in _ARRAYS.items():
        target = getattr(memory, name)
        target[...] = np.frombuffer(saved.arrays[name], dtype=kind).reshape(target.shape)
    return replace(memory, against=saved.against)
