"""Decoded generations are counted here, by whatever way they came in, each once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from collector.ingest.coverage import Coverage
from collector.ingest.records import Decoded, Missing, Sent
from collector.ingest.seen import Seen
from detectors.records import Batch
from exporters.catalog import (
    GENERATIONS,
    GENERATIONS_PARTIAL,
    GENERATIONS_REJECTED,
    GENERATIONS_REPRESENTED,
    LOGPROB_COVERAGE,
)
from exporters.prometheus import MetricsPage


class Counting:
    """Drops what was taken before, adds up what the rest stands for, and shows both."""

    def __init__(
        self, page: MetricsPage, *, monotonic: Callable[[], float], tick_seconds: float
    ) -> None:
        self._page = page
        self._seen = Seen()
        self._coverage = Coverage(monotonic=monotonic, tick_seconds=tick_seconds)

    async def take(
        self, decoded: Decoded, *, source: str, take_batch: Callable[[Batch], None]
    ) -> Decoded:
        """Count what is new of a body; return it, with what it lacks by reason."""
        decoded = await self._seen.without_seen(decoded)
        mixed = 0
        sent = decoded.sent or (Sent(),) * len(decoded.batches)
        for batch, said in zip(decoded.batches, sent, strict=True):
            take_batch(batch)
            represented = self._coverage.take(batch, said)
            self._page.add(GENERATIONS_REPRESENTED, {"tier": batch.tier}, represented.requests)
            mixed += represented.mixed
            await asyncio.sleep(0)  # a body of many variants must not hold the loop
        if mixed:
            partial = Counter(decoded.partial)
            partial[Missing.MIXED_SAMPLE_RATIOS] += mixed
            decoded = replace(decoded, partial=dict(partial))
        _show(self._page, decoded, source=source)
        return decoded

    def show(self) -> None:
        """Show each tier's coverage of the last minute."""
        for tier, ratio in self._coverage.ratios().items():
            self._page.set(LOGPROB_COVERAGE, {"tier": tier}, ratio)

    def forget(self, tier: str) -> None:
        """Let go of a tier that is no longer configured."""
        self._seen.forget(tier)
        self._coverage.forget(tier)


def _show(page: MetricsPage, decoded: Decoded, *, source: str) -> None:
    """Count what became of the lines of one body."""
    for batch in decoded.batches:
        page.add(GENERATIONS, {"tier": batch.tier, "segment": batch.segment}, batch.size)
    for reason, lines in decoded.refused.items():
        page.add(GENERATIONS_REJECTED, {"source": source, "reason": str(reason)}, lines)
    for missing, generations in decoded.partial.items():
        page.add(GENERATIONS_PARTIAL, {"source": source, "reason": str(missing)}, generations)
