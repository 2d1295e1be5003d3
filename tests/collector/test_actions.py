"""What is done about verdicts."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from alerts.policy import Change, PolicySettings
from collector.actions import KeepHistory, RaiseAlerts, worst_of_variants
from collector.store import Store, verdicts
from collector.store.session import StoreError
from collector.store.thinning import Thinning
from collector.verdicts import NewestVerdicts
from detectors.records import TIER_SCOPE, Level, Stream, Verdict
from exporters.prometheus import MetricsPage
from tests.builders import START, a_reading

pytestmark = pytest.mark.anyio


def a_verdict(level: Level, *, variant: str = "v1", age: float = 1.0) -> Verdict:
    stream = Stream("chat", TIER_SCOPE, "prompt_tokens", variant)
    return Verdict("ks", stream, level, START, age_seconds=age, cause="input_drift")


def test_of_variants_side_by_side_the_worst_known_one_is_shown() -> None:
    stale = a_verdict(Level.UNKNOWN, variant="old", age=900.0)
    collecting = a_verdict(Level.UNKNOWN, variant="new", age=0.1)
    bad = a_verdict(Level.CRITICAL, variant="busy", age=2.0)
    good = a_verdict(Level.OK, variant="quiet", age=0.2)

    assert worst_of_variants([stale, bad, collecting, good]) == [bad]
    assert worst_of_variants([collecting, good, stale]) == [good]
    assert worst_of_variants([stale, collecting]) == [collecting]


async def test_history_that_cannot_be_written_is_chosen_again(tmp_path: Path) -> None:
    store = await Store.open(f"sqlite:///{tmp_path}/fusewire.db", now=lambda: START)
    history = KeepHistory(store, Thinning(), now=lambda: START)
    await history.start()
    await history.take([a_verdict(Level.WARNING)], None)
    await store.close()

    with pytest.raises(StoreError):
        await history.flush()
    again = await Store.open(f"sqlite:///{tmp_path}/fusewire.db", now=lambda: START)
    history._store = again
    await history.take([a_verdict(Level.WARNING)], None)
    await history.flush()
    kept = await again.read(verdicts.history, verdicts.Chosen())
    await again.close()

    assert history.dropped == 1
    assert [row.verdict.level for row in kept] == [Level.WARNING]


async def test_alerts_are_settled_once_a_tick_and_told_to_listeners() -> None:
    page = MetricsPage(monotonic=lambda: 0.0)
    alerts = RaiseAlerts(
        page=page,
        now=lambda: START,
        monotonic=lambda: 0.0,
        settings=PolicySettings(raise_hold_seconds=0.0),
    )
    told: list[Change] = []
    alerts.listeners = (told.extend,)

    await alerts.take([a_verdict(Level.CRITICAL)], None)
    assert told == []
    raised = await alerts.settle()
    await alerts.take([a_verdict(Level.OK)], None)
    cleared = await alerts.settle()

    assert [change.after is not None for change in (*raised, *cleared)] == [True, False]
    assert told == [*raised, *cleared]
    rendered, _ = page.render()
    assert b'fusewire_alert_active{cause="input_drift",tier="chat"} 0.0' in rendered


async def test_verdicts_of_a_vanished_target_are_forgotten() -> None:
    newest = NewestVerdicts(now=lambda: START)
    for target in "ab":
        reading = replace(a_reading(target=target), at=START)
        await newest.take([reading.verdict("limit", "up", Level.OK)], reading)

    newest.forget(lambda stream: stream.scope.name == "a")

    assert [verdict.stream.scope.name for verdict in newest.listed()] == ["b"]


async def test_when_full_the_oldest_verdict_makes_room_for_the_newest() -> None:
    newest = NewestVerdicts(now=lambda: START, most=3)
    for number in range(5):
        verdict = replace(
            a_verdict(Level.CRITICAL, variant=f"v{number}"), at=START + timedelta(seconds=number)
        )
        await newest.take([verdict], None)

    assert [verdict.stream.variant for verdict in newest.listed()] == ["v4", "v3", "v2"]
    assert newest.dropped == 2


async def test_a_verdict_ages_while_nothing_new_is_said() -> None:
    newest = NewestVerdicts(now=lambda: START + timedelta(seconds=90))
    await newest.take([a_verdict(Level.OK, age=1.5)], None)

    (verdict,) = newest.listed()

    assert verdict.age_seconds == 91.5
