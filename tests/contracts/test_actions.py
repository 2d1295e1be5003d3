"""What every action owes the pipeline: it takes anything, changes nothing, stays bounded."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from copy import deepcopy
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from alerts.policy import PolicySettings
from collector.actions import KeepHistory, RaiseAlerts, ShowMetrics, TellBreakers
from collector.annotating import KeepAnnotations
from collector.pipeline import Action
from collector.store import Store
from collector.store.thinning import Thinning
from collector.verdicts import NewestVerdicts
from detectors.records import TIER_SCOPE, Level, Reading, Stream, Verdict
from exporters.prometheus import MetricsPage
from tests.alerts.breaker.scene import Scene
from tests.builders import START, a_reading

pytestmark = pytest.mark.anyio
Make = Callable[[Store, Scene], Action]

KINDS: dict[str, Make] = {
    "breaker": lambda store, scene: TellBreakers(scene.controller),
    "newest": lambda store, scene: NewestVerdicts(now=lambda: START, most=50),
    "metrics": lambda store, scene: ShowMetrics(
        MetricsPage(monotonic=lambda: 0.0, series_limit=1000)
    ),
    "alerts": lambda store, scene: RaiseAlerts(
        page=MetricsPage(monotonic=lambda: 0.0),
        now=lambda: START,
        monotonic=lambda: 0.0,
        settings=PolicySettings(),
    ),
    "history": lambda store, scene: KeepHistory(store, Thinning(), now=lambda: START),
    "annotations": lambda store, scene: KeepAnnotations(store, now=lambda: START),
}


@pytest.fixture
async def store(tmp_path: Path, anyio_backend: str) -> AsyncIterator[Store]:
    """A store on disk."""
    found = await Store.open(f"sqlite:///{tmp_path}/fusewire.db", now=lambda: START)
    yield found
    await found.close()


def some_verdicts(reading: Reading) -> list[Verdict]:
    tier = Stream("chat", TIER_SCOPE, "prompt_tokens", "v1")
    return [
        reading.verdict("kv_cache", "kv_cache_usage_ratio", level, cause="kv_cache_saturated")
        for level in Level
    ] + [Verdict("ks", tier, Level.CRITICAL, START, cause="input_drift", statistic=float("nan"))]


@pytest.mark.parametrize("kind", sorted(KINDS))
async def test_an_action_takes_scrapes_ticks_failures_and_nothing(kind: str, store: Store) -> None:
    scene = await Scene().start()
    action = KINDS[kind](store, scene)

    for reading in (a_reading({"kv_cache_usage_ratio": 0.5}), a_reading(problem="refused")):
        await action.take(some_verdicts(reading), reading)
        await action.take([], reading)
    await action.take(some_verdicts(a_reading()), None)
    await action.take([], None)

    assert action.name == kind


@pytest.mark.parametrize("kind", sorted(KINDS))
async def test_an_action_leaves_what_it_is_given_as_it_was(kind: str, store: Store) -> None:
    scene = await Scene().start()
    action = KINDS[kind](store, scene)
    reading = a_reading({"kv_cache_usage_ratio": 0.5})
    verdicts = some_verdicts(reading)
    before = deepcopy((repr(verdicts), repr(reading)))

    await action.take(verdicts, reading)

    assert (repr(verdicts), repr(reading)) == before


@pytest.mark.parametrize("kind", sorted(KINDS))
async def test_an_action_knows_a_tier_or_target_that_it_never_heard_of(
    kind: str, store: Store
) -> None:
    scene = await Scene().start()
    action = KINDS[kind](store, scene)
    reading = replace(a_reading({}, target="nobody"), tier="unknown")

    await action.take([reading.verdict("limit", "up", Level.CRITICAL, cause="?")], reading)


async def test_memories_of_actions_are_bounded(store: Store) -> None:
    scene = await Scene().start()
    newest, metrics = NewestVerdicts(now=lambda: START, most=50), KINDS["metrics"](store, scene)
    page = metrics._page  # type: ignore[attr-defined]  # the bound is on what it holds
    for number in range(500):
        reading = replace(
            a_reading({"requests_running": 1.0}, target=f"t{number}"),
            at=START + timedelta(seconds=number),
        )
        verdicts = [reading.verdict("limit", "requests_running", Level.OK)]
        await newest.take(verdicts, reading)
        await metrics.take(verdicts, reading)

    assert len(newest.listed()) == 50
    assert newest.dropped == 450
    assert page.series <= 1000
