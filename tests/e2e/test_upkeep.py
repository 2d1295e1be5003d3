"""The whole service as a process: starting, reloading, refusing, and keeping no text."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.error
from pathlib import Path

import pytest

from tests.e2e.harness import (
    CALM,
    Serving,
    configure,
    engine,
    serving,
    spawn,
    start,
    until,
)

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


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
    assert "modee: unknown key; did you mean 'mode'?" in log
    assert "tiers.chat.targets: at least one target, or 'discovery'" in log
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
            tmp_path,
            [a],
            more="\ningest:\n  files:\n"
            "    - {path: generations.jsonl, tier: chat, read_from: start}\n",
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


def test_a_stop_answers_who_waits_for_a_new_state_and_leaves_no_traceback(tmp_path: Path) -> None:
    with engine(CALM) as a:
        configure(tmp_path, [a])
        with serving(tmp_path) as service:
            rev = service.get("/v1/state")
            assert isinstance(rev, dict)
            answers: list[str] = []

            def wait() -> None:
                try:
                    answers.append(service.text(f"/v1/state?after={rev['rev']}&wait=25"))
                except urllib.error.HTTPError as error:
                    answers.append(str(error.code))

            waiting = threading.Thread(target=wait)
            waiting.start()
            time.sleep(0.5)

            assert service.stop() == 0
            waiting.join(timeout=10)

            assert answers == ["304"]
            assert "Traceback" not in service.log
            assert "leaked" not in service.log


def test_a_start_that_fails_leaves_the_snapshot_as_it_was(tmp_path: Path) -> None:
    with engine(CALM) as a:
        configure(tmp_path, [a])
        with serving(tmp_path) as service:
            until(lambda: a.scrapes > 5, seconds=10)
            assert service.stop() == 0
        snapshot = tmp_path / "fusewire.snapshot"
        before = snapshot.read_bytes()
        database = sqlite3.connect(tmp_path / "fusewire.db")
        database.execute("drop table verdict")
        database.commit()
        database.close()

        assert spawn(tmp_path).wait(timeout=30) == 2
        assert snapshot.read_bytes() == before
