"""The limit with hysteresis."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from detectors.limit import LimitConfig, WhenConfig
from detectors.records import Absence, Level, Reading
from tests.builders import a_reading
from tests.detectors.recordings import judged

KV = LimitConfig(
    signal="kv_cache_usage_ratio",
    trip=0.95,
    clear=0.8,
    when=WhenConfig(signal="requests_waiting"),
    cause="kv_cache_saturated",
)
SLOTS = LimitConfig(
    signal="requests_running",
    divisor="request_slots",
    trip=0.95,
    clear=0.8,
    cause="slots_saturated",
    optional=True,
)


def kv(usage: float, waiting: float = 3.0) -> Reading:
    return a_reading({"kv_cache_usage_ratio": usage, "requests_waiting": waiting})


def levels(config: LimitConfig, readings: list[Reading]) -> list[Level]:
    return [verdict.level for verdict in judged(config.build(), readings)]


def test_three_breaches_of_five_raise_and_one_alone_warns() -> None:
    found = levels(KV, [kv(0.96), kv(0.9), kv(0.97), kv(0.9), kv(1.0)])

    assert found == [Level.WARNING, Level.OK, Level.WARNING, Level.OK, Level.CRITICAL]


def test_breaches_spread_thinner_than_three_of_five_never_raise() -> None:
    found = levels(KV, [kv(usage) for usage in [0.96, 0.9, 0.9, 0.96, 0.9, 0.9] * 20])

    assert Level.CRITICAL not in found


def test_between_clear_and_trip_a_raised_limit_stays_raised() -> None:
    found = levels(KV, [kv(0.99)] * 3 + [kv(0.85)] * 50)

    assert found[2:] == [Level.CRITICAL] * 51


def test_calm_must_last_to_clear() -> None:
    found = levels(KV, [kv(0.99)] * 3 + [kv(0.5), kv(0.5), kv(0.85), kv(0.5), kv(0.5), kv(0.5)])

    assert found[3:] == [Level.CRITICAL] * 5 + [Level.OK]


def test_a_full_cache_with_nobody_waiting_is_no_breach_and_calms() -> None:
    full_but_idle = levels(KV, [kv(1.0, waiting=0)] * 10)
    after_pressure = levels(KV, [kv(1.0)] * 3 + [kv(1.0, waiting=0)] * 3)

    assert full_but_idle == [Level.OK] * 10
    assert after_pressure[-1] is Level.OK


def test_a_missing_signal_is_unknown_not_ok_and_holds_the_memory() -> None:
    detector = KV.build()
    memory, _ = detector.step(detector.start(), kv(0.99))
    gone = a_reading({"requests_waiting": 1.0}, absent={"kv_cache_usage_ratio": Absence.NO_SAMPLE})

    after, (verdict,) = detector.step(memory, gone)

    assert verdict.level is Level.UNKNOWN
    assert verdict.reason == "kv_cache_usage_ratio: family known but no sample"
    assert verdict.cause == "kv_cache_saturated"
    assert after == memory


def test_a_value_that_is_no_number_is_unknown() -> None:
    assert levels(KV, [kv(float("nan"))]) == [Level.UNKNOWN]


def test_a_restart_empties_the_memory() -> None:
    restarted = replace(kv(0.99), restarted=True)

    assert levels(KV, [kv(0.99), kv(0.99), restarted]) == [
        Level.WARNING,
        Level.WARNING,
        Level.WARNING,
    ]


def test_the_share_of_slots_is_judged() -> None:
    busy = a_reading({"requests_running": 63.0, "request_slots": 64.0})

    verdict = judged(SLOTS.build(), [busy] * 3)[-1]

    assert verdict.level is Level.CRITICAL
    assert verdict.statistic == pytest.approx(63 / 64)
    assert verdict.reason.startswith("requests_running / request_slots 0.984, trip at 0.95")


@pytest.mark.parametrize("slots", [{}, {"request_slots": 0.0}], ids=["absent", "zero"])
def test_unknown_slots_are_unknown_with_a_plain_reason(slots: dict[str, float]) -> None:
    (verdict,) = judged(SLOTS.build(), [a_reading({"requests_running": 9.0, **slots})])

    assert verdict.level is Level.UNKNOWN
    assert "request_slots" in verdict.reason


def test_what_a_target_never_tells_asks_for_no_alert_but_a_failed_scrape_does() -> None:
    never = judged(SLOTS.build(), [a_reading({"requests_running": 9.0})])[0]
    failed = judged(SLOTS.build(), [a_reading(problem="timed out")])[0]
    silent = judged(
        SLOTS.build(),
        [a_reading({"requests_running": 9.0}, absent={"request_slots": Absence.NO_SAMPLE})],
    )[0]

    assert never.cause == ""
    assert failed.cause == silent.cause == "slots_saturated"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"signal": "kv_cache_usage", "trip": 1, "clear": 0}, "nearest is 'kv_cache_usage_ratio'"),
        ({"signal": "requests_waiting", "trip": 1, "clear": 1}, "clear 1 must be under trip 1"),
        ({"signal": "requests_waiting", "trip": 1, "clear": 0, "breaches": 6}, "equal to 5"),
        ({"signal": "requests_waiting", "trip": 1, "clear": 0, "wait": 1}, "not permitted"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, object], expected: str) -> None:
    with pytest.raises(ValidationError, match=expected):
        LimitConfig.model_validate(settings)


@given(st.lists(st.floats(0, 1), max_size=60))
def test_a_raised_limit_was_breached_three_times_and_never_clears_without_calm(
    usages: list[float],
) -> None:
    found = levels(KV, [kv(usage) for usage in usages])

    for place, level in enumerate(found):
        if level is Level.CRITICAL:
            assert sum(usage >= 0.95 for usage in usages[: place + 1]) >= 3
        if place and found[place - 1] is Level.CRITICAL and level is not Level.CRITICAL:
            assert all(usage <= 0.8 for usage in usages[place - 2 : place + 1])
