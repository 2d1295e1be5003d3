"""Real servers that scrape and store pages: Prometheus and VictoriaMetrics on the loopback."""

from __future__ import annotations

import json
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socket import socket

from tests.parts import need_program

Pages = dict[str, bytes]


@dataclass
class Exporter:
    """Serves pages by their names; a page taken out answers 404."""

    port: int
    pages: Pages = field(default_factory=dict)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def url(self, name: str) -> str:
        return f"http://{self.address}/{name}"


@contextmanager
def exporting(pages: Pages) -> Iterator[Exporter]:
    """Serve `pages` from a thread; changing the dict changes what is served."""
    kept = dict(pages)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = kept.get(self.path.strip("/"))
            self.send_response(404 if body is None else 200)
            openmetrics = body is not None and body.rstrip().endswith(b"# EOF")
            kind = "application/openmetrics-text" if openmetrics else "text/plain"
            version = "1.0.0" if openmetrics else "0.0.4"
            self.send_header("Content-Type", f"{kind}; version={version}; charset=utf-8")
            self.send_header("Content-Length", str(len(body or b"")))
            self.end_headers()
            self.wfile.write(body or b"")

        def log_request(self, code: object = "-", size: object = "-") -> None:
            """Keep quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield Exporter(server.server_address[1], kept)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def free_port() -> int:
    with socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass
class Stored:
    """A running server: `url` is what Fusewire is given."""

    url: str
    config: Path

    def value(self, query: str) -> float | None:
        """Return the first value of a query."""
        found = self.query(query)
        return found[0] if found else None

    def query(self, query: str) -> list[float]:
        form = urllib.parse.urlencode({"query": query, "nocache": "1"}).encode()
        with urllib.request.urlopen(f"{self.url}/api/v1/query", form, timeout=5) as answer:
            result = json.load(answer)["data"]["result"]
        return [float(series["value"][1]) for series in result]

    def wait(self, query: str, count: int, *, seconds: float = 20.0) -> None:
        """Wait until a query finds at least `count` series (none at all for 0)."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = len(self.query(query))
            if (found >= count) if count else (found == 0):
                return
            time.sleep(0.1)
        message = f"{query}: {len(self.query(query))} series after {seconds:g} s, wanted {count}"
        raise AssertionError(message)

    def reload(self, config: str) -> None:
        """Put another scrape configuration into force (Prometheus)."""
        self.config.write_text(config)
        urllib.request.urlopen(
            urllib.request.Request(f"{self.url}/-/reload", method="POST"), timeout=5
        ).close()


def scrape_config(exporter: Exporter, jobs: Mapping[str, str], extra: str = "") -> str:
    """Return a configuration that scrapes each page (job name to page) every second."""
    lines = [extra, "scrape_configs:"]
    for job, page in jobs.items():
        lines += [
            f"- job_name: '{job}'",
            f"  metrics_path: /{page}",
            "  scrape_interval: 1s",
            f"  static_configs: [{{targets: ['{exporter.address}']}}]",
        ]
    return "\n".join(lines) + "\n"


@contextmanager
def prometheus(folder: Path, config: str) -> Iterator[Stored]:
    """Run a real Prometheus in `folder` until the end of the block."""
    program = need_program("prometheus", install="apt-get install prometheus")
    port, file = free_port(), folder / "prometheus.yml"
    file.write_text(config)
    command = [
        program,
        f"--config.file={file}",
        f"--storage.tsdb.path={folder / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--web.enable-lifecycle",
    ]
    with _running(command, folder / "prometheus.log", f"http://127.0.0.1:{port}/-/ready"):
        yield Stored(f"http://127.0.0.1:{port}", file)


@contextmanager
def victoria_metrics(folder: Path, config: str) -> Iterator[Stored]:
    """Run a real VictoriaMetrics in `folder` until the end of the block."""
    program = need_program("victoria-metrics", install="apt-get install victoria-metrics")
    port, file = free_port(), folder / "scrape.yml"
    file.write_text(config)
    command = [
        program,
        f"-storageDataPath={folder / 'vm'}",
        f"-httpListenAddr=127.0.0.1:{port}",
        f"-promscrape.config={file}",
        "-retentionPeriod=1d",
    ]
    with _running(command, folder / "vm.log", f"http://127.0.0.1:{port}/health"):
        yield Stored(f"http://127.0.0.1:{port}", file)


@contextmanager
def _running(command: list[str], log: Path, ready: str) -> Iterator[None]:
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output) as child:
        try:
            _wait_for(ready, child, log)
            yield
        finally:
            child.terminate()
            try:
                child.wait(10)
            except subprocess.TimeoutExpired:
                child.kill()


def _wait_for(url: str, child: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + 20
    while time.monotonic() < end and child.poll() is None:
        try:
            urllib.request.urlopen(url, timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise AssertionError(log.read_text()[-2_000:])
