"""`GET /v1/limits/{tier}`: what clients may send, and why something is not known."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from collector.api.limits import LimitsOut
from detectors.records import Absence
from exporters.embed.batch_splitter import Limits
from tests.builders import a_reading
from tests.collector.api.conftest import Asked

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
OPEN = {"forced": "forced_open", "reason": "maintenance", "actor": "tests", "seconds": 600}


def see(asked: Asked, target: str, values: dict[str, float], *, age: float = 0.0) -> None:
    reading = a_reading(values, target=target, absent={"request_slots": Absence.NO_FAMILY})
    at = asked.service.parts.now() - timedelta(seconds=age)
    asked.service.parts.state.see(replace(reading, at=at))


async def told(asked: Asked) -> dict[str, Any]:
    answer = await asked.client.get("/v1/limits/chat")
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "no-store"
    found: dict[str, Any] = answer.json()
    return found


async def test_nothing_is_known_before_the_first_scrape_and_every_gap_has_a_reason(
    asked: Asked,
) -> None:
    found = await told(asked)

    empty = {name for name, value in found.items() if value is None}
    assert empty - {"free_requests", "age_seconds"} == found["unknown"].keys()
    assert "last minute" in found["unknown"]["request_slots"]
    assert (found["admit_ratio"], found["targets"], found["targets_used"]) == (1.0, 3, 0)


async def test_slots_add_and_the_smallest_target_limits_prompts_and_batches(asked: Asked) -> None:
    see(asked, "a", {"request_slots": 64, "context_tokens": 8192, "batch_token_budget": 16_000})
    see(asked, "b", {"request_slots": 32, "context_tokens": 4096, "kv_cache_capacity_tokens": 9000})

    found = await told(asked)

    assert found["request_slots"] == 96
    assert found["in_flight_requests"] == 96
    assert found["max_prompt_tokens"] == 4096
    assert found["batch_token_budget"] == 9000
    assert found["unknown"] == {}


async def test_large_requests_make_fewer_fit_than_there_are_slots(asked: Asked) -> None:
    running = {"requests_running": 20.0, "requests_waiting": 3.0, "kv_cache_usage_ratio": 0.6}
    see(asked, "a", {"request_slots": 64, **running})

    found = await told(asked)

    assert found["in_flight_requests"] == 30  # 20 fill 0.6, so 30 fill 0.9
    assert found["free_requests"] == 7


async def test_an_old_reading_or_a_target_that_is_down_limits_nothing(asked: Asked) -> None:
    see(asked, "a", {"request_slots": 64}, age=61)
    down = replace(a_reading(target="b", problem="refused"), at=asked.service.parts.now())
    asked.service.parts.state.see(down)

    found = await told(asked)

    assert found["request_slots"] is None
    assert found["targets_used"] == 0


async def test_an_ejected_target_takes_its_slots_with_it(asked: Asked) -> None:
    for target in "abc":
        see(asked, target, {"request_slots": 10})
    await asked.client.post("/v1/breakers/chat/b/override", json=OPEN)

    found = await told(asked)

    assert (found["request_slots"], found["targets_used"]) == (20, 2)


async def test_a_tier_that_sheds_says_how_much_and_when_to_come_back(asked: Asked) -> None:
    see(asked, "a", {"request_slots": 10})
    await asked.client.post("/v1/breakers/chat/override", json=OPEN)

    found = await told(asked)

    assert (found["admit_ratio"], found["in_flight_requests"]) == (0.0, 0)
    assert found["state"] == "forced_open"
    assert found["retry_after_seconds"] > 0


async def test_what_a_target_does_not_tell_has_the_reason_of_its_page(asked: Asked) -> None:
    see(asked, "a", {"requests_running": 2.0})

    found = await told(asked)

    assert found["unknown"]["request_slots"] == "request_slots: family absent; configure it"


async def test_an_unknown_tier_is_404_with_the_tiers_there_are(asked: Asked) -> None:
    answer = await asked.client.get("/v1/limits/nope")

    assert answer.status_code == 404
    assert "chat" in answer.text


def test_the_embedded_splitter_reads_members_that_the_route_tells() -> None:
    assert set(Limits._fields) <= LimitsOut.model_fields.keys()
