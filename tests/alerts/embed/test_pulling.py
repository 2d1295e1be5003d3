"""The thread that pulls the state: it obeys, and nothing that comes ends it."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.alerts.embed.door import Door, a_document


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


OK = b"HTTP/1.1 200 OK\r\n"
DOCUMENT = json.dumps(a_document(3, 0.0)).encode()


@pytest.mark.anyio
@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        OK + b"x" * 70_000 + b"\r\n\r\n",
        OK + b"".join(b"x-%d: y\r\n" % number for number in range(200)) + b"\r\n",
        OK + b"content-length: 100\r\n\r\n{}",
        OK + b"transfer-encoding: chunked\r\n\r\nzz\r\n{}",
        OK + b"\r\n" + b"[" * 100_000,
        OK + b'\r\n{"epoch": 1, "rev": ' + b"9" * 5000 + b"}",
        OK + b"\r\n\xff\xfe",
        b"HTTP/1.1 302 Found\r\nlocation: file:///etc/passwd\r\n\r\n",
        b"HTTP/1.1 500 X\r\n\r\n" + DOCUMENT,
    ],
    ids=[
        "nothing",
        "another protocol",
        "no status",
        "a line without end",
        "headers without end",
        "cut off",
        "bad chunk",
        "depth",
        "a large number",
        "no text",
        "redirect",
        "error",
    ],
)
async def test_nothing_that_comes_ends_the_pulling(answer: bytes) -> None:
    answers = [answer, OK + b"content-length: %d\r\n\r\n" % len(DOCUMENT) + DOCUMENT]
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(5)
        thread = threading.Thread(target=serve_raw, args=(server, answers), daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/v1/state"
        door = Door(lot=-0.99, settings={"secret": "", "state_url": url})  # waits 0.01 s, not 1
        try:
            await door.asked()
            thread.join()
            for _ in range(1000):
                if "documents" not in door.receiver.ledger.counts:
                    threading.Event().wait(0.005)
        finally:
            door.receiver.close()

    assert door.receiver.ledger.counts["documents"] == 1
    assert door.receiver.ledger.counts["pull_failed"] >= 1
    assert door.receiver.admit_ratio() == 0.0


def serve_raw(server: socket.socket, answers: list[bytes]) -> None:
    """Answer each request with the raw bytes of its turn and hang up."""
    for answer in answers:
        with suppress(TimeoutError), server.accept()[0] as connection:
            connection.recv(4096)
            connection.sendall(answer)


@pytest.mark.anyio
async def test_answers_without_news_that_come_at_once_are_not_asked_for_in_a_tight_loop(
    state_url: str,
) -> None:
    StateHandler.told.set()  # a service that is stopping lets everyone go at once
    door = Door(settings={"secret": "", "state_url": state_url})
    try:
        await door.asked()
        threading.Event().wait(0.5)
    finally:
        door.receiver.close()

    assert 2 <= len(StateHandler.asked) <= 8
