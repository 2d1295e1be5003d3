"""Where the receiver runs: workers, WSGI, one file alone without packages."""

from __future__ import annotations

import ast
import io
import json
import shutil
import subprocess
import sys
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import pytest

from alerts.delivery.signing import headers, secret
from alerts.embed import receiver as module
from alerts.embed.receiver import FusewireReceiver, worker_count
from tests.alerts.embed.door import NOW, SECRET, message, the_app, wire

FILE = Path(module.__file__)


@pytest.mark.parametrize(
    ("workers", "environ", "argv", "count"),
    [
        (None, {}, ["uvicorn", "app:app"], 1),
        (None, {"WEB_CONCURRENCY": "4"}, [], 4),
        (None, {}, ["/usr/bin/uvicorn", "app:app", "--workers", "3"], 3),
        (None, {}, ["gunicorn", "-w4", "app:app"], 4),
        (None, {}, ["gunicorn", "--workers=2", "app:app"], 2),
        (None, {"GUNICORN_CMD_ARGS": "-w 5"}, [], 5),
        (None, {}, ["my-tool", "--workers", "9"], 1),
        (1, {"WEB_CONCURRENCY": "4"}, [], 4),  # what is seen is not argued away
        (3, {}, ["uvicorn", "app:app"], 3),
    ],
)
def test_workers_are_counted_as_far_as_they_can_be_seen(
    workers: int | None, environ: dict[str, str], argv: list[str], count: int
) -> None:
    assert worker_count(workers, environ, argv) == count


def test_a_webhook_alone_refuses_several_workers() -> None:
    with pytest.raises(RuntimeError, match="state_url"):
        FusewireReceiver(the_app, tier="chat", secret=SECRET, workers=2)


def test_neither_secret_nor_state_url_is_refused() -> None:
    with pytest.raises(ValueError, match="state_url"):
        FusewireReceiver(the_app, tier="chat")


def test_it_guards_a_wsgi_app_too() -> None:
    statuses: list[str] = []

    def wsgi_app(environ: MutableMapping[str, Any], start_response: Any) -> list[bytes]:
        start_response("200 OK", [])
        return [b"served"]

    guarded = FusewireReceiver(
        wsgi_app, tier="chat", secret=SECRET, workers=1, wall=NOW.timestamp
    ).wsgi
    body = wire(message(1))
    signed = headers([secret(SECRET, where="test")], "msg_1", NOW, body)
    hook = {f"HTTP_{name.upper().replace('-', '_')}": value for name, value in signed.items()}
    hook |= {"PATH_INFO": "/hooks/fusewire", "REQUEST_METHOD": "POST"}
    length = {"CONTENT_LENGTH": str(len(body)), "wsgi.input": io.BytesIO(body)}

    def start(status: str, _headers: object) -> None:
        statuses.append(status[:3])

    before = b"".join(guarded({"PATH_INFO": "/v1/chat", "REQUEST_METHOD": "POST"}, start))
    told = b"".join(guarded({**hook, **length}, start))
    after = b"".join(guarded({"PATH_INFO": "/v1/chat", "REQUEST_METHOD": "POST"}, start))

    assert statuses == ["200", "200", "503"]
    assert before == b"served"
    assert json.loads(told)["applied"] is True
    assert b"overloaded_error" in after


BARE = """
import asyncio, runpy, sys
assert not any("main" in path or "site-packages" in path for path in sys.path), sys.path
module = runpy.run_path(sys.argv[1])
async def app(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})
guarded = module["FusewireReceiver"](app, tier="chat", secret="whsec_" + "QUJD" * 8, workers=1)
sent = []
async def send(message):
    sent.append(message)
async def receive():
    return {"type": "http.request", "body": b""}
scope = {"type": "http", "path": "/v1/x", "method": "POST", "headers": []}
asyncio.run(guarded(scope, receive, send))
guarded.ledger.apply({"tier": "chat", "epoch": 1, "seq": 1, "admit_ratio": 0.0,
                      "retry_after_seconds": 9, "lease": {"seconds": 60}})
asyncio.run(guarded(scope, receive, send))
print([message.get("status") for message in sent])
"""


def old_python() -> str | None:
    """Return a Python 3.9 that runs, if this machine has one."""
    found = shutil.which("python3.9")
    if found is None:
        return None
    works = subprocess.run([found, "-c", ""], capture_output=True, check=False)
    return found if works.returncode == 0 else None


def test_it_runs_alone_without_fusewire_and_without_packages(tmp_path: Path) -> None:
    copied = tmp_path / "receiver.py"
    shutil.copy(FILE, copied)
    ast.parse(copied.read_text(), feature_version=(3, 9))

    for python in filter(None, [sys.executable, old_python()]):
        command = [python, "-I", "-S", "-c", BARE, str(copied)]
        ran = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
        assert (ran.stdout.strip(), ran.stderr) == ("[200, None, 503, None]", "")
