"""Changes are written once, thinned, over restarts, and held against the shadow tiers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session

import collector.annotating as subject
from collector.annotating import UNSEEN, KeepAnnotations, unseen_by_shadow
from collector.store import Store
from collector.store import annotations as stored
from collector.store.annotations import Annotation, Chosen
from collector.store.session import StoreError
from detectors.records import Reading
from detectors.remarks import Finding, Noticed
from tests.builders import START, a_reading

pytestmark = pytest.mark.anyio
UPGRADE = Noticed("version", "0.31.0", "0.32.0")


class Clock:
    def __init__(self) -> None:
        self.at = START

    def __call__(self) -> datetime:
        return self.at

    def pass_(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def store(tmp_path: Path, anyio_backend: str) -> AsyncIterator[Store]:
    opened = await Store.open(f"sqlite:///{tmp_path}/store.db", now=lambda: START)
    yield opened
    await opened.close()


async def started(store: Store, clock: Clock) -> KeepAnnotations:
    action = KeepAnnotations(store, now=clock)
    action.use({"chat": ("shadow",)})
    await action.start()
    return action


def noticing(*noticed: Noticed, tier: str = "chat", target: str = "a", at: datetime) -> Reading:
    reading = replace(a_reading(target=target), tier=tier, at=at)
    return replace(reading, noticed=noticed)


async def rows(store: Store) -> list[Annotation]:
    return [replace(it, id=0) for it in await store.read(stored.history, Chosen())]


def codes(findings: tuple[Finding, ...]) -> list[str]:
    return [it.code for it in findings]


async def test_a_change_is_a_row_with_who_when_before_and_after(store: Store, clock: Clock) -> None:
    action = await started(store, clock)

    await action.take([], noticing(Noticed("restart"), UPGRADE, at=START))
    await action.take([], None)
    await action.flush()
    await action.flush()

    upgrade, restart = await rows(store)
    assert restart == Annotation(START, "chat", "a", "restart")
    assert (upgrade.before, upgrade.after, upgrade.times) == ("0.31.0", "0.32.0", 1)


async def test_many_restarts_are_one_row_a_minute_that_counts_them(
    store: Store, clock: Clock
) -> None:
    action = await started(store, clock)
    for _ in range(36):  # three minutes
        await action.take([], noticing(Noticed("restart"), at=clock.at))
        await action.flush()
        clock.pass_(5)
    await action.flush(final=True)

    found = await rows(store)

    assert sum(it.times for it in found) == 36
    assert len(found) == 4


async def test_a_first_sight_is_kept_once_over_restarts(store: Store, clock: Clock) -> None:
    seen = Noticed("version", "", "0.32.0", first=True)
    for _ in range(3):
        action = await started(store, clock)
        await action.take([], noticing(seen, at=clock.at))
        await action.flush()
        clock.pass_(3600)

    (row,) = await rows(store)
    assert (row.first, row.after) == (True, "0.32.0")


async def test_a_change_while_nobody_looked_is_found_at_the_next_start(
    store: Store, clock: Clock
) -> None:
    action = await started(store, clock)
    await action.take([], noticing(Noticed("version", "", "0.31.0", first=True), at=clock.at))
    await action.flush()
    clock.pass_(86_400)

    action = await started(store, clock)
    reading = noticing(Noticed("version", "", "0.32.0", first=True), at=clock.at)
    await action.take([], reading)
    await action.flush()

    newest, _ = await rows(store)
    assert (newest.before, newest.after, newest.first) == ("0.31.0", "0.32.0", False)
    assert codes(action.with_findings(reading).findings) == [UNSEEN]


def first_sight(version: str, target: str, at: datetime) -> Reading:
    return noticing(Noticed("version", "", version, first=True), target=target, at=at)


async def test_an_upgrade_by_replicas_with_new_names_is_a_change(
    store: Store, clock: Clock
) -> None:
    action = await started(store, clock)
    for target in ("pod-1", "pod-2"):
        await action.take([], first_sight("0.31.0", target, clock.at))
    await action.flush()
    clock.pass_(86_400)

    action = await started(store, clock)
    rolled_out = first_sight("0.32.0", "pod-3", clock.at)
    await action.take([], rolled_out)
    await action.take([], first_sight("0.32.0", "pod-4", clock.at))
    await action.flush()

    again, newest, *_ = await rows(store)
    assert (newest.before, newest.after, newest.first) == ("0.31.0", "0.32.0", False)
    assert codes(action.with_findings(rolled_out).findings) == [UNSEEN]
    assert again.first  # the same is told once


async def test_a_tier_of_two_kinds_that_is_met_target_by_target_has_not_changed(
    store: Store, clock: Clock
) -> None:
    action = await started(store, clock)
    await action.take([], first_sight("0.31.0", "old", clock.at))
    clock.pass_(60)
    await action.take([], first_sight("0.32.0", "new", clock.at))
    clock.pass_(86_400)
    more = first_sight("0.31.0", "another-old", clock.at)
    await action.take([], more)
    await action.flush()

    assert all(it.first for it in await rows(store))
    assert action.with_findings(more).findings == ()


async def test_a_change_that_no_shadow_tier_saw_is_a_finding_for_a_day(
    store: Store, clock: Clock
) -> None:
    action = await started(store, clock)
    reading = noticing(UPGRADE, at=clock.at)
    await action.take([], reading)
    await action.flush()

    now = action.with_findings(a_reading())
    of_another = action.with_findings(a_reading(target="b"))
    after_restart = (await started(store, clock)).with_findings(a_reading())
    clock.pass_(86_401)
    tomorrow = action.with_findings(a_reading())

    assert codes(now.findings) == codes(after_restart.findings) == [UNSEEN]
    assert "version changed from 0.31.0 to 0.32.0" in now.findings[0].text
    assert of_another.findings == tomorrow.findings == ()
    assert (await rows(store))[0].finding == now.findings[0].text


@pytest.mark.parametrize(
    "rehearsal",
    [
        Noticed("version", "0.31.0", "0.32.0"),
        Noticed("version", "", "0.32.0", first=True),
    ],
    ids=["it changed there", "it started there"],
)
async def test_a_change_that_the_shadow_tier_had_before_is_no_finding(
    store: Store, clock: Clock, rehearsal: Noticed
) -> None:
    action = await started(store, clock)
    await action.take([], noticing(rehearsal, tier="shadow", at=clock.at))
    await action.flush()
    clock.pass_(3600)
    action = await started(store, clock)

    await action.take([], noticing(UPGRADE, at=clock.at))

    assert action.with_findings(a_reading()).findings == ()


def annotation(what: str, after: str, *, seconds: float = 0.0, first: bool = False) -> Annotation:
    at = START + timedelta(seconds=seconds)
    return Annotation(at, "chat", "a", what, "x", after, first=first)


@pytest.mark.parametrize(
    ("change", "history", "found"),
    [
        (annotation("version", "2"), [], True),
        (annotation("version", "2"), [annotation("version", "2", seconds=-1)], False),
        (annotation("version", "2"), [annotation("version", "2", seconds=1)], True),
        (annotation("version", "2"), [annotation("version", "3", seconds=-1)], True),
        (annotation("version", "2"), [annotation("dtype", "2", seconds=-1)], True),
        (annotation("version", "2", first=True), [], False),
        (annotation("restart", ""), [], False),
        (annotation("loras", "2"), [], False),
        (annotation("weights", "a"), [annotation("weights", "b", seconds=-1)], False),
        (annotation("weights", "a"), [], True),
    ],
)
async def test_only_the_same_change_seen_before_excuses_one(
    change: Annotation, history: list[Annotation], found: bool
) -> None:
    finding = unseen_by_shadow(change, history)

    assert (finding is not None) == found


async def test_changes_of_shadow_tiers_themselves_are_no_findings(
    store: Store, clock: Clock
) -> None:
    action = await started(store, clock)

    await action.take([], noticing(UPGRADE, tier="shadow", at=clock.at))

    assert action.with_findings(replace(a_reading(), tier="shadow")).findings == ()


async def test_a_tier_that_is_gone_from_the_configuration_takes_its_findings_along(
    store: Store, clock: Clock
) -> None:
    action = await started(store, clock)
    await action.take([], noticing(UPGRADE, at=clock.at))

    action.use({})

    assert action.with_findings(a_reading()).findings == ()


async def test_what_cannot_be_written_waits_and_what_has_no_room_is_counted(
    store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subject, "MAX_WAITING", 3)
    action = await started(store, clock)

    def lock(session: Session) -> None:
        session.execute(text("ALTER TABLE annotation RENAME TO hidden"))

    def unlock(session: Session) -> None:
        session.execute(text("ALTER TABLE hidden RENAME TO annotation"))

    await store.write(lock)
    for number in range(5):
        await action.take([], noticing(UPGRADE, target=f"t{number}", at=clock.at))
    with pytest.raises(StoreError):
        await action.flush()
    await store.write(unlock)
    await action.flush()

    assert action.dropped == 2
    assert sorted(it.target for it in await rows(store)) == ["t2", "t3", "t4"]


async def test_many_targets_that_come_and_go_leave_a_bounded_memory(
    store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subject, "MOST_KNOWN", 10)
    action = await started(store, clock)
    for number in range(50):
        reading = noticing(Noticed("restart"), UPGRADE, target=f"t{number}", at=clock.at)
        await action.take([], reading)
        await action.flush()

    sizes = [len(action._known), len(action._written), len(action._findings)]
    assert sizes == [10, 10, 10]
    assert len(action._waiting) == 0
