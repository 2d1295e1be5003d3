"""The receiver: newest wins in any order, its own lease, 503 as OpenAI says it, one file alone."""

from __future__ import annotations

import ast
import io
import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alerts.delivery.signing import headers, secret
from alerts.embed import receiver as module
from alerts.embed.receiver import FusewireReceiver, Ledger, worker_count

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OLD_SECRET = "whsec_" + "QUJD" * 8
NOW = datetime(2026, 11, 29, 15, 26, 40, tzinfo=UTC)
FILE = Path(module.__file__)


@dataclass
class Clock:
    at: float = 1000.0

    def __call__(self) -> float:
        return self.at


async def the_app(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"served"})


@dataclass
class Door:
    """A receiver around an app, and a client in front of it."""

    clock: Clock = field(default_factory=Clock)
    lot: float = 0.5
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        settings = {"secret": SECRET, "workers": 1, **self.settings}
        self.receiver = FusewireReceiver(
            the_app,
            tier="chat",
            monotonic=self.clock,
            wall=NOW.timestamp,
            uniform=lambda low, high: low + (high - low) * self.lot,
            **settings,
        )
        transport = httpx2.ASGITransport(app=self.receiver)
        self.client = httpx2.AsyncClient(transport=transport, base_url="http://gateway")

    async def told(
        self, body: bytes, *, with_secret: str = SECRET, at: datetime = NOW
    ) -> httpx2.Response:
        signed = headers([secret(with_secret, where="test")], "msg_1", at, body)
        return await self.client.post("/hooks/fusewire", content=body, headers=signed)

    async def asked(self, path: str = "/v1/chat/completions") -> httpx2.Response:
        return await self.client.post(path, content=b"{}")


def message(
    seq: int,
    ratio: float = 0.0,
    *,
    epoch: int = 1,
    target: str = "",
    lease_seconds: float = 60,
    **data: object,
) -> dict[str, Any]:
    return {
        "schema": 1,
        "controller": "fw",
        "epoch": epoch,
        "seq": seq,
        "tier": "chat",
        "target": {"id": target, "address": "10.0.0.1:8000"} if target else None,
        "state": "open",
        "admit_ratio": ratio,
        "retry_after_seconds": 20,
        "lease": {"seconds": lease_seconds} if ratio < 1 else None,
        **data,
    }


def wire(data: Mapping[str, object]) -> bytes:
    return json.dumps({"type": "fusewire.breaker.open", "data": data}).encode()


@pytest.mark.anyio
async def test_a_closed_tier_answers_503_as_openai_does_with_a_spread_retry_after() -> None:
    door = Door()
    await door.told(wire(message(1)))

    answer = await door.asked()

    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "20"
    assert answer.json()["error"]["code"] == "fusewire_breaker_open"
    assert answer.json()["error"]["type"] == "overloaded_error"
    assert door.receiver.ledger.counts["denied"] == 1


@pytest.mark.anyio
async def test_an_applied_message_is_confirmed_with_its_numbers() -> None:
    door = Door()

    answer = await door.told(wire(message(7, 0.25, epoch=3)))

    assert answer.status_code == 200
    assert answer.json() == {"applied": True, "epoch": 3, "seq": 7, "admit_ratio": 0.25}
    assert door.receiver.admit_ratio() == 0.25


@pytest.mark.anyio
@pytest.mark.parametrize(("lot", "status"), [(0.2, 200), (0.3, 503)])
async def test_the_admit_ratio_is_the_share_that_is_served(lot: float, status: int) -> None:
    door = Door(lot=lot)
    await door.told(wire(message(1, 0.25)))

    assert (await door.asked()).status_code == status


@pytest.mark.anyio
async def test_without_renewal_everything_is_served_once_the_lease_has_ended() -> None:
    door = Door()
    await door.told(wire(message(1, 0.0, lease_seconds=60)))
    door.clock.at += 59.9
    before = await door.asked()

    door.clock.at += 0.2
    after = await door.asked()

    assert (before.status_code, after.status_code) == (503, 200)
    assert door.receiver.ledger.counts["lease_lapsed"] == 1


@pytest.mark.anyio
async def test_a_repeated_message_does_not_renew_the_lease() -> None:
    door = Door()
    body = wire(message(1))
    await door.told(body)
    door.clock.at += 50

    repeated = await door.told(body)
    door.clock.at += 11

    assert repeated.json()["applied"] is True
    assert (await door.asked()).status_code == 200


@pytest.mark.anyio
async def test_an_older_message_is_refused_with_the_newer_numbers() -> None:
    door = Door()
    await door.told(wire(message(5, 1.0, epoch=2)))

    answer = await door.told(wire(message(99, 0.0, epoch=1)))

    assert answer.status_code == 409
    assert answer.json()["current"] == {"epoch": 2, "seq": 5, "controller": "fw"}
    assert door.receiver.admit_ratio() == 1.0


@pytest.mark.anyio
async def test_two_controllers_are_both_obeyed_the_stricter_one_decides() -> None:
    door = Door()
    await door.told(wire(message(1, 0.5)))
    await door.told(wire(message(1, 0.2, controller="other")))

    assert door.receiver.admit_ratio() == 0.2


@pytest.mark.anyio
async def test_ratios_of_targets_serve_the_apps_own_balancing() -> None:
    door = Door()
    await door.told(wire(message(1, 0.0, target="a")))
    await door.told(wire(message(1, 1.0, target="b")))

    assert door.receiver.ratios() == {"a": 0.0, "b": 1.0}
    assert (await door.asked()).status_code == 200  # a target's breaker does not close the tier


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("body", "with_secret", "minutes", "status"),
    [
        (wire(message(1)), OLD_SECRET, 0, 401),
        (wire(message(1)), SECRET, 6, 401),
        (b"not json", SECRET, 0, 400),
        (b'{"data": {"tier": "chat"}}', SECRET, 0, 400),
        (b"[" * 10_000, SECRET, 0, 400),
        (wire(message(1, tier="other")), SECRET, 0, 202),
        (wire(message(1, dry_run=True)), SECRET, 0, 202),
        (b"x" * (64 * 1024 + 1), SECRET, 0, 413),
    ],
    ids=["secret", "time", "text", "empty", "depth", "tier", "dry run", "size"],
)
async def test_what_is_not_for_it_changes_nothing(
    body: bytes, with_secret: str, minutes: int, status: int
) -> None:
    door = Door()

    at = NOW.replace(minute=NOW.minute + minutes)
    answer = await door.told(body, with_secret=with_secret, at=at)

    assert answer.status_code == status
    assert door.receiver.admit_ratio() == 1.0


@pytest.mark.anyio
async def test_a_rotated_secret_is_taken_beside_the_new_one() -> None:
    door = Door(settings={"previous_secret": OLD_SECRET})

    answer = await door.told(wire(message(1)), with_secret=OLD_SECRET)

    assert answer.status_code == 200


@pytest.mark.anyio
async def test_the_state_can_be_read_back() -> None:
    door = Door()
    await door.told(wire(message(4, 0.5)))
    await door.told(wire(message(2, 0.0, target="a")))

    state = (await door.client.get("/hooks/fusewire")).json()

    assert (state["tier"], state["admit_ratio"]) == ("chat", [0.5, 1, 4])
    assert state["targets"] == {"a": [0.0, 1, 2]}


@pytest.mark.anyio
async def test_only_guarded_paths_are_refused() -> None:
    door = Door(settings={"prefixes": ("/v1/",)})
    await door.told(wire(message(1)))

    assert (await door.asked("/health")).status_code == 200
    assert (await door.asked("/v1/completions")).status_code == 503


@pytest.mark.anyio
@pytest.mark.parametrize("ratio", [float("nan"), None, "0", True, -5, 10**400])
async def test_a_ratio_that_makes_no_sense_never_goes_outside_zero_to_one(ratio: object) -> None:
    door = Door()

    await door.told(wire(message(1, admit_ratio=ratio)))

    assert door.receiver.admit_ratio() == (0.0 if ratio == -5 else 1.0)


EVENTS = st.tuples(
    st.integers(min_value=1, max_value=3),
    st.integers(min_value=1, max_value=20),
)


@settings(deadline=None)  # the machine may be busy
@given(st.lists(EVENTS, unique=True, min_size=1, max_size=12).flatmap(st.permutations), st.data())
def test_any_order_loss_or_repetition_leaves_the_highest_numbers(
    events: list[tuple[int, int]], data: st.DataObject
) -> None:
    """I4, and I2: silence for a lease lets everything in."""
    clock = Clock()
    ledger = Ledger(clock)
    lost = data.draw(st.sets(st.sampled_from(events), max_size=len(events) - 1))
    arrived = [event for event in events if event not in lost]
    repeated = arrived + data.draw(st.lists(st.sampled_from(arrived), max_size=6))

    for epoch, seq in repeated:
        ledger.apply(message(seq, (epoch * 20 + seq) / 100, epoch=epoch, lease_seconds=60))

    epoch, seq = max(arrived)
    held = ledger.of_tier()
    assert (held.epoch, held.seq, held.ratio) == (epoch, seq, (epoch * 20 + seq) / 100)
    clock.at += 60
    assert ledger.of_tier().ratio == 1.0


def a_document(rev: int, ratio: float, *, epoch: int = 1, ttl: float = 60) -> dict[str, Any]:
    row = {"epoch": epoch, "seq": rev, "admit_ratio": ratio, "retry_after_seconds": 5}
    return {
        "controller": "fw",
        "epoch": epoch,
        "rev": rev,
        "ttl_seconds": ttl,
        "tiers": [{"id": "chat", **row}, {"id": "code", **row, "admit_ratio": 0.1}],
        "targets": [{"id": "a", "tier": "chat", **row}, {"id": "a", "tier": "code", **row}],
    }


def test_a_document_replaces_all_that_its_controller_said() -> None:
    ledger = Ledger(Clock())
    ledger.apply(message(1, 0.0, target="gone"))

    assert ledger.take(a_document(3, 0.5), "chat")
    assert not ledger.take(a_document(2, 1.0), "chat")

    assert {name: held.ratio for name, held in ledger.strictest().items()} == {"": 0.5, "a": 0.5}


def test_a_document_that_is_not_renewed_lets_everything_in_after_its_ttl() -> None:
    clock = Clock()
    ledger = Ledger(clock)
    ledger.take(a_document(3, 0.5, ttl=40), "chat")

    clock.at += 40

    assert ledger.of_tier().ratio == 1.0


@pytest.mark.parametrize("document", [{}, {"epoch": 1, "rev": 2, "tiers": 7, "targets": [4]}])
def test_a_strange_document_withholds_nothing(document: dict[str, Any]) -> None:
    ledger = Ledger(Clock())

    ledger.take(document, "chat")

    assert ledger.of_tier().ratio == 1.0


class StateHandler(BaseHTTPRequestHandler):
    asked: list[str]
    document: dict[str, Any]
    told = threading.Event()

    def do_GET(self) -> None:
        self.asked.append(f"{self.path} {self.headers.get('authorization')}")
        if "after=" in self.path:
            self.told.wait(5)
            self.send_response(304)
            self.end_headers()
            return
        body = json.dumps(self.document).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_args: object) -> None:
        return


@pytest.fixture
def state_url() -> Iterator[str]:
    StateHandler.asked, StateHandler.document = [], a_document(3, 0.0)
    StateHandler.told.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), StateHandler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/v1/state"
    StateHandler.told.set()
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.anyio
async def test_each_worker_pulls_the_state_and_obeys_it(state_url: str) -> None:
    settings = {"secret": "", "state_url": state_url, "state_token": "t", "workers": 4}
    door = Door(settings=settings)
    try:
        await door.asked()
        waited = threading.Event()
        while len(StateHandler.asked) < 2:
            waited.wait(0.01)

        assert (await door.asked()).status_code == 503
        assert StateHandler.asked == [
            "/v1/state Bearer t",
            "/v1/state?after=3&wait=25 Bearer t",
        ]
    finally:
        door.receiver.close()
        StateHandler.told.set()


@pytest.mark.anyio
async def test_without_fusewire_the_app_serves_and_the_failure_is_counted() -> None:
    door = Door(settings={"secret": "", "state_url": "http://127.0.0.1:1/v1/state"})
    try:
        while "pull_failed" not in door.receiver.ledger.counts:
            assert (await door.asked()).status_code == 200
    finally:
        door.receiver.close()


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
        (1, {"WEB_CONCURRENCY": "4"}, [], 1),
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
