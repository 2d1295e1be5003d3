"""Generations count once, whatever way they came in, and what they stand for is shown."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest

from collector.counting import Counting
from collector.ingest.decode import decode
from collector.ingest.records import Decoded, Defaults, Limits, TierNames
from detectors.records import Batch
from exporters.prometheus import MetricsPage
from tests.collector.ingest.lines import a_line

pytestmark = pytest.mark.anyio
DEFAULTS = Defaults(
    datetime(2026, 11, 29, 12, tzinfo=UTC), {"chat": TierNames(), "big": TierNames()}, tier="chat"
)


def body(*lines: bytes) -> Decoded:
    return decode(b"\n".join(lines), DEFAULTS, Limits())


class Counted:
    """What was counted, and the page beside it."""

    def __init__(self) -> None:
        self.seconds = 1000.0
        self.batches: list[Batch] = []
        self.page = MetricsPage(monotonic=lambda: self.seconds)
        self.counting = Counting(self.page, monotonic=lambda: self.seconds, tick_seconds=5.0)

    async def take(self, decoded: Decoded, source: str = "http") -> Decoded:
        return await self.counting.take(decoded, source=source, take_batch=self.batches.append)

    @property
    def rows(self) -> int:
        return sum(batch.size for batch in self.batches)

    def shown(self, metric: str) -> dict[str, float]:
        self.counting.show()
        text = self.page.render()[0].decode()
        return {
            labels: float(value)
            for labels, value in re.findall(rf"^{metric}\{{(.*)\}} (\S+)$", text, re.MULTILINE)
        }


async def test_a_line_counts_once_by_whatever_way_it_comes() -> None:
    counted = Counted()

    first = await counted.take(body(a_line(id="r-1"), a_line(id="r-2")), "http")
    second = await counted.take(body(a_line(id="r-2"), a_line(id="r-3")), "file:log")
    third = await counted.take(body(a_line(id="r-1"), a_line(id="r-3")), "otlp")

    assert [found.accepted for found in (first, second, third)] == [2, 2, 2]
    assert counted.rows == 3
    partial = counted.shown("fusewire_generations_partial_total")
    assert partial['reason="duplicate",source="file:log"'] == 1
    assert partial['reason="duplicate",source="otlp"'] == 2
    assert counted.shown("fusewire_generations_accepted_total") == {
        'segment="other",tier="chat"': 3
    }


async def test_duplicates_within_a_body_and_over_bodies_are_told_together() -> None:
    counted = Counted()
    await counted.take(body(a_line(id="r-1")))

    found = await counted.take(body(a_line(id="r-1"), a_line(id="r-2"), a_line(id="r-2")))

    assert (found.accepted, dict(found.partial)["duplicate"], counted.rows) == (3, 2, 2)


async def test_what_was_decoded_without_ids_is_counted_as_it_is() -> None:
    counted = Counted()
    batches = body(a_line()).batches

    await counted.take(Decoded(batches=batches, accepted=1))
    await counted.take(Decoded(batches=batches, accepted=1))

    assert counted.rows == 2


async def test_evidence_counts_what_was_seen_and_the_total_what_it_stands_for() -> None:
    counted = Counted()

    await counted.take(body(a_line(sample_ratio=0.1), a_line(sample_ratio=0.1)))
    await counted.take(body(a_line(tier="big"), a_line(tier="big", id="r-1")))

    assert counted.rows == 4
    represented = counted.shown("fusewire_generations_represented_total")
    assert represented == pytest.approx({'tier="chat"': 20.0, 'tier="big"': 2.0})


async def test_a_duplicate_stands_for_nothing() -> None:
    counted = Counted()

    for _ in range(3):
        await counted.take(body(a_line(id="r-1", sample_ratio=0.5)))

    assert counted.shown("fusewire_generations_represented_total") == {'tier="chat"': 2.0}


async def test_mixed_ratios_are_told_with_their_source() -> None:
    counted = Counted()
    await counted.take(body(a_line(sample_ratio=0.1)))

    found = await counted.take(body(a_line(), a_line(sample_ratio=0.1)), "otlp")

    assert dict(found.partial)["mixed_sample_ratios"] == 1
    partial = counted.shown("fusewire_generations_partial_total")
    assert partial == {'reason="mixed_sample_ratios",source="otlp"': 1}


async def test_coverage_is_shown_while_there_are_requests_and_goes_with_its_tier() -> None:
    counted = Counted()
    metric = "fusewire_logprob_coverage_ratio"

    await counted.take(body(a_line(), a_line(tier="big")))
    both = counted.shown(metric)
    counted.counting.forget("big")
    counted.seconds += 120
    silent = counted.shown(metric)

    assert both == {'tier="chat"': 1.0, 'tier="big"': 1.0}
    assert 'tier="chat"' not in silent
