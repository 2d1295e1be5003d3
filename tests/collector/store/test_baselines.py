"""Baselines are kept whole, and at most one of a lane is active."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session

from collector.store import baselines
from collector.store.models import BaselineRow
from collector.store.session import StoreError
from collector.store.store import Store
from detectors.baseline import Baseline, Stage, make_baseline, promoted, to_bytes
from detectors.records import TIER_SCOPE, Scope
from tests.builders import START, a_tick

pytestmark = pytest.mark.anyio

LATER = START + timedelta(hours=1)


def a_baseline(seed: int, *, scope: Scope = TIER_SCOPE) -> Baseline:
    """Return a candidate of tier `chat`, made `seed` minutes after START."""
    sizes = np.random.default_rng(seed).integers(1, 4000, 500).astype(np.float64)
    tick = a_tick({"prompt_tokens": sizes}, scope=scope)
    at = START + timedelta(minutes=seed)
    return make_baseline([tick], made_at=at, provenance=f"ticks of seed {seed}")


async def test_a_baseline_comes_back_whole(store: Store) -> None:
    baseline = a_baseline(1)
    await store.write(baselines.add, baseline, now=START)

    found = await store.read(baselines.get, baseline.id)

    assert to_bytes(found) == to_bytes(baseline)


async def test_a_promotion_retires_every_other_of_the_lane(store: Store) -> None:
    first, second, third = (a_baseline(seed) for seed in (1, 2, 3))
    elsewhere = a_baseline(4, scope=Scope("segment", "batch"))
    for baseline in (first, second, third, elsewhere):
        await store.write(baselines.add, baseline, now=START)
    await store.write(baselines.promote, first.id, author="ana", reason="first", now=START)

    active = await store.write(
        baselines.promote, second.id, author="ben", reason="new prompts", now=LATER
    )

    listed = {info.id: info for info in await store.read(baselines.listed)}
    assert {info.stage for info in listed.values()} == set(Stage)
    assert listed[elsewhere.id].stage is Stage.CANDIDATE
    assert listed[second.id].promoted_at == LATER
    assert (listed[first.id].stage, listed[first.id].author) == (Stage.RETIRED, "ana")
    assert (listed[first.id].reason, listed[first.id].promoted_at) == ("first", START)
    assert listed[third.id].stage is Stage.RETIRED
    assert (active.stage, active.reason) == (Stage.ACTIVE, "new prompts")
    assert (await store.read(baselines.get, second.id)).signals["prompt_tokens"].stage is (
        Stage.ACTIVE
    )


async def test_what_is_in_use_leaves_out_the_retired(store: Store) -> None:
    old, new = a_baseline(1), a_baseline(2)
    segment = a_baseline(3, scope=Scope("segment", "batch"))
    for baseline in (old, new, segment):
        await store.write(baselines.add, baseline, now=START)
    await store.write(baselines.promote, new.id, author="ana", reason="shift", now=LATER)

    found = await store.read(baselines.in_use, tier="chat")

    assert [(row.id, row.stage) for row in found] == [
        (new.id, Stage.ACTIVE),
        (segment.id, Stage.CANDIDATE),
    ]
    assert (await store.read(baselines.get, old.id)).stage is Stage.RETIRED
    assert await store.read(baselines.in_use, tier="code") == []


async def test_a_baseline_that_comes_promoted_is_active_at_once(store: Store) -> None:
    old, new = a_baseline(1), a_baseline(2)
    for baseline in (old, new):
        active = promoted(baseline, author="auto_promote", reason="first baseline")
        await store.write(baselines.add, active, now=START)

    (found,) = await store.read(baselines.in_use)

    assert (found.id, found.author) == (new.id, "auto_promote")


async def test_adding_again_never_takes_a_stage_back(store: Store) -> None:
    baseline = a_baseline(1)
    await store.write(baselines.add, baseline, now=START)
    await store.write(baselines.promote, baseline.id, author="ana", reason="fine", now=LATER)

    await store.write(baselines.add, baseline, now=LATER)

    assert (await store.read(baselines.get, baseline.id)).stage is Stage.ACTIVE


async def test_the_database_itself_refuses_two_active_ones(store: Store) -> None:
    for seed in (1, 2):
        await store.write(baselines.add, a_baseline(seed), now=START)

    def force(session: Session) -> None:
        session.execute(text("UPDATE baseline SET stage = 'active'"))

    with pytest.raises(StoreError, match=r"(?i)unique"):
        await store.write(force)


async def test_a_baseline_that_was_never_promoted_names_nobody_when_it_retires(
    store: Store,
) -> None:
    old, new = a_baseline(1), a_baseline(2)
    for baseline in (old, new):
        await store.write(baselines.add, baseline, now=START)

    await store.write(baselines.promote, new.id, author="ana", reason="shift", now=LATER)

    listed = {info.id: info for info in await store.read(baselines.listed)}
    retired = listed[old.id]
    assert retired.stage is Stage.RETIRED
    assert (retired.promoted_at, retired.author, retired.reason) == (None, "", "")
    assert (await store.read(baselines.get, old.id)).reason == ""


async def test_what_an_earlier_build_noted_at_a_retirement_is_no_promotion(store: Store) -> None:
    baseline = a_baseline(1)
    await store.write(baselines.add, baseline, now=START)

    def retire(session: Session) -> None:
        row = session.get_one(BaselineRow, baseline.id)
        row.stage, row.author, row.reason = Stage.RETIRED, "root", "replaced by bl_x"

    await store.write(retire)

    (listed,) = await store.read(baselines.listed)
    assert (listed.author, listed.reason) == ("", "")
    assert (await store.read(baselines.get, baseline.id)).author == ""


async def test_the_active_baseline_is_not_promoted_again(store: Store) -> None:
    baseline = a_baseline(1)
    await store.write(baselines.add, baseline, now=START)
    await store.write(baselines.promote, baseline.id, author="ana", reason="first", now=START)

    with pytest.raises(StoreError, match="is active already, promoted by ana: first"):
        await store.write(baselines.promote, baseline.id, author="ben", reason="again", now=LATER)
    again = promoted(baseline, author="auto_promote", reason="found anew")
    await store.write(baselines.add, again, now=LATER)

    (listed,) = await store.read(baselines.listed)
    assert (listed.author, listed.reason, listed.promoted_at) == ("ana", "first", START)


async def test_a_retired_baseline_can_be_promoted_again(store: Store) -> None:
    old, new = a_baseline(1), a_baseline(2)
    for baseline, author in ((old, "auto_promote"), (new, "ana")):
        active = promoted(baseline, author=author, reason="fine")
        await store.write(baselines.add, active, now=START)

    await store.write(baselines.promote, old.id, author="ben", reason="rolled back", now=LATER)

    found = await store.read(baselines.get, old.id)
    assert (found.stage, found.author, found.reason) == (Stage.ACTIVE, "ben", "rolled back")


async def test_a_promotion_needs_author_and_reason(store: Store) -> None:
    await store.write(baselines.add, a_baseline(1), now=START)

    with pytest.raises(ValueError, match="author and a reason"):
        await store.write(baselines.promote, a_baseline(1).id, author="", reason="x", now=LATER)


async def test_an_unknown_baseline_is_said(store: Store) -> None:
    with pytest.raises(StoreError, match="baseline 'bl_x' is not in the store"):
        await store.read(baselines.get, "bl_x")


async def test_a_damaged_baseline_is_said(store: Store) -> None:
    baseline = a_baseline(1)
    await store.write(baselines.add, baseline, now=START)

    def damage(session: Session) -> None:
        row = session.get_one(BaselineRow, baseline.id)
        row.body = row.body[:-1]

    await store.write(damage)

    with pytest.raises(StoreError, match=f"baseline {baseline.id}: .* cannot be read"):
        await store.read(baselines.get, baseline.id)


async def test_a_list_is_newest_first_and_of_one_tier(store: Store) -> None:
    for seed in (1, 3, 2):
        await store.write(baselines.add, a_baseline(seed), now=START)

    found = await store.read(baselines.listed, tier="chat")

    assert [info.provenance[-1] for info in found] == ["3", "2", "1"]
    assert found[0].scope == TIER_SCOPE
    assert await store.read(baselines.listed, tier="code") == []
