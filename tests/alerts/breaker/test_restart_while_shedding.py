"""A restart in the midst of an overload: what is shed stays shed while the overload lasts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from alerts.breaker.records import State
from tests.alerts.breaker.scene import Scene, a_verdict, targets

pytestmark = pytest.mark.anyio


async def overloaded(scene: Scene, rounds: int) -> None:
    """Let every target breach, round by round."""
    for _ in range(rounds):
        for target in targets(scene.size):
            await scene.scrape(target, "kv_cache_saturated")
        scene.clock.forward(5)
        await scene.controller.tick()


@pytest.mark.parametrize("warmup", [0.0, 60.0])
async def test_the_ratio_does_not_climb_on_a_breach_after_a_restart(warmup: float) -> None:
    scene = await Scene(size=1).start()
    await overloaded(scene, 20)
    before = scene.breaker().admit_ratio
    assert before < 0.5
    scene.parameters = replace_warmup(scene, warmup)

    await scene.restart()
    for _ in range(8):
        await overloaded(scene, 1)
        assert scene.breaker().effective_ratio <= before
        assert scene.breaker().state is not State.CLOSED


async def test_it_climbs_once_the_overload_is_over() -> None:
    scene = await Scene(size=1).start()
    await overloaded(scene, 20)
    before = scene.breaker().admit_ratio

    await scene.restart()
    for _ in range(40):
        await scene.all_well()
        scene.clock.forward(5)
        await scene.controller.tick()

    assert before < 0.5
    assert scene.breaker().effective_ratio == 1.0


def replace_warmup(scene: Scene, seconds: float):
    return scene.parameters.model_copy(update={"warmup_seconds": seconds})


async def test_between_limit_and_clearing_the_ratio_is_held_and_only_time_lets_it_climb() -> None:
    scene = await Scene(size=1).start()
    await overloaded(scene, 20)
    before = scene.breaker().admit_ratio
    verdict = replace(a_verdict("kv_cache_saturated"), details={"breached": 0.0})
    ratios = []

    for _ in range(40):
        await scene.controller.evaluate("chat", "a", [verdict], reading_ok=True)
        ratios.append(scene.breaker().admit_ratio)
        scene.clock.forward(5)
        await scene.controller.tick()

    assert ratios[:3] == [before] * 3
    assert before < ratios[-1] < 1.0  # slowly, a step each open time: it never sticks
