"""The guards count the pool as it would be after the trip."""

from __future__ import annotations

import pytest

from alerts.breaker.guard import Pool, limit, refusal, velocity
from alerts.breaker.parameters import BreakerParameters
from alerts.breaker.permissions import ALERT_ONLY, PERMISSIONS, permission

PARAMETERS = BreakerParameters()


@pytest.mark.parametrize("size", range(1, 40))
def test_the_last_target_is_never_taken_however_large_the_fraction(size: int) -> None:
    everything = BreakerParameters(soft_max_fraction=1, hard_max_fraction=1)

    assert limit(size, "hard", everything) == size - 1
    assert limit(size, "soft", everything) == (size - 1 if size > 2 else 0)
    assert limit(size, "quality", everything) == 0


def test_a_floor_is_not_lost_to_binary_fractions() -> None:
    assert limit(100, "soft", BreakerParameters(soft_max_fraction=0.29)) == 29


def test_the_trip_itself_is_counted() -> None:
    assert refusal(Pool(3, withheld=0), "soft", PARAMETERS, 0.0) == ""
    assert refusal(Pool(3, withheld=1), "soft", PARAMETERS, 0.0).startswith("pool_guard:")


def test_a_pool_loses_no_more_a_minute_than_its_velocity() -> None:
    pool = Pool(10, withheld=1, trips=(0.0,))

    assert refusal(pool, "soft", PARAMETERS, 59.0).startswith("velocity:")
    assert refusal(pool, "soft", PARAMETERS, 60.0) == ""


@pytest.mark.parametrize(("size", "trips"), [(1, 1), (10, 1), (11, 2), (100, 10)])
def test_velocity_is_a_tenth_of_the_pool_and_at_least_one(size: int, trips: int) -> None:
    assert velocity(size, PARAMETERS) == trips
    assert velocity(size, BreakerParameters(trips_per_minute=7)) == 7


@pytest.mark.parametrize("code", sorted(PERMISSIONS))
def test_the_permissions_of_each_cause_agree_with_its_kind(code: str) -> None:
    found = permission(code)

    if found.kind == "quality":
        assert not found.may_eject_target
        assert not found.may_shed_tier
    if found.latched:
        assert found.kind == "hard"
    if found.may_shed_with_harm:
        assert found.kind == "quality"


def test_what_each_cause_may_do_is_as_decided() -> None:
    ejects = {code for code, found in PERMISSIONS.items() if found.may_eject_target}
    sheds = {code for code, found in PERMISSIONS.items() if found.may_shed_tier}
    latched = {code for code, found in PERMISSIONS.items() if found.latched}

    assert ejects == {"kv_cache_saturated", "queue_growing", "engine_stalled", "logits_corrupted"}
    assert sheds == {"kv_cache_saturated", "queue_growing", "slots_saturated", "engine_stalled"}
    assert latched == {"logits_corrupted"}


def test_a_cause_nobody_listed_may_only_alert() -> None:
    assert permission("made_up_yesterday") == ALERT_ONLY
