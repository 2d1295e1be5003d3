"""Overrides and releases, from people and from commands."""

from __future__ import annotations

from datetime import timedelta

import pytest

from alerts.breaker.overrides import OverrideError
from alerts.breaker.records import Key, Override, State
from tests.alerts.breaker.scene import Scene

A = Key("chat", "a")
pytestmark = pytest.mark.anyio


async def test_an_override_in_observe_mode_is_refused_with_the_remedy() -> None:
    scene = await Scene(mode="observe").start()

    with pytest.raises(OverrideError, match="mode: enforce"):
        await scene.controller.override(A, "forced_open", actor="a", reason="b", seconds=60)


@pytest.mark.parametrize(
    ("key", "reason", "seconds", "problem"),
    [
        (Key("chat", "z"), "why", 60, "no such breaker"),
        (A, " ", 60, "reason"),
        (A, "why", 0, "more than 0"),
        (A, "why", 90_000, "at most 86400"),
    ],
)
async def test_an_override_that_cannot_be_is_refused(
    key: Key, reason: str, seconds: float, problem: str
) -> None:
    scene = await Scene().start()

    with pytest.raises(OverrideError, match=problem):
        await scene.controller.override(
            key, "forced_open", actor="ana", reason=reason, seconds=seconds
        )


async def test_an_override_rules_until_it_ends_and_its_lease_is_renewed() -> None:
    scene = await Scene().start()
    await scene.controller.override(A, "forced_open", actor="ana", reason="test", seconds=120)

    await scene.wait(119)
    during = scene.controller.admit("chat", "a")
    await scene.wait(2)

    assert (during.allowed, during.state, during.reason) == (False, "forced_open", "override")
    assert scene.controller.admit("chat", "a").allowed
    assert scene.kinds() == ["forced_open", "override_ended"]


async def test_requests_left_by_commands_are_honoured_once_each() -> None:
    scene = await Scene().start()
    until = scene.clock.at + timedelta(days=30)
    scene.disk.asked[A] = Override("forced_open", "ana", "by hand", scene.clock.at, until)
    scene.disk.asked[Key("chat", "z")] = None

    await scene.controller.tick()
    override = scene.breaker("a").override
    scene.disk.asked[A] = None
    await scene.controller.tick()

    assert override is not None
    assert override.expires_at == scene.clock.at + timedelta(days=1)
    assert scene.breaker("a").override is None
    assert scene.kinds() == ["forced_open", "override_ended", "override_ended"]
    assert scene.disk.transitions[1].key == Key("chat", "z")
    assert "no such breaker" in scene.disk.transitions[1].reason


async def test_a_request_that_changes_nothing_is_answered_in_the_audit_too() -> None:
    scene = await Scene().start()
    scene.disk.asked[A] = None

    await scene.controller.tick()

    (answered,) = scene.disk.transitions
    assert (answered.kind, answered.reason) == ("override_ended", "nothing to release")
    assert scene.breaker("a") == answered.after


async def test_a_release_in_observe_mode_is_a_dry_run_and_persists_a_closed_breaker() -> None:
    scene = await Scene(mode="observe").start()
    await scene.trip("a")

    await scene.controller.release(A, actor="ana", reason="by mistake")
    await scene.wait(20)

    assert scene.kinds()[:2] == ["would_open", "override_ended"]
    assert all(transition.dry_run for transition in scene.disk.transitions)
    assert scene.disk.breakers[A].state is State.CLOSED
    assert scene.disk.deliveries == {}
