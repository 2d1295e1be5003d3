"""Processes that host the allocator probe, as somebody's server would, and a torch for them."""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from exporters.embed import allocator_probe

PROBE = Path(allocator_probe.__file__)
PATIENCE_SECONDS = 20.0
WITHOUT_USE = "torch_not_loaded" if importlib.util.find_spec("torch") else "torch_missing"

HOST = """
import importlib.util, sys
def load(name="fusewire_allocator_probe", path=sys.argv[1]):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
sys.path[:0] = sys.argv[2:]
for line in sys.stdin:
    exec(line)
    print("done", flush=True)
"""

FAKE_TORCH = '''
"""Two devices of a torch that was never built: figures, and a list of what was asked."""
import types
__version__ = "2.11.0+cu128"
version = types.SimpleNamespace(cuda="12.8", hip=None)
GIB = 1 << 30
asked = []
def stats(scale, **more):
    return {
        "allocated_bytes.all.current": 10 * GIB * scale,
        "reserved_bytes.all.current": 16 * GIB * scale,
        "reserved_bytes.all.peak": 20 * GIB * scale, "active_bytes.all.current": 11 * GIB * scale,
        "inactive_split_bytes.all.current": 3 * GIB * scale,
        "requested_bytes.all.current": 9 * GIB * scale, "num_alloc_retries": 5 * scale,
        "num_ooms": 1 * scale, **more,
    }
class cuda:
    ready = True
    devices = [stats(1), stats(2), stats(0)]
    segments = [
        {"device": 0, "segment_pool_id": (0, 0), "is_expandable": False, "blocks": [
            {"size": 300, "state": "inactive"}, {"size": 900, "state": "active_allocated"},
            {"size": 700, "state": "inactive"}]},
        {"device": 0, "segment_pool_id": (0, 1), "is_expandable": False, "blocks": [
            {"size": 5000, "state": "inactive"}]},
        {"device": 1, "blocks": [{"size": 40, "state": "active_pending_free"}]},
    ]
    @classmethod
    def is_initialized(cls):
        return cls.ready
    @classmethod
    def device_count(cls):
        asked.append("device_count")
        return len(cls.devices)
    @classmethod
    def memory_stats(cls, device):
        asked.append("memory_stats")
        return cls.devices[device]
    @classmethod
    def memory_snapshot(cls):
        asked.append("memory_snapshot")
        return cls.segments
    @classmethod
    def is_available(cls):
        asked.append("is_available")
        return True
'''


class Host:
    """A process that does what it is told, line by line."""

    def __init__(self, process: subprocess.Popen[str], folder: Path) -> None:
        self.process = process
        self.folder = folder

    @property
    def socket(self) -> Path:
        return self.folder / f"{self.process.pid}.sock"

    def do(self, line: str) -> str:
        """Run a line of Python in the process; return what it printed."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        said = ""
        while True:
            text = self.process.stdout.readline()
            assert text, f"the host ended at {line!r}"
            if text == "done\n":
                return said
            said += text

    def page(self) -> str:
        """Return its probe's page."""
        until(self.socket.exists)
        return ask(self.socket)

    def end(self) -> str:
        """Let it end by itself; return what it wrote to stderr."""
        _, errors = self.process.communicate(timeout=PATIENCE_SECONDS)
        return errors


@contextmanager
def a_host(
    folder: Path, *path: Path, python: str = sys.executable, flags: str = "-I", **environ: str
) -> Iterator[Host]:
    """Run a host whose probes put their sockets into `folder`; `path` is put on its path."""
    command = [python, *flags.split(), "-c", HOST, str(PROBE), *map(str, path)]
    known = {name: text for name, text in os.environ.items() if "ALLOC_CONF" not in name}
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**known, "FUSEWIRE_PROBE_DIR": str(folder), **environ},
    )
    try:
        yield Host(process, folder)
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def fake_torch(folder: Path) -> Path:
    """Write a torch with two devices into `folder`, and return the folder."""
    folder.mkdir(exist_ok=True)
    (folder / "torch.py").write_text(FAKE_TORCH)
    return folder


def until(holds: Callable[[], bool]) -> None:
    """Wait until `holds()`."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < deadline, "it did not come to be"
        time.sleep(0.005)


def ask(path: Path | tuple[str, int], request: bytes = b"GET /metrics HTTP/1.1\r\n\r\n") -> str:
    """Send a request to a socket and return the body of the answer."""
    family = socket.AF_UNIX if isinstance(path, Path) else socket.AF_INET
    with socket.socket(family) as caller:
        caller.settimeout(PATIENCE_SECONDS)
        caller.connect(str(path) if isinstance(path, Path) else path)
        caller.sendall(request)
        answer = b""
        while more := caller.recv(65_536):
            answer += more
    head, _, body = answer.partition(b"\r\n\r\n")
    assert not head or f"Content-Length: {len(body)}".encode() in head
    return body.decode()


def values(page: str, family: str) -> Mapping[str, float]:
    """Return a family's values by device (or by state), read with Prometheus' own client."""
    found: dict[str, float] = {}
    for metric in text_string_to_metric_families(page):
        for sample in metric.samples:
            if sample.name == f"fusewire_probe_{family}":
                name = sample.labels.get("device") or sample.labels.get("state", "")
                found[name] = sample.value
    return found


def state(page: str) -> str:
    """Return what the probe found."""
    (found,) = values(page, "state")
    return found
