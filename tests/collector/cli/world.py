"""What the command line meets in tests: a configuration, a store, and a service that answers."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from click.testing import CliRunner, Result
from sqlalchemy.orm import Session

from alerts.breaker.records import Breaker, Cause, Key, State, Transition
from collector.cli.root import fusewire
from collector.config import load
from collector.store import audit, breakers
from collector.store.migration import migrate
from collector.store.session import dispose, make_writer, parse_url
from tests.builders import START

SILENT_PORT = 1  # nothing listens there
CONFIG = """\
listen: 127.0.0.1:{port}
tiers:
  chat:
    targets: [http://127.0.0.1:8000, {{id: b, url: "http://127.0.0.1:8001"}}]
    segments: [free]
    baseline: {{requests: 200}}
  code:
    targets: [{{id: c, url: "http://127.0.0.1:8002"}}]
"""


@dataclass
class World:
    """A folder with a configuration; `run` runs a command on it."""

    folder: Path

    @property
    def config(self) -> Path:
        return self.folder / "fusewire.yaml"

    @property
    def url(self) -> str:
        return f"sqlite:///{self.folder}/fusewire.db"

    def run(self, *arguments: str) -> Result:
        return CliRunner().invoke(fusewire, arguments, env={"FUSEWIRE_CONFIG": str(self.config)})


def a_world(folder: Path, *, port: int = SILENT_PORT, store: bool = True, extra: str = "") -> World:
    """Write the configuration, and make an empty store."""
    world = World(folder)
    world.config.write_text(CONFIG.format(port=port) + extra, encoding="utf-8")
    load(world.config, {})
    if store:
        migrate(world.url)
    return world


@contextmanager
def writing(world: World) -> Iterator[Session]:
    """Write to the world's store in one transaction."""
    engine = make_writer(parse_url(world.url))
    try:
        with Session(engine) as session, session.begin():
            yield session
    finally:
        dispose(engine)


def an_open_breaker(world: World, *, rows: int = 1) -> None:
    """Let target b of chat be open, with so many more rows of audit, a second apart."""
    key = Key("chat", "b")
    cause = Cause("kv_cache_saturated", "soft", "0.99, trip at 0.95, 3 of the last 5")
    before = Breaker(key)
    after = Breaker(key, State.OPEN, admit_ratio=0.0, changed_at=START, epoch=1, seq=1, cause=cause)
    with writing(world) as session:
        breakers.put(session, after)
        had = audit.verify(session).rows
        moments = [START + timedelta(seconds=had + number) for number in range(rows)]
        opens = [Transition(key, "open", at, "auto", before, after, cause.reason) for at in moments]
        audit.append(session, opens)


@dataclass
class FakeService:
    """A service whose answers are set; it notes what it was asked.

    It says that it is the service of `CONFIG`, unless its answer to `/v1/state` is set anew.
    """

    port: int = 0
    answers: dict[str, tuple[int, object]] = field(
        default_factory=lambda: {"/v1/state": (200, state_answer())}
    )
    asked: list[tuple[str, str, object, str]] = field(default_factory=list)

    @property
    def changes(self) -> list[tuple[str, str, object, str]]:
        """What it was asked to change."""
        return [one for one in self.asked if one[0] == "POST"]


def state_answer(*tiers: str, controller: str = "fusewire", mode: str = "enforce") -> object:
    """Return who a service says that it is; `tiers` are those of `CONFIG` if none is named."""
    return {
        "controller": controller,
        "epoch": 1,
        "tiers": [{"id": tier, "mode": mode} for tier in tiers or ("chat", "code")],
    }


@contextmanager
def a_service() -> Iterator[FakeService]:
    """Serve on a free port of the loopback until the end of the block."""
    service = FakeService()

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            size = int(self.headers.get("content-length") or 0)
            body = json.loads(self.rfile.read(size)) if size else None
            token = self.headers.get("authorization", "")
            service.asked.append((self.command, self.path, body, token))
            path = self.path.partition("?")[0]
            status, answer = service.answers.get(path, (404, {"detail": f"no {path}"}))
            content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = _answer  # noqa: N815  # the names that http.server looks for

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # its name there
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    service.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield service
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def breaker_answer(**changes: object) -> dict[str, object]:
    """Return a breaker as the service answers."""
    answer: dict[str, object] = {
        "tier": "chat",
        "target": "b",
        "state": "closed",
        "shown_state": "closed",
        "admit_ratio": 1.0,
        "effective_ratio": 1.0,
        "trip_level": 0,
        "changed_at": None,
        "open_until": None,
        "lease_expires_at": None,
        "epoch": 1,
        "seq": 1,
        "cause": None,
        "override": None,
    }
    return answer | changes
