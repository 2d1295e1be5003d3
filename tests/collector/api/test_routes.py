"""The routes that are asked: tiers, verdicts, baselines, breakers, state, admission, the page."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest

from collector.wiring import StoredBaselines
from detectors.baseline import make_baseline
from detectors.records import Level
from detectors.remarks import Quantile
from tests.builders import START, a_reading, a_tick
from tests.collector.api.conftest import Asked, asking

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
OPEN = {"forced": "forced_open", "reason": "maintenance", "actor": "tests", "seconds": 600}


async def test_tiers_tell_values_with_age_and_absences_with_their_reason(asked: Asked) -> None:
    now = asked.service.parts.now()
    reading = replace(a_reading({"requests_running": 3.0}, target="a"), at=now)
    asked.service.parts.state.see(reading)
    failed = replace(a_reading(target="b", problem="connection refused"), at=now)
    asked.service.parts.state.see(failed)

    (tier,) = (await asked.client.get("/v1/tiers")).json()

    a, b, c = tier["targets"]
    assert a["signals"]["requests_running"]["value"] == 3.0
    assert a["signals"]["requests_running"]["unit"] == "requests"
    assert (b["up"], b["problem"]) == (False, "connection refused")
    assert (c["up"], c["problem"]) == (None, "not scraped yet")
    assert tier["mode"] == "enforce"


async def test_tiers_tell_the_bucket_that_a_quantile_lies_in(asked: Asked) -> None:
    gauges = {"ttft_p50_seconds": 0.2, "ttft_p99_seconds": 60.0}
    reading = replace(
        a_reading({**gauges, "requests_running": 3.0}, target="a"),
        at=asked.service.parts.now(),
        quantiles={
            "ttft_p50_seconds": Quantile(0.2, 0.1, 0.25, 40.0, 60.0),
            "ttft_p99_seconds": Quantile(60.0, 60.0, math.inf, 40.0, 60.0),
        },
    )
    asked.service.parts.state.see(reading)

    (tier,) = (await asked.client.get("/v1/tiers")).json()

    signals = tier["targets"][0]["signals"]
    assert signals["ttft_p50_seconds"]["between"] == [0.1, 0.25]
    assert signals["ttft_p50_seconds"]["samples"] == 40.0
    assert signals["ttft_p99_seconds"]["between"] == [60.0, None]
    assert signals["requests_running"]["between"] is None
    page = (await asked.client.get("/")).text
    assert "<small>0.1 to 0.25</small>" in page
    assert "<small>60 or more</small>" in page


async def test_verdicts_are_listed_worst_first_and_can_be_narrowed(asked: Asked) -> None:
    reading = a_reading({"requests_running": 3.0}, target="a")
    levels = {"one": Level.OK, "two": Level.CRITICAL, "three": Level.UNKNOWN}
    verdicts = [reading.verdict(name, "requests_running", level) for name, level in levels.items()]
    await asked.service.parts.newest.take(verdicts, reading)

    found = (await asked.client.get("/v1/verdicts")).json()
    bad = (await asked.client.get("/v1/verdicts?at_least=warning")).json()
    other = (await asked.client.get("/v1/verdicts?tier=other")).json()

    assert [row["detector"] for row in found] == ["two", "one", "three"]
    assert [row["detector"] for row in bad] == ["two"]
    assert other == []


async def test_history_is_what_was_stored(asked: Asked) -> None:
    reading = replace(a_reading({}, target="a"), at=asked.service.parts.now())
    await asked.service.history.take(
        [reading.verdict("limit", "requests_running", Level.WARNING, reason="why")], reading
    )
    await asked.service.history.flush()

    (row,) = (await asked.client.get("/v1/verdicts?history=true")).json()

    assert (row["level"], row["reason"], row["scope"]) == ("warning", "why", "target:a")


async def test_a_baseline_is_promoted_once_and_taken_over_at_once(asked: Asked) -> None:
    rng = np.random.default_rng(1)
    made = make_baseline(
        [a_tick({"prompt_tokens": rng.lognormal(5, 1, 100)}, number=n) for n in range(30)],
        made_at=START,
        provenance="test",
    )
    await StoredBaselines(asked.service.parts.store).save_baseline(made)
    wanted = {"author": "tests", "reason": "as measured"}

    answer = await asked.client.post(f"/v1/baselines/{made.id}/promote", json=wanted)
    again = await asked.client.post(f"/v1/baselines/{made.id}/promote", json=wanted)
    missing = await asked.client.post("/v1/baselines/bl_nope/promote", json=wanted)
    (listed,) = (await asked.client.get("/v1/baselines")).json()

    assert answer.status_code == 200, answer.text
    assert (listed["stage"], listed["author"]) == ("active", "tests")
    assert (again.status_code, missing.status_code) == (409, 404)
    lane = (made.tier, made.scope, made.variant)
    assert str(asked.service.parts.state.baselines[lane].stage) == "active"


async def test_an_override_is_in_force_at_once_and_survives(tmp_path: Path) -> None:
    async with asking(tmp_path) as asked:
        answer = await asked.client.post("/v1/breakers/chat/a/override", json=OPEN)
        assert answer.status_code == 200, answer.text
        assert answer.json()["shown_state"] == "forced_open"
        denied = await asked.client.get("/v1/admit/chat?target=a")
        assert denied.status_code == 503

    async with asking(tmp_path) as asked:
        rows = (await asked.client.get("/v1/breakers")).json()
        (row,) = [row for row in rows if row["target"] == "a"]
        assert row["override"]["reason"] == "maintenance"
        released = await asked.client.post(
            "/v1/breakers/chat/a/override",
            json={"forced": None, "reason": "done", "actor": "tests"},
        )
        assert released.status_code == 200
        assert released.json()["override"] is None


@pytest.mark.parametrize(
    ("path", "change", "status"),
    [
        ("/v1/breakers/nope/override", {}, 404),
        ("/v1/breakers/chat/nope/override", {}, 404),
        ("/v1/breakers/chat/a/override", {"seconds": None}, 422),
        ("/v1/breakers/chat/a/override", {"seconds": 1e9}, 422),
        ("/v1/breakers/chat/a/override", {"reason": ""}, 422),
        ("/v1/breakers/chat/a/override", {"forced": "open"}, 422),
        ("/v1/breakers/chat/a/override", {"surplus": 1}, 422),
    ],
)
async def test_a_bad_override_changes_nothing(
    asked: Asked, path: str, change: dict[str, object], status: int
) -> None:
    answer = await asked.client.post(path, json=OPEN | change)

    assert answer.status_code == status
    rows = (await asked.client.get("/v1/breakers")).json()
    assert all(row["override"] is None for row in rows)


async def test_state_is_a_long_poll_with_an_etag(asked: Asked) -> None:
    first = await asked.client.get("/v1/state")
    rev = first.json()["rev"]

    same = await asked.client.get("/v1/state", headers={"if-none-match": first.headers["etag"]})
    timed_out = await asked.client.get(f"/v1/state?after={rev}&wait=0.05")
    waiting = asyncio.ensure_future(asked.client.get(f"/v1/state?after={rev}&wait=20"))
    await asyncio.sleep(0.05)
    await asked.client.post("/v1/breakers/chat/b/override", json=OPEN)
    changed = await asyncio.wait_for(waiting, timeout=10)

    assert (same.status_code, timed_out.status_code) == (304, 304)
    assert changed.json()["rev"] > rev
    (target,) = [row for row in changed.json()["targets"] if row["id"] == "b"]
    assert target["admit_ratio"] == 0.0


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD"])
async def test_every_method_and_path_below_is_answered_by_admission(
    asked: Asked, method: str
) -> None:
    await asked.client.post("/v1/breakers/chat/override", json=OPEN)
    path = "/v1/admit/chat/v1/chat/completions?x=1"

    denied = await asked.client.request(method, path)
    for_envoy = await asked.client.request(method, path, headers={"x-fusewire-deny": "429"})
    for_nginx = await asked.client.request(method, path + "&deny=403&style=empty")
    foreign = await asked.client.request(method, path, headers={"x-fusewire-deny": "200"})

    assert [a.status_code for a in (denied, for_envoy, for_nginx, foreign)] == [503, 429, 403, 503]
    assert int(denied.headers["retry-after"]) >= 1
    assert denied.headers["x-fusewire-state"] == "forced_open"
    assert for_nginx.content == b""


async def test_an_unknown_tier_is_let_in_and_makes_no_series(asked: Asked) -> None:
    answer = await asked.client.get("/v1/admit/nobody-knows")

    assert answer.status_code == 200
    assert answer.headers["x-fusewire-state"] == "unknown"
    page, _ = asked.service.parts.page.render()
    assert b"nobody-knows" not in page


async def test_the_service_says_that_it_lives_and_when_it_is_not_ready(asked: Asked) -> None:
    assert (await asked.client.get("/-/healthy")).status_code == 200
    waiting = await asked.client.get("/-/ready")
    asked.service.parts.missing.clear()
    ready = await asked.client.get("/-/ready")

    assert (waiting.status_code, ready.status_code) == (503, 200)
    assert "starting" in waiting.text


async def test_the_metrics_page_is_negotiated(asked: Asked) -> None:
    classic = await asked.client.get("/metrics")
    open_metrics = await asked.client.get(
        "/metrics", headers={"accept": "application/openmetrics-text; version=1.0.0"}
    )

    assert classic.headers["content-type"].startswith("text/plain")
    assert "fusewire_build_info" in classic.text
    assert open_metrics.headers["content-type"].startswith("application/openmetrics-text")
    assert open_metrics.text.rstrip().endswith("# EOF")


async def test_the_status_page_shows_the_tier_and_forbids_scripts(asked: Asked) -> None:
    asked.service.parts.state.see(
        replace(a_reading({}, target="a"), at=asked.service.parts.now() - timedelta(seconds=3))
    )

    page = await asked.client.get("/")
    style = await asked.client.get("/status.css")

    assert page.status_code == 200
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "chat" in page.text
    assert "<script" not in page.text
    assert style.headers["content-type"].startswith("text/css")


async def test_the_page_of_routes_needs_no_script_and_nothing_from_elsewhere(
    asked: Asked,
) -> None:
    page = await asked.client.get("/docs")

    assert page.status_code == 200
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "/v1/ingest/generations" in page.text
    assert "<script" not in page.text
    assert "http://" not in page.text.replace("http://127.0.0.1:9731", "")
    assert "https://" not in page.text


async def test_the_audit_holds_and_lists_what_was_done(asked: Asked) -> None:
    await asked.client.post("/v1/breakers/chat/a/override", json=OPEN)

    audit = (await asked.client.get("/v1/audit?verify=true")).json()
    rows = (await asked.client.get("/v1/transitions?tier=chat&limit=1")).json()

    assert audit["holds"] is True
    assert rows == audit["rows"][:1]
    assert (rows[0]["kind"], rows[0]["actor"]) == ("forced_open", "tests")


async def test_a_web_page_cannot_force_a_breaker(asked: Asked) -> None:
    answer = await asked.client.post(
        "/v1/breakers/chat/a/override", json=OPEN, headers={"origin": "https://evil.example"}
    )

    assert answer.status_code == 403
