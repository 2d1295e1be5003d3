"""The real service as a child process, an engine that serves recorded pages, and a gateway."""

from __future__ import annotations

import base64
import contextlib
import http.server
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

READY_SECONDS = 40.0
ROOT = Path(__file__).parents[2]
PAGES = ROOT / "tests" / "fixtures" / "metrics"
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


@dataclass
class Engine:
    """An engine on loopback whose page a test swaps while it runs."""

    page: bytes = b""
    server: http.server.ThreadingHTTPServer | None = None
    scrapes: int = 0

    @property
    def url(self) -> str:
        assert self.server is not None
        return f"http://127.0.0.1:{self.server.server_address[1]}"


@contextlib.contextmanager
def engine(page: bytes) -> Iterator[Engine]:
    """Serve `page` at `/metrics` until the block ends."""
    found = Engine(page)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found.scrapes += 1
            body = found.page
            self.send_response(200)
            self.send_header("content-type", "text/plain; version=1.0.0")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            return

    found.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=found.server.serve_forever, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        found.server.shutdown()
        found.server.server_close()
        thread.join()


def saturated(page: bytes) -> bytes:
    """Return a recorded page with a full KV cache and a queue."""
    text = page.decode()
    text = re.sub(r"(vllm:kv_cache_usage_perc\{[^}]*\}) \S+", r"\1 0.99", text)
    text = re.sub(r"(vllm:num_requests_waiting\{[^}]*\}) \S+", r"\1 40.0", text)
    text = re.sub(r"(vllm:num_requests_running\{[^}]*\}) \S+", r"\1 8.0", text)
    return text.encode()


@dataclass
class Serving:
    """A running `fusewire serve`."""

    folder: Path
    process: subprocess.Popen[bytes]
    url: str = ""
    environ: dict[str, str] = field(default_factory=dict)

    @property
    def log(self) -> str:
        return (self.folder / "serve.log").read_text()

    def get(self, path: str) -> object:
        with urllib.request.urlopen(self.url + path, timeout=10) as answer:
            return json.loads(answer.read())

    def text(self, path: str) -> str:
        with urllib.request.urlopen(self.url + path, timeout=10) as answer:
            found: bytes = answer.read()
            return found.decode()

    def post(self, path: str, body: bytes, **headers: str) -> tuple[int, str]:
        """Post and return the status and the answer's text, errors included."""
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        request = urllib.request.Request(self.url + path, data=body, headers=names, method="POST")
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def list(self, path: str) -> list[dict[str, Any]]:
        found = self.get(path)
        assert isinstance(found, list)
        return found

    def breaker(self, target: str = "") -> dict[str, object]:
        rows = self.get("/v1/breakers")
        assert isinstance(rows, list)
        found: dict[str, object] = next(row for row in rows if row["target"] == target)
        return found

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=30)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(timeout=30)


def start(folder: Path, **environ: str) -> Serving:
    """Start the service on `folder/fusewire.yaml` and wait until it is ready."""
    process = spawn(folder, **environ)
    serving = Serving(folder, process)
    offset = len(serving.log.rpartition("service started")[0]) if "listening" in serving.log else 0

    def listening() -> bool:
        if process.poll() is not None:
            raise AssertionError("the service ended: " + serving.log[-3000:])
        ports = re.findall(r"listening .*port=(\d+)", serving.log[offset:])
        if ports:
            serving.url = f"http://127.0.0.1:{ports[-1]}"
        return bool(ports) and answers(serving.url + "/-/ready")

    until(listening, seconds=READY_SECONDS)
    return serving


def spawn(folder: Path, **environ: str) -> subprocess.Popen[bytes]:
    """Start `fusewire serve` and wait for nothing."""
    log = (folder / "serve.log").open("ab")
    with log:
        log.write(b"--- start\n")
        log.flush()
        return subprocess.Popen(
            [sys.executable, "-m", "collector", "serve", "--config", "fusewire.yaml"],
            cwd=folder,
            stdout=log,
            stderr=log,
            env={**os.environ, **environ},
        )


@contextlib.contextmanager
def serving(folder: Path, **environ: str) -> Iterator[Serving]:
    """Run the service for the length of the block."""
    found = start(folder, **environ)
    try:
        yield found
    finally:
        if found.process.poll() is None:
            found.process.terminate()
            try:
                found.process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                found.kill()


def answers(url: str) -> bool:
    """Return whether a GET gives 200."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def until(condition: Callable[[], object], *, seconds: float) -> None:
    """Wait for a condition; give up with its last value."""
    deadline = time.monotonic() + seconds
    found = condition()
    while not found:
        if time.monotonic() > deadline:
            raise AssertionError(f"not seen within {seconds} s: last {found!r}")
        time.sleep(0.05)
        found = condition()


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

    def last(self, target: str) -> dict[str, object]:
        """Return the newest state of a target that came, by (epoch, seq)."""
        states = [json.loads(body)["data"] for _, body in list(self.got)]
        mine = [state for state in states if (state["target"] or {}).get("id") == target]
        found: dict[str, object] = max(mine, key=lambda s: (s["epoch"], s["seq"]), default={})
        return found


@contextlib.contextmanager
def receiver() -> Iterator[Receiver]:
    found = Receiver()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers["content-length"])
            body = self.rfile.read(length)
            if len(body) != length:  # the sender was killed in the midst of it
                self.close_connection = True
                return
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
