"""The whole service as a process: what a user of it sees."""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.server
import json
import random
import resource
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.e2e.harness import (
    PAGES,
    Engine,
    Serving,
    engine,
    saturated,
    serving,
    spawn,
    start,
    until,
)

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

CALM = (PAGES / "vllm-0.32.0-idle.txt").read_bytes()
KEY = base64.b64encode(b"0123456789abcdef0123456789abcdef").decode()
FAST = """
    breaker:
      breach_n: 2
      breach_m: 3
      open_base_seconds: 2
      open_cap_seconds: 4
      ramp_evaluations: 1
      shed_step: 0.4
      warmup_seconds: 0
      lease_seconds: 6
      renew_seconds: 1
"""


def configure(
    folder: Path, engines: list[Engine], *, mode: str = "enforce", more: str = ""
) -> None:
    """Write a configuration with quick times into `folder`."""
    targets = "\n".join(
        f"      - {{id: {name}, url: '{found.url}'}}"
        for name, found in zip("abc", engines, strict=False)
    )
    (folder / "fusewire.yaml").write_text(
        f"listen: 127.0.0.1:0\nmode: {mode}\nscrape_interval: 200ms\ntick: 500ms\n"
        f"tiers:\n  chat:\n    segments: [search]\n    targets:\n{targets}{FAST}{more}"
    )


@dataclass
class Receiver:
    """A webhook endpoint that keeps what it is sent."""

    url: str = ""
    got: list[tuple[dict[str, str], bytes]] = field(default_factory=list)

    @property
    def types(self) -> list[str]:
        return [json.loads(body)["type"] for _, body in list(self.got)]


@contextmanager
def receiver() -> Iterator[Receiver]:
    found = Receiver()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            found.got.append(({k.lower(): v for k, v in self.headers.items()}, body))
            data = json.loads(body)["data"]
            answer = json.dumps(
                {"applied": True, "epoch": data["epoch"], "seq": data["seq"], "enforcer": "test"}
            ).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            return

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.url = f"http://127.0.0.1:{server.server_address[1]}/hooks"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


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
            audit = service.get("/v1/audit")
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


def test_a_reload_swaps_whole_or_keeps_the_old_configuration_and_says_so(tmp_path: Path) -> None:
    with engine(CALM) as a, engine(CALM) as b:
        configure(tmp_path, [a])
        with serving(tmp_path) as service:
            file = tmp_path / "fusewire.yaml"
            good = file.read_text()

            file.write_text(
                good.replace("mode: enforce", "mode: enforced").replace("tick:", "tic:")
            )
            status, body = service.post("/-/reload", b"")
            assert status == 422
            problems = json.loads(body)["problems"]
            assert len(problems) == 2
            assert "enforced" in body
            assert "tick" in body
            assert "fusewire_config_last_reload_successful 0.0" in service.text("/metrics")
            assert service.breaker("a")["state"] == "closed"

            file.write_text(good.replace("listen: 127.0.0.1:0", "listen: 127.0.0.1:1"))
            status, body = service.post("/-/reload", b"")
            assert status == 422
            assert "listen: it cannot change while the service runs" in body

            configure(tmp_path, [b, a])
            assert service.post("/-/reload", b"")[0] == 200
            assert "fusewire_config_last_reload_successful 1.0" in service.text("/metrics")
            until(lambda: b.scrapes > 1, seconds=5)

            configure(tmp_path, [a])
            service.process.send_signal(signal.SIGHUP)
            until(lambda: 'target="b"' not in service.text("/metrics"), seconds=10)
            tiers = service.get("/v1/tiers")
            assert isinstance(tiers, list)
            assert [target["id"] for target in tiers[0]["targets"]] == ["a"]


def test_a_second_service_on_the_same_store_is_refused_and_says_why(tmp_path: Path) -> None:
    with engine(CALM) as a:
        configure(tmp_path, [a])
        with serving(tmp_path) as service:
            second = spawn(tmp_path)

            assert second.wait(timeout=30) == 2
            assert str(service.process.pid) in service.log.partition("--- start")[2]
            assert "only one" in service.log
            command = [sys.executable, "-m", "collector", "breaker", "list"]
            beside = subprocess.run(
                command, cwd=tmp_path, capture_output=True, text=True, check=False
            )
            assert beside.returncode == 0, beside.stderr


def test_control_state_survives_kills_at_random_moments(tmp_path: Path) -> None:
    rng = random.Random(7)
    with engine(CALM) as a, engine(CALM) as b, engine(CALM) as c:
        configure(tmp_path, [a, b, c])
        acknowledged: dict[str, object] = {}
        for round_number in range(8):
            with serving(tmp_path) as service:
                for target, row in acknowledged.items():
                    found = service.breaker(target)
                    assert found["override"] == row, f"round {round_number}: lost {target}"
                deadline = time.monotonic() + rng.uniform(0.05, 0.8)
                while time.monotonic() < deadline:
                    target = rng.choice("abc")
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
            audit = service.get("/v1/audit")
            assert isinstance(audit, dict)
            assert audit["holds"] is True, audit["problem"]


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


def test_no_text_of_users_is_kept_anywhere(tmp_path: Path) -> None:
    prompt, answer = "zebrafinch quartzite", "marmalade obelisk"
    lines = [
        {
            "tier": "chat",
            "segment": "search",
            "request": {"model": "m", "messages": [{"role": "user", "content": prompt}]},
            "response": {
                "id": "x",
                "model": "m",
                "choices": [
                    {
                        "index": 0,
                        "message": {"role": "assistant", "content": answer},
                        "finish_reason": "stop",
                        "logprobs": {
                            "content": [
                                {
                                    "token": answer,
                                    "logprob": -0.1,
                                    "bytes": None,
                                    "top_logprobs": [{"token": answer, "logprob": -0.1}],
                                }
                            ]
                        },
                    }
                ],
                "usage": {"prompt_tokens": 4, "completion_tokens": 1},
            },
        },
        {
            "tier": "chat",
            "request": {"prompt": prompt},
            "response": {"choices": [{"text": answer}]},
        },
        {"tier": "chat", "request": {"prompt": prompt}, "response": {"error": {"message": answer}}},
        {"tier": prompt, "request": {"prompt": prompt}, "response": {"choices": answer}},
        {"tier": "chat", "segment": answer, "request": prompt, "response": {}},
    ]
    body = b"\n".join(json.dumps(line).encode() for line in lines)
    body += b"\n" + f'{{"request": "{prompt}", broken {answer}\n'.encode()
    with engine(CALM) as a:
        configure(tmp_path, [a])
        with serving(tmp_path) as service:
            status, told = service.post(
                "/v1/ingest/generations", body, content_type="application/x-ndjson"
            )
            assert status == 200
            assert json.loads(told)["accepted"] >= 2
            time.sleep(1.5)  # a tick closes and is stored
            pages = [
                service.text(path)
                for path in ("/metrics", "/", "/v1/verdicts", "/v1/tiers", "/v1/verdicts?history=1")
            ]
            assert service.stop() == 0

        found = sqlite3.connect(tmp_path / "fusewire.db")
        stored = found.execute("select count(*) from tick_count").fetchone()[0]
        found.close()
        assert stored > 0, "nothing was stored, so nothing was tested"
        files = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
        assert {"fusewire.db", "fusewire.snapshot", "serve.log"} <= set(files)
        for canary in (*prompt.split(), *answer.split()):
            assert canary not in told
            assert all(canary not in page for page in pages)
            holders = [name for name, content in files.items() if canary.encode() in content]
            assert holders == [], f"{canary!r} is kept in {holders}"


def test_an_open_listener_without_tokens_refuses_every_change(tmp_path: Path) -> None:
    with engine(CALM) as a:
        configure(tmp_path, [a])
        file = tmp_path / "fusewire.yaml"
        file.write_text(file.read_text().replace("127.0.0.1:0", "0.0.0.0:0"))
        with serving(tmp_path) as service:
            for path in (
                "/-/reload",
                "/v1/ingest/generations",
                "/v1/breakers/chat/override",
                "/v1/breakers/chat/a/override",
                "/v1/baselines/bl_x/promote",
            ):
                assert service.post(path, b"{}", content_type="application/json")[0] == 403, path
            assert service.post("/v1/admit/chat", b"")[0] == 200


def test_a_bad_configuration_prints_every_problem_and_starts_nothing(tmp_path: Path) -> None:
    (tmp_path / "fusewire.yaml").write_text("modee: observe\ntiers:\n  chat:\n    targets: []\n")

    process = spawn(tmp_path)

    assert process.wait(timeout=30) == 2
    log = (tmp_path / "serve.log").read_text()
    assert "modee" in log
    assert "'mode'" in log or "mode" in log
    assert "targets" in log
    assert not (tmp_path / "fusewire.db").exists()


def test_a_followed_file_is_read_once_over_restarts(tmp_path: Path) -> None:
    record = {
        "request": {"model": "m", "prompt": "one two three"},
        "response": {
            "choices": [{"index": 0, "text": "four", "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 3, "completion_tokens": 1},
        },
    }
    log = tmp_path / "generations.jsonl"
    log.write_bytes(b"".join(json.dumps(record).encode() + b"\n" for _ in range(20)))
    with engine(CALM) as a:
        configure(
            tmp_path, [a], more="\ningest:\n  files:\n    - {path: generations.jsonl, tier: chat}\n"
        )

        def accepted(service: Serving) -> float:
            lines = [
                line
                for line in service.text("/metrics").splitlines()
                if line.startswith("fusewire_generations_accepted_total{")
            ]
            return sum(float(line.rpartition(" ")[2]) for line in lines)

        with serving(tmp_path) as service:
            until(lambda: accepted(service) == 20, seconds=15)
            assert service.stop() == 0
        with log.open("ab") as more:
            more.write(json.dumps(record).encode() + b"\n")
        with serving(tmp_path) as service:
            until(lambda: accepted(service) == 1, seconds=15)
            time.sleep(1.0)
            assert accepted(service) == 1


def test_the_harness_itself_starts_what_it_says(tmp_path: Path) -> None:
    with engine(CALM) as a:
        configure(tmp_path, [a])
        service = start(tmp_path)
        try:
            assert service.text("/-/healthy") == "Fusewire is alive.\n"
        finally:
            assert service.stop() == 0


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
            assert "fusewire_journal_writable 1.0" in service.text("/metrics")
