"""`status`: what is shown, and its exit codes."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.collector.cli.world import (
    a_service,
    a_world,
    an_open_breaker,
    breaker_answer,
    state_answer,
)

SIGNAL = {"value": 0.5, "unit": "ratio", "age_seconds": 1.0, "absent": None}
TIER = {
    "tier": "chat",
    "role": "production",
    "mode": "observe",
    "targets": [
        {
            "id": "b",
            "url": "http://127.0.0.1:8001",
            "engine": "vllm",
            "version": "0.32.0",
            "model": "m",
            "up": True,
            "problem": "",
            "age_seconds": 1.0,
            "signals": {"kv_cache_usage_ratio": SIGNAL},
        }
    ],
    "baselines": [],
}
VERDICT = {
    "at": "2026-11-29T12:00:00Z",
    "tier": "chat",
    "scope": "target:b",
    "signal": "kv_cache_usage_ratio",
    "variant": "",
    "detector": "kv_cache",
    "level": "critical",
    "reason": "0.99, trip at 0.95",
    "statistic": 0.99,
    "effect": None,
    "threshold": 0.95,
    "evidence": 3.0,
    "samples": 5,
    "age_seconds": 0.0,
    "baseline": "",
    "cause": "kv_cache_saturated",
    "details": {},
}


def test_a_well_service_is_exit_code_0(tmp_path: Path) -> None:
    with a_service() as service:
        world = a_world(tmp_path, port=service.port)
        service.answers["/v1/tiers"] = (200, [TIER])
        service.answers["/v1/breakers"] = (200, [breaker_answer()])
        service.answers["/v1/verdicts"] = (200, [])

        done = world.run("status")

    assert done.exit_code == 0
    assert (
        "target: name=chat/b  mode=observe  state=up  engine=vllm 0.32.0  model=m  kv_cache=0.5"
        in done.stdout
    )
    assert "breaker: name=chat/b  state=closed  admits=1" in done.stdout


def test_a_raised_verdict_is_exit_code_1(tmp_path: Path) -> None:
    with a_service() as service:
        world = a_world(tmp_path, port=service.port)
        service.answers["/v1/tiers"] = (200, [TIER])
        service.answers["/v1/breakers"] = (200, [])
        service.answers["/v1/verdicts"] = (200, [VERDICT])

        done = world.run("status")

    assert done.exit_code == 1
    assert "level=critical" in done.stdout
    assert "why=0.99, trip at 0.95" in done.stdout


@pytest.mark.parametrize(("variants", "shown"), [(["v1", "v2"], True), (["v1"], False)])
def test_a_verdict_names_its_variant_where_a_scope_has_more_than_one(
    tmp_path: Path, variants: list[str], shown: object
) -> None:
    progress = {
        "scope": "tier",
        "baseline": None,
        "stage": "collecting",
        "requests": 3,
        "needed": 200,
        "progress_ratio": 0.015,
        "made_at": None,
    }
    tier = TIER | {"baselines": [progress | {"variant": name} for name in variants]}
    verdict = VERDICT | {"scope": "tier", "variant": "v1"}
    with a_service() as service:
        world = a_world(tmp_path, port=service.port)
        service.answers["/v1/tiers"] = (200, [tier])
        service.answers["/v1/breakers"] = (200, [])
        service.answers["/v1/verdicts"] = (200, [verdict])

        done = world.run("status")

    assert ("scope=tier  variant=v1" in done.stdout) is shown


def test_the_status_of_another_service_comes_with_a_warning(tmp_path: Path) -> None:
    with a_service() as service:
        world = a_world(tmp_path, port=service.port)
        service.answers["/v1/state"] = (200, state_answer("shop"))
        for path in ("tiers", "breakers", "verdicts"):
            service.answers[f"/v1/{path}"] = (200, [])

        done = world.run("status")

    assert done.exit_code == 0
    assert "with tiers shop" in done.stderr


def test_a_breaker_that_withholds_traffic_is_exit_code_1(tmp_path: Path) -> None:
    with a_service() as service:
        world = a_world(tmp_path, port=service.port)
        service.answers["/v1/tiers"] = (200, [])
        service.answers["/v1/breakers"] = (200, [breaker_answer(target="", effective_ratio=0.7)])
        service.answers["/v1/verdicts"] = (200, [])

        done = world.run("status", "--json")

    assert done.exit_code == 1
    answer = json.loads(done.stdout)
    assert answer["breakers"][0]["effective_ratio"] == 0.7
    assert answer["problem"] == ""


def test_a_silent_service_is_exit_code_3_with_what_the_database_remembers(tmp_path: Path) -> None:
    world = a_world(tmp_path)
    an_open_breaker(world)

    done = world.run("status")

    assert done.exit_code == 3
    assert "no answer from http://127.0.0.1:1" in done.stderr
    assert "name=chat/b  state=open" in done.stdout


def test_watching_looks_again_until_it_is_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = a_world(tmp_path)
    an_open_breaker(world)
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", pause)

    done = world.run("status", "--watch", "--every", "250ms")

    assert done.exit_code == 0
    assert pauses == [0.25, 0.25]
    assert done.stdout.count("name=chat/b  state=open") == 2
