"""The real service and what it reads or is sent, each a process of its own, for the benchmarks."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Looked:
    """What the sampler in the service's loop and the kernel said at one moment."""

    at: float
    loop_cpu_seconds: float
    workers_cpu_seconds: float
    rss_bytes: int
    worst_seconds: float
    worst_computed_seconds: float
    turns: int
    over_five: int
    computed_over_five: int
    reads_started: int
    scrapes_started: int
    started_late_p99_seconds: float
    started_late_most_seconds: float
    collection_most_seconds: float


@dataclass
class Served:
    """A running service."""

    process: subprocess.Popen[bytes]
    port: int
    report: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def look(self) -> Looked:
        found = json.loads(self.report.read_text())
        edge = found["edges"].index(0.005)
        return Looked(
            at=time.monotonic(),
            loop_cpu_seconds=found["cpu_seconds"],
            workers_cpu_seconds=sum(map(cpu_of, children_of(self.process.pid))),
            rss_bytes=found["rss_bytes"],
            worst_seconds=found["worst_seconds"],
            worst_computed_seconds=found["worst_computed_seconds"],
            turns=found["turns"],
            over_five=found["late"][edge],
            computed_over_five=found["computed"][edge],
            reads_started=found["reads_started"],
            scrapes_started=found["scrapes_started"],
            started_late_p99_seconds=found["started_late_p99_seconds"],
            started_late_most_seconds=found["started_late_most_seconds"],
            collection_most_seconds=found["collection_most_seconds"],
        )

    def clear(self) -> None:
        """Let the sampler forget the start, then wait for its next report."""
        mark = self.report.with_suffix(".clear")
        mark.touch()
        while mark.exists():
            time.sleep(0.05)
        time.sleep(1.5)

    def metrics(self) -> str:
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=120) as answer:
            text: str = answer.read().decode()
        return text


def samples(page: str, name: str) -> list[float]:
    """Return the values of a metric's series."""
    found = re.findall(rf"^{name}(?:{{[^}}]*}})? (\S+)$", page, re.MULTILINE)
    return [float(value) for value in found]


def children_of(pid: int) -> list[int]:
    return list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


def cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


@contextlib.contextmanager
def service(folder: Path, tiers: str) -> Iterator[Served]:
    """Run `fusewire serve` under its sampler until the block ends."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    head = f"listen: 127.0.0.1:{port}\nstore: sqlite:///{folder}/f.db\nseries_limit: 1000000\n"
    config = folder / "fusewire.yaml"
    config.write_text(head + tiers)
    served_log = (folder / "log").open("wb")
    command = [
        sys.executable,
        "-m",
        "tests.bench.watched_serve",
        str(config),
        str(folder / "report"),
    ]
    process = subprocess.Popen(command, cwd=ROOT, stdout=served_log, stderr=subprocess.STDOUT)
    found = Served(process, port, folder / "report")
    try:
        _wait(found)
        yield found
    finally:
        process.terminate()
        process.wait(30)
        served_log.close()


def _wait(found: Served) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        with contextlib.suppress(OSError):
            urllib.request.urlopen(f"{found.url}/-/ready", timeout=5).close()
            return
        assert found.process.poll() is None, "the service ended at its start; see its log"
        time.sleep(0.2)
    msg = "the service was not ready within a minute"
    raise AssertionError(msg)


@contextlib.contextmanager
def engines(page: Path, count: int) -> Iterator[list[int]]:
    """Serve `page` on `count` ports until the block ends."""
    command = [sys.executable, "-m", "tests.bench.fleet", str(page), str(count)]
    process = subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        ports: list[int] = json.loads(process.stdout.readline())
        yield ports
    finally:
        process.stdin.close()
        process.wait(10)
        process.stdout.close()
