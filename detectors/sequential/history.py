"""The newest counts of all streams, finer the newer: what a report looks back on.

Blocks of 1 tick, then of 4, 16, 64 and 256: three to four hours of 5 s ticks in at most 40 blocks.
A block is shorter than what came after it, so a change is dated well within its age, to the tick
while it is young, and the counts since then are exact. Blocks are never changed: a new history
shares all but the newest with the old one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from detectors.records import FloatArray, IntArray

WholeArray: TypeAlias = NDArray[np.integer[Any]]
FOLD = 4  # blocks of one size that make one of the next
KEPT = 8  # blocks of a size, at most
LARGEST = 256  # ticks


@dataclass(frozen=True)
class Block:
    """Counts (S, W) of `ticks` closed ticks, the first of which has the number `first`."""

    first: int
    ticks: int
    counts: WholeArray


@dataclass(frozen=True)
class History:
    """Blocks from old to new."""

    blocks: tuple[Block, ...] = ()

    @property
    def held_bytes(self) -> int:
        return sum(block.counts.nbytes for block in self.blocks)


@dataclass(frozen=True)
class Onset:
    """Where a change seems to begin: `number` of the tick, and `counts` (W,) since then.

    `whole` says that it begins with the history itself, so it may be older.
    """

    number: int
    counts: IntArray
    whole: bool

    @property
    def requests(self) -> int:
        return int(self.counts.sum())


def remembered(history: History, number: int, counts: IntArray) -> History:
    """Return the history with one more tick; the oldest block goes if there is one too many."""
    known = [block for block in history.blocks if block.first < number]
    blocks = [*known, Block(number, 1, _small(counts))]
    size = 1
    while size <= LARGEST:
        same = [place for place, block in enumerate(blocks) if block.ticks == size]
        if len(same) <= KEPT:
            break
        if size == LARGEST:
            del blocks[same[0]]
            break
        oldest = same[0]
        blocks[oldest : oldest + FOLD] = [_added(blocks[oldest : oldest + FOLD])]
        size *= FOLD
    return History(tuple(blocks))


def _small(counts: WholeArray) -> WholeArray:
    """Return the counts in the smallest type that holds them: most ticks fit in a byte."""
    return counts.astype(np.min_scalar_type(int(counts.max(initial=0))))


def _added(blocks: Sequence[Block]) -> Block:
    total = blocks[0].counts.astype(np.int64)
    for block in blocks[1:]:
        total += block.counts
    return Block(blocks[0].first, sum(block.ticks for block in blocks), _small(total))


def window(history: History, row: int, ticks: int) -> IntArray:
    """Return the counts (W,) of a stream in the last `ticks` ticks, or in a few more.

    Blocks are not divided: it is the smallest run of blocks that holds so many ticks.
    """
    taken, held = [], 0
    for block in reversed(history.blocks):
        if held >= ticks:
            break
        taken.append(block.counts[row].astype(np.int64))
        held += block.ticks
    return np.sum(taken, axis=0, dtype=np.int64) if taken else np.zeros(0, dtype=np.int64)


def onset(history: History, row: int, log_bets: FloatArray) -> Onset | None:
    """Return the most likely start of a change: where the bets on it have earned most since.

    Args:
        history: With at least the ticks of the change.
        row: Of the stream.
        log_bets: ln e of the winning target, shape ``(W,)``.

    Returns:
        The start, or None if nothing is remembered.
    """
    if not history.blocks:
        return None
    counts = np.stack([block.counts[row].astype(np.int64) for block in history.blocks])
    earned = np.cumsum((counts @ log_bets)[::-1])[::-1]
    start = int(earned.argmax())
    return Onset(history.blocks[start].first, counts[start:].sum(axis=0), whole=start == 0)


def picked(history: History, rows: IntArray, bins: int) -> History:
    """Return the history of other rows: row i is old row ``rows[i]``, or empty where that is -1."""
    return History(tuple(_picked(block, rows, bins) for block in history.blocks))


def _picked(block: Block, rows: IntArray, bins: int) -> Block:
    counts = np.zeros((len(rows), bins), dtype=block.counts.dtype)
    known, both = rows >= 0, min(bins, block.counts.shape[1])
    counts[known, :both] = block.counts[rows[known], :both]
    return Block(block.first, block.ticks, counts)
