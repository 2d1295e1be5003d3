"""A line that was taken before is told as accepted and not counted again."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.ingest.records import Decoded, Sent
from collector.ingest.seen import Seen
from detectors.records import Batch
from detectors.signals import grid_of
from tests.builders import START

pytestmark = pytest.mark.anyio


def a_body(tier: str, ids: list[int], ratios: list[float] | None = None) -> Decoded:
    """Return a body of one batch whose prompt sizes count up from 1."""
    sizes = np.arange(1.0, len(ids) + 1)
    columns = {"prompt_tokens": sizes, "output_tokens": np.where(sizes == 1, 5.0, np.nan)}
    batch = Batch(
        tier=tier,
        target="a",
        segment="other",
        variant="v",
        newest_at=START,
        size=len(ids),
        columns=columns,
        counts={name: grid_of(name).count(column) for name, column in columns.items()},
    )
    said = Sent(np.asarray(ids, dtype=np.uint64), np.asarray(ratios or []))
    return Decoded(batches=(batch,), accepted=len(ids), sent=(said,))


def sizes(decoded: Decoded) -> list[float]:
    return [size for batch in decoded.batches for size in batch.columns["prompt_tokens"].tolist()]


def duplicates(decoded: Decoded) -> int:
    return dict(decoded.partial).get("duplicate", 0)


async def test_a_body_sent_again_counts_once_and_stays_accepted() -> None:
    seen = Seen()

    first = await seen.without_seen(a_body("chat", [7, 8, 9]))
    again = await seen.without_seen(a_body("chat", [7, 8, 9]))

    assert (sizes(first), duplicates(first)) == ([1.0, 2.0, 3.0], 0)
    assert (again.batches, again.sent, again.accepted) == ((), (), 3)
    assert duplicates(again) == 3


async def test_of_a_body_that_is_partly_new_the_new_rows_are_counted_anew() -> None:
    seen = Seen()
    await seen.without_seen(a_body("chat", [7]))

    found = await seen.without_seen(a_body("chat", [7, 8, 9], ratios=[0.5, 0.5, 0.25]))

    (batch,), (said,) = found.batches, found.sent
    expected = grid_of("prompt_tokens").count(np.asarray([2.0, 3.0]))
    assert (batch.size, duplicates(found)) == (2, 1)
    assert np.array_equal(batch.counts["prompt_tokens"], expected)
    assert "output_tokens" not in batch.columns  # only the row that was dropped had one
    assert "output_tokens" not in batch.counts
    assert (said.ids.tolist(), said.ratios.tolist()) == ([8, 9], [0.5, 0.25])


async def test_rows_of_one_line_share_its_fate() -> None:
    seen = Seen()

    first = await seen.without_seen(a_body("chat", [7, 7, 7, 8]))
    again = await seen.without_seen(a_body("chat", [5, 7, 7, 7]))

    assert sizes(first) == [1.0, 2.0, 3.0, 4.0]
    assert (sizes(again), duplicates(again)) == ([1.0], 3)


async def test_rows_without_an_id_are_never_duplicates() -> None:
    seen = Seen()

    found = [await seen.without_seen(a_body("chat", [0, 0, 5, 0])) for _ in range(2)]

    assert sizes(found[0]) == [1.0, 2.0, 3.0, 4.0]
    assert sizes(found[1]) == [1.0, 2.0, 4.0]


async def test_a_body_without_ids_is_handed_on_as_it_is() -> None:
    body, bare = a_body("chat", [0, 0]), Decoded(batches=a_body("chat", [1]).batches, accepted=1)

    assert await Seen().without_seen(body) is body
    assert await Seen().without_seen(bare) is bare


async def test_tiers_have_ids_of_their_own_and_are_forgotten() -> None:
    seen = Seen()
    await seen.without_seen(a_body("chat", [7]))

    other = await seen.without_seen(a_body("embed", [7]))
    seen.forget("chat")
    anew = await seen.without_seen(a_body("chat", [7]))

    assert (duplicates(other), duplicates(anew)) == (0, 0)


async def test_the_newest_half_is_always_known_and_no_more_than_the_bound_is_kept() -> None:
    seen = Seen(most=100)
    for number in range(1, 1001):
        await seen.without_seen(a_body("chat", [number]))

    newest = await seen.without_seen(a_body("chat", list(range(951, 1001))))
    oldest = await seen.without_seen(a_body("chat", [1]))

    assert duplicates(newest) == 50
    assert duplicates(oldest) == 0
    assert len(seen._young["chat"]) + len(seen._old["chat"]) <= 100


async def test_two_bodies_of_the_same_lines_at_once_count_once() -> None:
    seen = Seen()
    ids = list(range(1, 20_001))

    found = await asyncio.gather(*(seen.without_seen(a_body("chat", ids)) for _ in range(3)))

    assert sum(len(sizes(decoded)) for decoded in found) == 20_000
    assert sum(map(duplicates, found)) == 40_000


@settings(max_examples=60)
@given(bodies=st.lists(st.lists(st.integers(0, 6), max_size=6), max_size=8))
def test_each_id_counts_once_whatever_is_sent(bodies: list[list[int]]) -> None:
    async def counted() -> list[int]:
        seen = Seen()
        found = []
        for ids in bodies:  # rows of one line are neighbours
            decoded = await seen.without_seen(a_body("chat", sorted(ids)))
            found += [one for said in decoded.sent for one in set(said.ids.tolist()) - {0}]
        return found

    expected = {one for ids in bodies for one in ids} - {0}

    assert sorted(asyncio.run(counted())) == sorted(expected)


def test_partial_reasons_add() -> None:
    body = a_body("chat", [7])
    partial: Mapping[str, int] = {"duplicate": 2, "no_prompt": 1}

    async def twice() -> Decoded:
        seen = Seen()
        await seen.without_seen(body)
        return await seen.without_seen(
            Decoded(body.batches, accepted=3, partial=partial, sent=body.sent)
        )

    assert dict(asyncio.run(twice()).partial) == {"duplicate": 3, "no_prompt": 1}
