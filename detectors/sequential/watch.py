"""All tiers of all streams of a layout, one tick at a time.

The counts of a tick are divided by the design effects once and shown to the table of each tier;
one history serves the reports of all. Streams are known by a key that holds everything that their
evidence rests on (stream and baseline): under another key a stream starts at 0, which is safe.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import msgspec
import numpy as np

from detectors.records import FloatArray, IntArray
from detectors.saved import pack, unpack
from detectors.sequential import evidence, history
from detectors.sequential.evidence import Evidence, Outcome, Placement, Table, Tick
from detectors.sequential.history import Block, History

_VERSION = 1
_FACTS = dict.fromkeys(("raised", "target", "again", "latest", "alarms"), "<i8") | {"peak": "<f8"}


@dataclass(frozen=True)
class Plan:
    """By what the streams of a layout are judged.

    `keys` (S) name them; `tables` are of the tiers, by name, all for the same `placed` nulls, bins
    and type; `tau` (S,) >= 1 are the design effects, that of this tick where they depend on it.
    """

    keys: tuple[str, ...]
    tables: Mapping[str, Table]
    placed: Placement
    tau: FloatArray

    @property
    def bins(self) -> int:
        return int(next(iter(self.tables.values())).log_bets.shape[1])


@dataclass(frozen=True)
class Watch:
    """The memory: the evidence of each tier, the counts to look back on, the last tick.

    `repeated` counts ticks that came again or out of order and changed nothing.
    """

    keys: tuple[str, ...]
    evidence: Mapping[str, Evidence]
    history: History
    number: int | None = None
    repeated: int = 0


def start(plan: Plan) -> Watch:
    """Return the memory of streams that have not been looked at."""
    tiers = {
        name: evidence.no_evidence(
            len(plan.keys), table.weights.shape[1], table.log_bets.dtype.type
        )
        for name, table in plan.tables.items()
    }
    return Watch(plan.keys, tiers, History())


def step(
    watch: Watch, plan: Plan, *, number: int, seconds: float, counts: IntArray
) -> tuple[Watch, Mapping[str, Outcome]]:
    """Take in a closed tick.

    Args:
        watch: The memory; it is brought to the plan's streams first (`aligned`).
        plan: What this tick is judged by; strata may differ from tick to tick.
        number: Of the tick; a number that does not rise changes nothing and is counted.
        seconds: Length of the tick by the monotonic clock, >= 0.
        counts: Between the thresholds of each stream's null, shape ``(S, W)``, zeros at the right
            where it has fewer bins.

    Returns:
        The memory and the outcome of each tier, by name; empty for a tick that changed nothing.

    Raises:
        ValueError: If counts do not fit the plan or are negative, or seconds are.
    """
    if counts.shape != (len(plan.keys), plan.bins):
        msg = (
            f"watch: counts of shape {counts.shape}, expected {(len(plan.keys), plan.bins)}; "
            "lay them out by the same plan"
        )
        raise ValueError(msg)
    if watch.number is not None and number <= watch.number:
        return replace(watch, repeated=watch.repeated + 1), {}
    watch = aligned(watch, plan)
    dtype = next(iter(plan.tables.values())).log_bets.dtype
    tick = Tick(number, seconds, evidence.tempered(counts, plan.tau, dtype))
    tiers, outcomes = {}, {}
    for name, table in plan.tables.items():
        tiers[name], outcomes[name] = evidence.advance(
            watch.evidence[name], tick, table, plan.placed
        )
    seen = history.remembered(watch.history, number, counts)
    return replace(watch, evidence=tiers, history=seen, number=number), outcomes


def aligned(watch: Watch, plan: Plan) -> Watch:
    """Return the memory with the plan's streams in its order; those that it lacks start at 0.

    So do tiers that it lacks or keeps in another precision.
    """
    if watch.keys == plan.keys and _fits(watch, plan):
        return watch
    places = {key: row for row, key in enumerate(watch.keys)}
    rows = np.asarray([places.get(key, -1) for key in plan.keys], dtype=np.int64)
    blank = start(plan).evidence
    tiers = {
        name: evidence.picked(watch.evidence[name], rows, table.weights.shape[1])
        if name in watch.evidence and watch.evidence[name].growth.dtype == table.log_bets.dtype
        else blank[name]
        for name, table in plan.tables.items()
    }
    seen = history.picked(watch.history, rows, plan.bins)
    return replace(watch, keys=plan.keys, evidence=tiers, history=seen)


def _fits(watch: Watch, plan: Plan) -> bool:
    """Whether the memory has the plan's tiers, types, and numbers of targets and bins."""
    wide = {name: (t.weights.shape[1], t.weights.dtype) for name, t in plan.tables.items()}
    have = {name: (e.growth.shape[1], e.growth.dtype) for name, e in watch.evidence.items()}
    bins = {block.counts.shape[1] for block in watch.history.blocks}
    return wide == have and bins <= {plan.bins}


def rebased(watch: Watch) -> Watch:
    """Return the memory ready for any tick number: after a start with a clock that was set back.

    What it looks back on is dated by the old clock and dropped; evidence has no dates.
    """
    return replace(watch, number=None, history=History())


class _Block(msgspec.Struct, frozen=True):
    first: int
    ticks: int
    type: str
    counts: bytes


class _Tier(msgspec.Struct, frozen=True):
    type: str
    targets: int
    growth: bytes
    facts: dict[str, bytes]


class _Saved(msgspec.Struct, frozen=True):
    keys: list[str]
    number: int | None
    repeated: int
    bins: int
    tiers: dict[str, _Tier]
    blocks: list[_Block]


def save(watch: Watch, *, mark: str) -> bytes:
    """Return the memory as bytes; `mark` names the settings that its evidence rests on."""
    tiers = {
        name: _Tier(
            type=some.growth.dtype.newbyteorder("<").str,
            targets=some.growth.shape[1],
            growth=_little(some.growth),
            facts={fact: _little(getattr(some, fact)) for fact in _FACTS},
        )
        for name, some in watch.evidence.items()
    }
    blocks = [
        _Block(b.first, b.ticks, b.counts.dtype.newbyteorder("<").str, _little(b.counts))
        for b in watch.history.blocks
    ]
    bins = watch.history.blocks[0].counts.shape[1] if blocks else 0
    saved = _Saved(list(watch.keys), watch.number, watch.repeated, bins, tiers, blocks)
    return pack(saved, mark=f"{mark}/{_VERSION}")


def _little(array: evidence.RealArray | history.WholeArray) -> bytes:
    return array.astype(array.dtype.newbyteorder("<")).tobytes()


def load(data: bytes, *, mark: str) -> Watch:
    """Return what `save` was given.

    Raises:
        ValueError: If the bytes are damaged or of another mark.
    """
    saved = unpack(data, _Saved, mark=f"{mark}/{_VERSION}")
    try:
        tiers = {name: _tier(some, len(saved.keys)) for name, some in saved.tiers.items()}
        blocks = tuple(_block(some, (len(saved.keys), saved.bins)) for some in saved.blocks)
    except (ValueError, KeyError, TypeError) as error:
        msg = f"saved evidence of {mark}: {error}; start with a new memory"
        raise ValueError(msg) from error
    return Watch(tuple(saved.keys), tiers, History(blocks), saved.number, saved.repeated)


def _tier(saved: _Tier, streams: int) -> Evidence:
    growth = np.frombuffer(saved.growth, dtype=saved.type).reshape(streams, saved.targets)
    facts = {
        name: np.frombuffer(saved.facts[name], dtype=kind).reshape(streams)
        for name, kind in _FACTS.items()
    }
    return Evidence(growth=growth.astype(growth.dtype.newbyteorder("=")), **facts)


def _block(saved: _Block, shape: tuple[int, int]) -> Block:
    counts = np.frombuffer(saved.counts, dtype=saved.type).reshape(shape)
    return Block(saved.first, saved.ticks, counts.astype(counts.dtype.newbyteorder("=")))
