"""The whole service as a process: what breaks, what is told, and what survives."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import random
import resource
import time
from pathlib import Path

import pytest

from tests.e2e.harness import (
    CALM,
    KEY,
    configure,
    engine,
    receiver,
    saturated,
    serving,
    until,
)

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


def test_a_full_engine_is_ejected_told_signed_and_let_back_by_ramp(tmp_path: Path) -> None:
    with engine(CALM) as a, engine(CALM) as b, engine(CALM) as c, receiver() as gateway:
        hook = (
            f"\nwebhooks:\n  gateway:\n    url: {gateway.url}\n    secret: whsec_{KEY}\n"
            "    insecure_http: true\n    allow: [127.0.0.0/8]\n"
        )
        configure(tmp_path, [a, b, c], more=hook)
        with serving(tmp_path) as service:
            until(lambda: all(found.scrapes > 2 for found in (a, b, c)), seconds=10)

            c.page = saturated(CALM)
            until(lambda: service.breaker("c")["state"] == "open", seconds=15)
            opened = service.breaker("c")
            c.page = CALM
            until(lambda: service.breaker("c")["state"] == "half_open", seconds=15)
            until(lambda: service.breaker("c")["state"] == "closed", seconds=20)

            cause = opened["cause"]
            assert isinstance(cause, dict)
            assert cause["code"] in {"kv_cache_saturated", "queue_growing"}
            assert service.breaker("a")["state"] == service.breaker("b")["state"] == "closed"
            until(lambda: "fusewire.breaker.closed" in gateway.types, seconds=5)
            kinds = gateway.types
            assert kinds.index("fusewire.breaker.open") < kinds.index("fusewire.breaker.half_open")
            for headers, body in gateway.got:
                signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
                mac = hmac.new(base64.b64decode(KEY), signed, hashlib.sha256).digest()
                assert headers["webhook-signature"] == "v1," + base64.b64encode(mac).decode()
            page = service.text("/metrics")
            assert (
                'fusewire_breaker_transitions_total{reason="open",target="c",tier="chat"}' in page
            )
            rows = service.get("/v1/transitions")
            assert isinstance(rows, list)
            assert {"open", "half_open", "closed"} <= {row["kind"] for row in rows}
            audit = service.get("/v1/audit?verify=true")
            assert isinstance(audit, dict)
            assert audit["holds"] is True
            assert service.stop() == 0


def test_a_pool_of_one_is_never_ejected_but_sheds_with_retry_after(tmp_path: Path) -> None:
    with engine(CALM) as only:
        configure(tmp_path, [only])
        with serving(tmp_path) as service:
            only.page = saturated(CALM)
            until(lambda: float(str(service.breaker()["effective_ratio"])) < 0.5, seconds=15)

            assert service.breaker("a")["state"] == "closed"
            denied = [service.post(f"/v1/admit/chat?key={n}", b"") for n in range(200)]
            refusals = [body for status, body in denied if status == 503]
            assert 20 < len(refusals) < 200
            error = json.loads(refusals[0])["error"]
            assert error["code"] == "fusewire_breaker_open"
            assert 1 <= error["retry_after"] <= 60
            assert {status for status, _ in denied} == {200, 503}
            assert service.post("/v1/admit/chat/x/y?key=1&deny=429", b"")[0] in {200, 429}

            only.page = CALM
            until(lambda: service.breaker()["effective_ratio"] == 1.0, seconds=25)


def test_observe_records_what_it_would_do_and_sends_nothing(tmp_path: Path) -> None:
    with engine(CALM) as a, engine(CALM) as b, engine(CALM) as c, receiver() as gateway:
        hook = (
            f"\nwebhooks:\n  gateway:\n    url: {gateway.url}\n    secret: whsec_{KEY}\n"
            "    insecure_http: true\n    allow: [127.0.0.0/8]\n"
        )
        configure(tmp_path, [a, b, c], mode="observe", more=hook)
        with serving(tmp_path) as service:
            c.page = saturated(CALM)

            def would_open() -> bool:
                rows = service.get("/v1/transitions")
                assert isinstance(rows, list)
                return any(row["kind"] == "would_open" and row["dry_run"] for row in rows)

            until(would_open, seconds=15)

            assert service.breaker("c")["effective_ratio"] == 1.0
            assert gateway.got == []
            assert all(service.post("/v1/admit/chat?target=c", b"")[0] == 200 for _ in range(20))


def test_control_state_survives_kills_at_random_moments(tmp_path: Path) -> None:
    """Overrides, breakers that opened by themselves, and what the gateway was last told."""
    rng = random.Random(7)
    with engine(CALM) as a, engine(CALM) as b, engine(CALM) as c, receiver() as gateway:
        hook = (
            f"\nwebhooks:\n  gateway:\n    url: {gateway.url}\n    secret: whsec_{KEY}\n"
            "    insecure_http: true\n    allow: [127.0.0.0/8]\n"
        )
        configure(tmp_path, [a, b, c], more=hook)
        acknowledged: dict[str, object] = {}
        for round_number in range(12):
            with serving(tmp_path) as service:
                for target, row in acknowledged.items():
                    found = service.breaker(target)
                    assert found["override"] == row, f"round {round_number}: lost {target}"
                c.page = saturated(CALM) if round_number % 2 else CALM
                deadline = time.monotonic() + rng.uniform(0.05, 1.5)
                while time.monotonic() < deadline:
                    target = rng.choice("ab")
                    wanted = {
                        "forced": rng.choice(["forced_open", "forced_closed"]),
                        "reason": f"round {round_number}",
                        "actor": "test",
                        "seconds": 3600,
                    }
                    status, body = service.post(
                        f"/v1/breakers/chat/{target}/override",
                        json.dumps(wanted).encode(),
                        content_type="application/json",
                    )
                    assert status == 200, body
                    acknowledged[target] = json.loads(body)["override"]
                service.kill()
        with serving(tmp_path) as service:
            audit = service.get("/v1/audit?verify=true")
            assert isinstance(audit, dict)
            assert audit["holds"] is True, audit["problem"]

            def told() -> bool:
                rows = {row["target"]: row for row in service.list("/v1/breakers")}
                return all(
                    gateway.last(target).get("admit_ratio") == rows[target]["effective_ratio"]
                    for target in acknowledged
                )

            until(told, seconds=10)


def test_an_open_breaker_whose_time_passed_comes_back_half_open(tmp_path: Path) -> None:
    with engine(CALM) as a, engine(CALM) as b, engine(CALM) as c:
        configure(tmp_path, [a, b, c])
        with serving(tmp_path) as service:
            c.page = saturated(CALM)
            until(lambda: service.breaker("c")["state"] == "open", seconds=15)
            service.kill()
        time.sleep(4.5)  # longer than open_cap_seconds

        with serving(tmp_path) as service:
            rows = service.get("/v1/transitions")
            assert isinstance(rows, list)
            kinds = [row["kind"] for row in rows if row["target"] == "c"]

            assert kinds[-1] == "open"
            assert kinds[-2] == "half_open"


def test_with_a_full_disk_nothing_new_trips_until_it_can_be_written_again(tmp_path: Path) -> None:
    with engine(CALM) as a, engine(CALM) as b, engine(CALM) as c:
        configure(tmp_path, [a, b, c])
        with serving(tmp_path) as service:
            until(lambda: all(found.scrapes > 2 for found in (a, b, c)), seconds=10)
            no_limit = resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE)
            resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE, (1, no_limit[1]))

            c.page = saturated(CALM)
            until(
                lambda: "fusewire_journal_writable 0.0" in service.text("/metrics"),
                seconds=15,
            )
            scrapes = c.scrapes
            until(lambda: c.scrapes > scrapes + 10, seconds=15)
            assert service.breaker("c")["state"] == "closed"
            assert service.breaker()["effective_ratio"] == 1.0
            status, told = service.post(
                "/v1/breakers/chat/a/override",
                json.dumps(
                    {"forced": "forced_open", "reason": "r", "actor": "t", "seconds": 60}
                ).encode(),
                content_type="application/json",
            )
            assert status == 503, told
            assert "nothing changed" in told

            resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE, no_limit)
            until(lambda: service.breaker("c")["state"] == "open", seconds=15)
            until(lambda: "fusewire_journal_writable 1.0" in service.text("/metrics"), seconds=15)
