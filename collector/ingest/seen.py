"""Which lines were taken already: a sender that lost an answer sends again, and counts once."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from collector.ingest.records import Decoded, Missing, Sent
from detectors.records import Batch, BoolArray
from detectors.signals import grid_of

MOST_IDS = 200_000  # of one tier; half of them are let go at once, so the newest 100,000 are sure
_AT_ONCE = 4_000  # ids looked up before others get a turn on the loop


class Seen:
    """The ids of the lines that were taken last, by tier."""

    def __init__(self, most: int = MOST_IDS) -> None:
        self._most = most
        self._young: dict[str, set[int]] = {}
        self._old: dict[str, set[int]] = {}

    async def without_seen(self, decoded: Decoded) -> Decoded:
        """Return `decoded` without the rows of lines that were taken before; take the others.

        Those lines stay accepted: to whoever sends again it does not matter which try counted.
        """
        if not any(sent.ids.any() for sent in decoded.sent):
            return decoded
        batches: list[Batch] = []
        kept: list[Sent] = []
        dropped = 0
        for batch, sent in zip(decoded.batches, decoded.sent, strict=True):
            fresh = await self._claim(batch.tier, sent.ids)
            if not fresh.all():
                dropped += int(np.count_nonzero(~fresh))
                batch, sent = await asyncio.to_thread(_rows, batch, sent, fresh)  # noqa: PLW2901
            if batch.size:
                batches.append(batch)
                kept.append(sent)
        partial = Counter(decoded.partial)
        if dropped:
            partial[Missing.DUPLICATE] += dropped
        return replace(decoded, batches=tuple(batches), sent=tuple(kept), partial=dict(partial))

    def forget(self, tier: str) -> None:
        """Let go of the ids of a tier that is no longer configured."""
        self._young.pop(tier, None)
        self._old.pop(tier, None)

    async def _claim(self, tier: str, ids: NDArray[np.uint64]) -> BoolArray:
        """Return which rows are new, shape (n,), and remember their ids."""
        first = np.ones(len(ids), dtype=np.bool_)
        first[1:] = ids[1:] != ids[:-1]
        first |= ids == 0
        lines = ids[first]
        fresh = np.ones(len(lines), dtype=np.bool_)
        for start in range(0, len(lines), _AT_ONCE):
            if start:
                await asyncio.sleep(0)
            found = lines[start : start + _AT_ONCE].tolist()
            fresh[start : start + _AT_ONCE] = [not one or self._take(tier, one) for one in found]
        return fresh[np.cumsum(first) - 1] if len(ids) else fresh

    def _take(self, tier: str, one: int) -> bool:
        young = self._young.setdefault(tier, set())
        if one in young or one in self._old.get(tier, ()):
            return False
        if len(young) >= self._most // 2:
            self._old[tier] = young
            young = self._young[tier] = set()
        young.add(one)
        return True


def _rows(batch: Batch, sent: Sent, keep: BoolArray) -> tuple[Batch, Sent]:
    """Return a batch of the rows in `keep`, counted anew where it was counted."""
    columns = {name: column[keep] for name, column in batch.columns.items()}
    columns = {name: column for name, column in columns.items() if not np.isnan(column).all()}
    counts = {name: grid_of(name).count(columns[name]) for name in batch.counts if name in columns}
    size = int(np.count_nonzero(keep))
    ratios = sent.ratios[keep] if len(sent.ratios) else sent.ratios
    return replace(batch, size=size, columns=columns, counts=counts), Sent(sent.ids[keep], ratios)
