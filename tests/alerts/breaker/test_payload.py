"""The messages: whole state, bounded, strict JSON, one for each endpoint that wants the tier."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from alerts.breaker.events import Breach, Clean, Tick
from alerts.breaker.machine import step
from alerts.breaker.parameters import BreakerParameters
from alerts.breaker.payload import LARGEST_BYTES, Facts, Route, body, deliveries
from alerts.breaker.records import Breaker, Cause, Key, Transition
from tests.alerts.breaker.scene import START

PARAMETERS = BreakerParameters()
FACTS = Facts("fw-eu-1", PARAMETERS, "10.0.3.7:8000", 27)
CAUSE = Cause("kv_cache_saturated", "soft", "0.98", {"kv_cache_usage_ratio": {"value": 0.98}})


def opened(key: Key, cause: Cause = CAUSE) -> tuple[Breaker, Transition]:
    breaker, (transition,) = step(
        Breaker(key, epoch=7, seq=40),
        Breach(cause, trips=True),
        PARAMETERS,
        START,
        lambda low, high: (low + high) / 2,
    )
    return breaker, transition


def test_a_message_states_the_whole_present_state() -> None:
    breaker, transition = opened(Key("chat", "vllm-3"))

    message = json.loads(body(breaker, transition, FACTS, START))

    assert message == {
        "type": "fusewire.breaker.open",
        "timestamp": "2026-11-29T15:00:00.000Z",
        "data": {
            "schema": 1,
            "controller": "fw-eu-1",
            "epoch": 7,
            "seq": 41,
            "tier": "chat",
            "target": {"id": "vllm-3", "address": "10.0.3.7:8000"},
            "state": "open",
            "previous_state": "closed",
            "admit_ratio": 0.0,
            "retry_after_seconds": 27,
            "open_until": "2026-11-29T15:00:30.000Z",
            "lease": {
                "seconds": 60.0,
                "expires_at": "2026-11-29T15:01:00.000Z",
                "on_expiry": "close",
            },
            "cause": {
                "code": "kv_cache_saturated",
                "class": "soft",
                "reason": "0.98",
                "signals": [{"name": "kv_cache_usage_ratio", "value": 0.98}],
            },
            "override": None,
            "dry_run": False,
        },
    }


def test_types_name_what_happened() -> None:
    tier, shed = opened(Key("chat"))
    climbing, (back,) = step(tier, Clean(), PARAMETERS, START, lambda low, _high: low)

    def type_of(breaker: Breaker, transition: Transition | None) -> str:
        return str(json.loads(body(breaker, transition, FACTS, START))["type"])

    assert type_of(tier, shed) == "fusewire.tier.shed"
    assert type_of(climbing, back) == "fusewire.breaker.half_open"
    assert type_of(tier, None) == "fusewire.breaker.renewed"
    assert json.loads(body(tier, shed, FACTS, START))["data"]["target"] is None


def test_a_message_stays_small_and_strict_whatever_a_verdict_says() -> None:
    signals = {f"signal_{n}": {"value": float("nan"), "threshold": 1.0} for n in range(500)}
    breaker, transition = opened(Key("chat", "a"), Cause("x", "soft", "y" * 100_000, signals))

    sent = body(breaker, transition, FACTS, START)

    assert len(sent) <= LARGEST_BYTES
    assert b"NaN" not in sent


def test_names_that_make_a_message_too_large_are_refused() -> None:
    breaker, transition = opened(Key("c" * 20_000))

    with pytest.raises(ValueError, match="shorten the names"):
        body(breaker, transition, FACTS, START)


def test_each_endpoint_that_wants_the_tier_gets_one_row_with_an_id_of_its_own() -> None:
    breaker, transition = opened(Key("chat", "a"))
    routes = [Route("all"), Route("chat-only", ("chat",)), Route("code-only", ("code",))]

    rows = deliveries(routes, breaker, transition, FACTS, START)
    again = deliveries(routes, breaker, transition, FACTS, START)

    assert [row.endpoint for row in rows] == ["all", "chat-only"]
    assert len({row.id for row in rows}) == 2
    assert rows == again  # the same message has the same id
    assert {row.expires_at for row in rows} == {START + timedelta(seconds=60)}


def test_a_tick_alone_makes_no_message() -> None:
    breaker, _ = opened(Key("chat", "a"))

    same, transitions = step(breaker, Tick(), PARAMETERS, START, lambda low, _high: low)

    assert (same, transitions) == (breaker, ())
