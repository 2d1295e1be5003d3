"""What a detector on the sequential core remembers between ticks, as bytes too."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import msgspec
import numpy as np

from detectors.records import FloatArray, IntArray
from detectors.saved import pack, unpack
from detectors.sequential import watch as watching
from detectors.sequential.evidence import Evidence, Table
from detectors.sequential.history import History
from detectors.sequential.watch import Plan, Watch


@dataclass(frozen=True)
class Memory:
    """The watch, the requests of each of its streams so far (S,), and when the last tick closed.

    `closed` is of the monotonic clock, seconds; minus infinity before the first tick.
    """

    watch: Watch
    requests: IntArray
    closed: float = -math.inf


def nothing() -> Memory:
    """Return the memory of no stream."""
    return Memory(Watch((), {}, History()), np.zeros(0, dtype=np.int64))


def brought(memory: Memory, plan: Plan, *, number: int, closed: float) -> Memory:
    """Return the memory with the plan's streams, ready for a tick.

    A number that does not rise although the monotonic clock has is of a wall clock that was set
    back (numbers come from it): what is dated by the old one is dropped, evidence stays.
    """
    watch = memory.watch
    if watch.number is not None and number <= watch.number and closed > memory.closed:
        watch = watching.rebased(watch)
        tiers = {name: _redated(some, number) for name, some in watch.evidence.items()}
        watch = replace(watch, evidence=tiers)
    requests = memory.requests
    if watch.keys != plan.keys:
        places = {key: row for row, key in enumerate(watch.keys)}
        rows = np.asarray([places.get(key, -1) for key in plan.keys], dtype=np.int64)
        requests = np.where(rows >= 0, np.append(requests, 0)[rows], 0)
    return Memory(watching.aligned(watch, plan), requests, memory.closed)


def _redated(evidence: Evidence, number: int) -> Evidence:
    """Return the evidence with no alarm dated after `number`."""
    return replace(
        evidence,
        raised=np.minimum(evidence.raised, number),
        latest=np.minimum(evidence.latest, number),
    )


def held(memory: Memory, plan: Plan) -> Mapping[str, FloatArray]:
    """Return the evidence (S,) of each tier: the peak of the alarm it stands in, else that of R."""
    return {
        name: _held(memory.watch.evidence[name], table, plan) for name, table in plan.tables.items()
    }


def _held(evidence: Evidence, table: Table, plan: Plan) -> FloatArray:
    weights = table.weights[plan.placed.which]
    running = (evidence.growth * weights).sum(axis=1).astype(np.float64) / table.level
    return np.where(evidence.raised >= 0, evidence.peak, running)


class _Saved(msgspec.Struct, frozen=True):
    watch: bytes
    requests: bytes
    closed: float


def save(memory: Memory, *, mark: str) -> bytes:
    """Return the memory as bytes."""
    requests = memory.requests.astype("<i8").tobytes()
    return pack(_Saved(watching.save(memory.watch, mark=mark), requests, memory.closed), mark=mark)


def load(data: bytes, *, mark: str) -> Memory:
    """Return what `save` was given.

    Raises:
        ValueError: If the bytes are damaged or of another mark.
    """
    saved = unpack(data, _Saved, mark=mark)
    watch = watching.load(saved.watch, mark=mark)
    requests = np.frombuffer(saved.requests, dtype="<i8").astype(np.int64)
    if len(requests) != len(watch.keys):
        msg = f"saved memory of {mark}: {len(requests)} counts for {len(watch.keys)} streams"
        raise ValueError(msg)
    return Memory(watch, requests, saved.closed)
