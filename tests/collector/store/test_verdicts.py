"""The history keeps every change of level, a thinned series, and all that explains a verdict."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest

import collector.store.thinning as thinning_module
from collector.store import verdicts
from collector.store.store import Store
from collector.store.thinning import Thinning
from collector.store.verdicts import Chosen, KeptVerdict
from detectors.records import Level, Scope, Stream, Verdict
from tests.builders import START


def a_verdict(
    level: Level = Level.OK, *, seconds: float = 0, target: str = "a", tier: str = "chat"
) -> Verdict:
    """Return a verdict of the KV limit, `seconds` after START."""
    stream = Stream(tier, Scope("target", target), "kv_cache_usage_ratio")
    return Verdict("limit", stream, level, START + timedelta(seconds=seconds))


def a_full_verdict() -> Verdict:
    return Verdict(
        detector="ks",
        stream=Stream("chat", Scope("segment", "batch"), "prompt_tokens", "v1"),
        level=Level.CRITICAL,
        at=START,
        reason="KS 0.31 over 0.10",
        statistic=0.31,
        effect=0.25,
        threshold=0.1,
        evidence=math.inf,
        samples=1234,
        age_seconds=0.5,
        baseline="bl_1",
        cause="input_drift",
        details={"psi": 0.4, "wasserstein": np.float64(2.5), "p": math.inf},
    )


@pytest.mark.anyio
async def test_a_verdict_comes_back_with_every_field(store: Store) -> None:
    await store.write(verdicts.record, [KeptVerdict(a_full_verdict(), changed=True)])

    (found,) = await store.read(verdicts.history, Chosen())

    assert (found.verdict, found.changed, found.id) == (a_full_verdict(), True, 1)


@pytest.mark.anyio
async def test_a_number_that_is_not_known_comes_back_as_none(store: Store) -> None:
    odd = replace(a_full_verdict(), statistic=math.nan, effect=None, samples=np.int64(7))  # type: ignore[arg-type]  # what a careless detector sends
    await store.write(verdicts.record, [KeptVerdict(odd, changed=True)])

    (found,) = await store.read(verdicts.history, Chosen())

    assert (found.verdict.statistic, found.verdict.effect) == (None, None)
    assert found.verdict.samples == 7


@pytest.mark.anyio
async def test_history_is_read_by_what_is_wanted_in_pages(store: Store) -> None:
    rows = [
        KeptVerdict(a_verdict(seconds=0), changed=True),
        KeptVerdict(a_verdict(seconds=60), changed=False),
        KeptVerdict(a_verdict(Level.WARNING, seconds=90), changed=True),
        KeptVerdict(a_verdict(seconds=90, target="b"), changed=True),
        KeptVerdict(a_verdict(seconds=90, tier="code"), changed=True),
        KeptVerdict(a_full_verdict(), changed=True),
    ]
    await store.write(verdicts.record, rows)

    async def found(chosen: Chosen, before: int = 0) -> list[int]:
        return [row.id for row in await store.read(verdicts.history, chosen, before=before)]

    of_a = Scope("target", "a")
    assert await found(Chosen()) == [6, 5, 4, 3, 2, 1]
    assert await found(Chosen(), before=3) == [2, 1]
    assert await found(Chosen(tier="chat", scope=of_a)) == [3, 2, 1]
    assert await found(Chosen(tier="chat", scope=of_a, changes_only=True)) == [3, 1]
    assert await found(Chosen(detector="ks")) == [6]
    assert await found(Chosen(signal="prompt_tokens")) == [6]
    since, until = START + timedelta(seconds=60), START + timedelta(seconds=90)
    assert await found(Chosen(since=since, until=until)) == [2]


@pytest.mark.anyio
async def test_the_newest_of_each_stream_is_read_at_once(store: Store) -> None:
    rows = [
        KeptVerdict(a_verdict(seconds=0), changed=True),
        KeptVerdict(a_verdict(Level.WARNING, seconds=90), changed=True),
        KeptVerdict(a_verdict(seconds=30, target="b"), changed=True),
        KeptVerdict(a_verdict(seconds=30, tier="code"), changed=True),
    ]
    await store.write(verdicts.record, rows)

    found = await store.read(verdicts.latest, Chosen(tier="chat", since=START))

    assert [row.verdict for row in found] == [rows[2].verdict, rows[1].verdict]


def test_changes_are_kept_and_the_rest_once_a_minute() -> None:
    thinning = Thinning(every_seconds=60)
    levels = [*[Level.OK] * 13, Level.WARNING, Level.OK, Level.OK]

    kept = [
        (5 * number, row.changed)
        for number, level in enumerate(levels)
        for row in thinning.choose([a_verdict(level, seconds=5 * number)])
    ]

    assert kept == [(0, True), (60, False), (65, True), (70, True)]


def test_streams_are_thinned_apart() -> None:
    thinning = Thinning()

    kept = thinning.choose([a_verdict(), a_verdict(target="b"), a_verdict(tier="code")])

    assert [row.changed for row in kept] == [True, True, True]


def test_after_a_restart_the_history_says_what_a_change_is() -> None:
    thinning = Thinning()
    thinning.start_from([KeptVerdict(a_verdict(Level.WARNING), changed=True)])

    kept = thinning.choose([a_verdict(Level.WARNING, seconds=5), a_verdict(seconds=10)])

    assert [row.verdict.level for row in kept] == [Level.OK]


def test_rows_that_could_not_be_written_are_chosen_again() -> None:
    thinning = Thinning()
    thinning.take_back(thinning.choose([a_verdict()]))

    kept = thinning.choose([a_verdict(seconds=5)])

    assert [row.changed for row in kept] == [True]


def test_places_are_bounded_and_the_forgotten_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thinning_module, "MOST_PLACES", 2)
    thinning = Thinning()

    thinning.choose([a_verdict(target=name) for name in ("a", "b", "c")])

    assert thinning.forgotten == 1
    assert len(thinning.choose([a_verdict(target="a", seconds=1)])) == 1
