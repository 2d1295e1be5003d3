"""Fusewire's allocator probe: what PyTorch's caching allocator holds in this process, over HTTP.

One file, standard library only, Python 3.9 or newer. Saved as `fusewire_allocator_probe.py` it
starts when it is imported; under any other name call `start()`. It is set by the environment:

    FUSEWIRE_PROBE_ADDRESS    127.0.0.1:9733 (the default), 127.0.0.1:0 or unix:/path/to.sock
    FUSEWIRE_PROBE_DIR        a folder for each process's own PID.sock; of a TCP address PID.port
    FUSEWIRE_PROBE_SNAPSHOT   1 measures the largest free block, too, at most once a minute
    FUSEWIRE_PROBE            0 switches the probe off

One daemon thread answers one request after the other. It never imports torch and never initialises
CUDA: it looks at what the process has done by itself, and says so where that is nothing.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import importlib.util
import ipaddress
import logging
import os
import re
import socket
import sys
import tempfile
import threading
import time
from collections import ChainMap
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import NamedTuple, Optional

REQUEST_SECONDS, REQUEST_MOST = 2.0, 8192  # of one client
RETRY_SECONDS, SNAPSHOT_SECONDS, SNAPSHOT_SHARE = 5.0, 60.0, 0.01  # least waits; share of time
DEVICES_MOST, FILES_MOST, CONF_MOST, PORT_MOST = 64, 1000, 512, 65_535
CONF_VARIABLES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")
# what a half-imported, broken or very new torch may raise where its figures are asked for
_TROUBLE = (
    *(ArithmeticError, AssertionError, AttributeError, ImportError, LookupError, MemoryError),
    *(NameError, OSError, RuntimeError, SystemError, TypeError, ValueError),
)
_MARK = "_fusewire_probe"  # on `sys`, which all copies of this file share
_NOW = "_bytes.all.current"
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_FAMILIES = {  # family, to its type, its help, and torch's name of a device's figure
    "info": ("gauge", "The process and its torch; run changes with every start of the probe.", ""),
    "state": ("gauge", "1 for what was found: cuda, cuda_not_initialized, no_cuda, ...", ""),
    "cuda_available": ("gauge", "1 if CUDA or HIP is in use, 0 if torch has none, or absent.", ""),
    "allocator_conf": ("gauge", "Settings of the allocator, and which variable has them.", ""),
    "allocated_bytes": ("gauge", "Bytes in live tensors.", f"allocated{_NOW}"),
    "reserved_bytes": ("gauge", "Bytes held from the driver.", f"reserved{_NOW}"),
    "active_bytes": ("gauge", "Bytes allocated, or waiting for a stream.", f"active{_NOW}"),
    "inactive_split_bytes": ("gauge", "Free pieces of split segments.", f"inactive_split{_NOW}"),
    "requested_bytes": ("gauge", "Bytes asked for, before rounding.", f"requested{_NOW}"),
    "retries_total": ("counter", "Flushes after a failed allocation.", "num_alloc_retries"),
    "ooms_total": ("counter", "Out-of-memory errors raised.", "num_ooms"),
    "snapshot_enabled": ("gauge", "1 if the largest free block is measured.", ""),
    "snapshot_seconds": ("gauge", "How long the last snapshot took.", ""),
    "snapshot_age_seconds": ("gauge", "How old the last snapshot is.", ""),
    "largest_free_bytes": ("gauge", "Largest free block outside private pools.", ""),
    "expandable_segments": ("gauge", "1 if the snapshot has expandable segments.", ""),
    "scrapes_total": ("counter", "Pages made.", ""),
    "scrape_seconds": ("gauge", "How long the figures of this page took.", ""),
}


class Sample(NamedTuple):
    """One line of the page."""

    family: str
    value: float
    labels: Mapping[str, str] = {}


class Figures:
    """The figures of this process, as Prometheus text."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._closer = environ.get("FUSEWIRE_PROBE_SNAPSHOT") == "1"
        self._run = os.urandom(4).hex()
        self._scrapes = 0
        self._looked: Optional[tuple[float, float, list[Sample]]] = None  # when, how long, what

    def page(self) -> str:
        """Return the page; what cannot be had is the state `failed`."""
        started = time.monotonic()
        self._scrapes += 1
        found: list[Sample] = []
        state = "failed"
        with contextlib.suppress(*_TROUBLE):
            found.append(Sample("info", 1, {"run": self._run, **_versions()}))
            seen = _state()
            found += _settings(self._environ, seen)
            found += _by_device(sys.modules["torch"], self._environ) if seen == "cuda" else []
            state = seen
        found += [Sample("cuda_available", state == "cuda")] * (state in ("cuda", "no_cuda"))
        if self._looked is not None:
            at, took, blocks = self._looked
            age = Sample("snapshot_age_seconds", time.monotonic() - at)
            found += [*blocks, Sample("snapshot_seconds", took), age]
        found += [Sample("state", 1, {"state": state}), Sample("snapshot_enabled", self._closer)]
        cost = Sample("scrape_seconds", time.monotonic() - started)
        return _text([*found, Sample("scrapes_total", self._scrapes), cost])

    def look_closer(self) -> None:
        """Take a snapshot if one is wanted and due; it holds the allocator up for a while."""
        now = time.monotonic()
        at, took, _ = self._looked or (float("-inf"), 0.0, [])
        if not self._closer or now - at < max(SNAPSHOT_SECONDS, took / SNAPSHOT_SHARE):
            return
        seen: list[Sample] = []
        with contextlib.suppress(*_TROUBLE):
            if _state() != "cuda":
                return
            seen += _free_blocks(sys.modules["torch"], self._environ)
        self._looked = (now, time.monotonic() - now, seen)


def _state() -> str:
    """Say what torch is in this process, without importing it or touching a GPU."""
    torch = sys.modules.get("torch")
    if torch is None:
        return "torch_not_loaded" if importlib.util.find_spec("torch") else "torch_missing"
    if getattr(torch, "cuda", None) is None or getattr(torch, "version", None) is None:
        return "torch_not_loaded"  # its import is going on
    if not torch.version.cuda and not getattr(torch.version, "hip", None):
        return "no_cuda"
    # torch.cuda.is_available may initialise the driver: workers that are forked then have no CUDA
    return "cuda" if torch.cuda.is_initialized() else "cuda_not_initialized"


def _versions() -> dict[str, str]:
    torch = sys.modules.get("torch")
    version = getattr(torch, "version", None)
    of_gpus = {it: str(getattr(version, it, None) or "") for it in ("cuda", "hip")}
    return {"torch": str(getattr(torch, "__version__", "")), **of_gpus}


def _settings(environ: Mapping[str, str], state: str) -> Iterator[Sample]:
    """Yield the allocator's settings: of each variable, and of torch where it tells them."""
    said = {name: environ[name] for name in CONF_VARIABLES if environ.get(name)}
    inner = getattr(sys.modules.get("torch"), "_C", None)
    ask = getattr(inner, "_accelerator_getAllocatorSettings", None)  # torch 2.9 or newer
    if state == "cuda" and ask is not None:
        with contextlib.suppress(*_TROUBLE):
            said["torch"] = str(ask())
    for source, conf in said.items():
        options = parse_conf(conf)
        told = ("expandable_segments", "max_split_size_mb")
        labels = {name: options.get(name, "").lower() for name in told}
        yield Sample("allocator_conf", 1, {"source": source, "conf": conf[:CONF_MOST], **labels})


def parse_conf(conf: str) -> dict[str, str]:
    """Return the options of a setting like `a:True,b:[256:1,512:2]`, the last of equals."""
    pairs = (part.partition(":") for part in re.split(r",(?![^\[]*\])", conf))
    return {name.strip(): value.strip() for name, colon, value in pairs if colon}


def _by_device(torch: ModuleType, environ: Mapping[str, str]) -> Iterator[Sample]:
    """Yield the figures of every device that this process has used."""
    for index in range(min(torch.cuda.device_count(), DEVICES_MOST)):
        stats = torch.cuda.memory_stats(index)
        used = ("reserved_bytes.all.peak", "num_alloc_retries", "num_ooms")
        if not any(stats.get(key) for key in used):
            continue
        labels = {"device": _device(index, environ)}
        for family, (_, _, key) in _FAMILIES.items():
            if key and key in stats:
                yield Sample(family, stats[key], labels)


def _device(index: int, environ: Mapping[str, str]) -> str:
    """Return the device's name outside this process, as far as the environment tells it."""
    visible = environ.get("CUDA_VISIBLE_DEVICES") or environ.get("HIP_VISIBLE_DEVICES") or ""
    names = [name.strip() for name in visible.split(",")]
    return names[index] if index < len(names) and names[index] else str(index)


def _free_blocks(torch: ModuleType, environ: Mapping[str, str]) -> Iterator[Sample]:
    """Yield by device the largest free block that any allocation may have."""
    try:
        segments = torch.cuda.memory_snapshot(include_traces=False)
    except TypeError:  # an older torch
        segments = torch.cuda.memory_snapshot()
    largest: dict[int, int] = {}
    for segment in segments:
        private = tuple(segment.get("segment_pool_id", (0, 0))) != (0, 0)  # of CUDA graphs
        free = [it["size"] for it in segment["blocks"] if it["state"] == "inactive"]
        device = segment["device"]
        largest[device] = max([largest.get(device, 0), *([] if private else free)])
    expandable = {it["device"] for it in segments if it.get("is_expandable")}
    for device, size in largest.items():
        labels = {"device": _device(device, environ)}
        yield Sample("largest_free_bytes", size, labels)
        yield Sample("expandable_segments", device in expandable, labels)


def _text(samples: list[Sample]) -> str:
    lines = []
    for family, (kind, help_text, _) in _FAMILIES.items():
        name = f"fusewire_probe_{family}"
        found = [it for it in samples if it.family == family]
        lines += [f"# HELP {name} {help_text}", f"# TYPE {name} {kind}"] if found else []
        for sample in found:
            labels = {"pid": str(os.getpid()), **sample.labels}
            inside = ",".join(f'{key}="{text.translate(_ESCAPES)}"' for key, text in labels.items())
            lines.append(f"{name}{{{inside}}} {float(sample.value)!r}")
    return "\n".join([*lines, ""])


class Probe:
    """The server: one listener, one thread, one client at a time."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._held: Optional[tuple[socket.socket, tuple[int, ...]]] = None  # with its inode
        self._file: Optional[Path] = None  # what this process put into the file system

    def begin(self) -> None:
        """Start the thread; again in a forked child, which has neither thread nor address."""
        if self._held is not None:
            _let_go(*self._held)  # the parent's
        self._held, self._file = None, None
        with contextlib.suppress(RuntimeError, MemoryError):  # no more threads: no probe
            threading.Thread(target=self.run, name="fusewire-probe", daemon=True).start()

    def run(self) -> None:
        """Serve for as long as the process lives; wait while another one has the address."""
        figures = Figures(self._environ)
        while True:
            try:
                self._serve(figures)
            except (OSError, ValueError, AttributeError) as error:  # no AF_UNIX on Windows
                if getattr(error, "errno", 0) != errno.EADDRINUSE:
                    logging.getLogger("fusewire_probe").warning("allocator probe is off: %s", error)
                    return
            time.sleep(RETRY_SECONDS)

    def leave(self) -> None:
        """Take away what this process put into the file system."""
        if self._file is not None:
            _unlink(self._file)

    def _serve(self, figures: Figures) -> None:
        listener = self._listen()
        self._held = listener, os.fstat(listener.fileno())[1:3]
        while True:
            try:
                client, _ = listener.accept()
            except OSError:  # the host closed it, or has no more descriptors
                return _let_go(*self._held)
            with client, contextlib.suppress(OSError):
                _answer(client, figures)
            figures.look_closer()

    def _listen(self) -> socket.socket:
        folder, address = places(self._environ)
        if folder:
            _prepare(folder)
        with contextlib.ExitStack() as undo:
            if isinstance(address, Path):
                if address.exists() and _alive(address):
                    raise OSError(errno.EADDRINUSE, "another process answers there")
                listener = undo.enter_context(socket.socket(socket.AF_UNIX))
                hidden = address.with_name(f"{address.name}.new")  # until it listens
                _unlink(hidden)
                listener.bind(str(hidden))
                listener.listen(16)
                hidden.chmod(0o666)  # who may enter the folder may read
                self._file = hidden.replace(address)
            else:
                family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
                listener = socket.create_server(address, family=family, backlog=16)
                undo.enter_context(listener)
                if folder:
                    hidden = folder / f"{os.getpid()}.port.new"
                    hidden.write_text("{0[0]}:{0[1]}\n".format(listener.getsockname()), "ascii")
                    self._file = hidden.replace(hidden.with_suffix(""))
            undo.pop_all()
        return listener


def _let_go(listener: socket.socket, known: tuple[int, ...]) -> None:
    """Close a listener, unless the host closed it and its number is now a file of the host."""
    number = listener.detach()
    with contextlib.suppress(OSError):
        if os.fstat(number)[1:3] == known:
            os.close(number)


def places(environ: Mapping[str, str]) -> tuple[Optional[Path], "Path | tuple[str, int]"]:
    """Return the folder, if there is one, and the socket's path or host and port.

    Raises:
        ValueError: If the address cannot be used.
    """
    named, text = environ.get("FUSEWIRE_PROBE_DIR"), environ.get("FUSEWIRE_PROBE_ADDRESS", "")
    folder = Path(named).absolute() if named else None
    if folder and not text:
        return folder, folder / f"{os.getpid()}.sock"
    if text.startswith("unix:"):
        return folder, Path("/", text[len("unix:") :].lstrip("/"))
    host, _, port = (text or "127.0.0.1:9733").rpartition(":")
    host = "127.0.0.1" if host == "localhost" else host.strip("[]")
    try:
        local, number = ipaddress.ip_address(host).is_loopback, int(port)
    except ValueError:
        local, number = False, -1
    if not local or not 0 <= number <= PORT_MOST:
        msg = f"FUSEWIRE_PROBE_ADDRESS {text!r}: expected 127.0.0.1:PORT or unix:/PATH"
        raise ValueError(msg)
    return folder or (default_folder() if number == 0 else None), (host, number)


def default_folder() -> Path:
    """Return this user's folder of sockets."""
    return Path(tempfile.gettempdir(), f"fusewire-probe-{os.geteuid()}")


def _prepare(folder: Path) -> None:
    """Make the folder, and take away what processes that are gone left in it."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    known = folder.lstat()
    if folder == default_folder() and (known.st_uid != os.geteuid() or known.st_mode & 0o022):
        msg = f"{folder} is not this user's alone; set FUSEWIRE_PROBE_DIR"
        raise ValueError(msg)
    for path in islice(folder.iterdir(), FILES_MOST):
        if path.suffix in (".sock", ".port") and not _alive(path):
            _unlink(path)


def _unlink(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()


def _alive(path: Path) -> bool:
    """Whether anybody answers at a socket, or at the address in a file; a doubt is a yes."""
    try:
        if path.suffix == ".port" and path.is_file():
            host, _, port = path.read_text(encoding="ascii").strip().rpartition(":")
            socket.create_connection((host, int(port)), REQUEST_SECONDS).close()
        else:  # a plain file refuses, too, and is replaced only where sockets are expected
            with socket.socket(socket.AF_UNIX) as caller:
                caller.settimeout(REQUEST_SECONDS)
                caller.connect(str(path))
    except (FileNotFoundError, ConnectionRefusedError):
        return path.exists() and not (path.is_socket() or path.suffix == ".port")
    except (OSError, ValueError):
        return True
    return True


def _answer(client: socket.socket, figures: Figures) -> None:
    """Read one request and answer it; a client that does not ask in time gets nothing."""
    asked, deadline = b"", time.monotonic() + REQUEST_SECONDS
    while b"\r\n\r\n" not in asked:
        client.settimeout(max(deadline - time.monotonic(), 0.001))
        more = client.recv(REQUEST_MOST)
        asked += more
        if not more or len(asked) > REQUEST_MOST:
            return
    known = asked.startswith((b"GET / ", b"GET /metrics ", b"GET /metrics?"))
    status, body = ("200 OK", figures.page()) if known else ("404 Not Found", "see /metrics\n")
    data = body.encode("utf-8", "replace")
    head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
    head += f"Content-Length: {len(data)}\r\nConnection: close\r\n\r\n"
    client.settimeout(REQUEST_SECONDS)
    client.sendall(head.encode() + data)


def start(environ: Optional[Mapping[str, str]] = None) -> bool:
    """Start the probe of this process, once; never raises. Return whether this call did it."""
    chosen = os.environ if environ is None else environ
    probe = Probe(chosen)
    if chosen.get("FUSEWIRE_PROBE") == "0" or sys.__dict__.setdefault(_MARK, probe) is not probe:
        return False
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=probe.begin)
    atexit.register(probe.leave)
    probe.begin()
    return True


def start_in_vllm() -> None:
    """Start it in one of vLLM's processes: by default each has a socket in `default_folder`."""
    asked = any(os.environ.get(f"FUSEWIRE_PROBE_{it}") for it in ("ADDRESS", "DIR"))
    with contextlib.suppress(OSError):  # nowhere to put temporary files: no probe
        defaults = {} if asked else {"FUSEWIRE_PROBE_DIR": str(default_folder())}
        start(ChainMap(defaults, os.environ))


if __name__ == "fusewire_allocator_probe":
    start()
