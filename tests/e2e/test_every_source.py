"""The whole service with one of every kind of source and neighbour: shown, reloaded, ended."""

from __future__ import annotations

import contextlib
import http.server
import json
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from collector.sources.settings import NeighbourConfig, SourceConfig
from tests.collector.sources.fake_gpu import GIB, FakeGpus, compile_fake
from tests.contracts.companions import CASES, Content, Contents
from tests.e2e.harness import CALM, Serving, serving, until

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

HELD = {str(case): case.contents for case in CASES}
QUOTA = next(case.headers for case in CASES if case.kind == "quota" and case.headers)
APP = b"# TYPE app_swapped gauge\napp_swapped 77\n# TYPE app_streams gauge\napp_streams 3\n"


def answer_of(path: str, question: bytes) -> bytes:
    """Return what the engine, or the page of the kind that begins the path, says."""
    path = path.removeprefix("/b") if path.startswith("/b/") else path  # the other engine
    if path == "/metrics":
        return CALM
    kind = path.split("/")[1]
    contents: Contents = {**HELD["facts"], **HELD["broker-rabbitmq"]}
    if b"logprobs" in question:
        contents = HELD["canary"]
    elif kind == "app":
        contents = {"*": APP}
    elif kind in HELD:
        contents = HELD[kind]
    whole: Content = contents.get(path) or (b"" if kind == "version" else contents.get("*", b""))
    return whole(question) if callable(whole) else whole


@contextlib.contextmanager
def everything() -> Iterator[str]:
    """Serve an engine and, by the first part of the path, a page of every kind."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(b"")

        def do_POST(self) -> None:
            self._answer(self.rfile.read(int(self.headers["content-length"])))

        def _answer(self, question: bytes) -> None:
            body = answer_of(self.path, question)
            self.send_response(200 if body else 404)
            self.send_header("content-length", str(len(body)))
            if self.path.startswith("/quota"):
                for line in QUOTA.splitlines():
                    self.send_header(*line.split(": "))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base's name
            return

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def written(folder: Path) -> dict[str, dict[str, Any]]:
    """Write what is read from files, and return the settings that read it."""
    for case in CASES:
        if case.files and case.kind != "nvml":
            for name, content in case.contents.items():
                path = folder / case.kind / name
                path.parent.mkdir(parents=True, exist_ok=True)
                assert isinstance(content, bytes)
                path.write_bytes(content)
    return {
        "cgroup": {"path": "/group", "root": str(folder / "cgroup")},
        "process": {"pid_file": "/pid", "root": str(folder / "process")},
        "log": {"path": str(folder / "log" / "server.log"), "from_end": False},
    }


def configuration(url: str, files: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return two targets and neighbours of every kind; what two kinds tell is told by one."""
    pods = {"namespace": "serving"}
    kinds: dict[str, dict[str, Any]] = {
        **files,
        "nvml": {},
        "facts": {},
        "probe": {},
        "canary": {},
        "page": {"url": f"{url}/app", "signals": {"memory_swap_bytes": "app_swapped"}},
        "dcgm": {"url": f"{url}/dcgm/metrics"},
        "allocator": {"url": f"{url}/allocator/metrics"},
        "cadvisor": {"url": f"{url}/cadvisor/metrics", **pods, "pod": "tgi-0"},
        "kube_state": {"url": f"{url}/kube_state/metrics", **pods, "workload": "tgi"},
        "client": {"url": f"{url}/client/metrics"},
        "quota": {"url": f"{url}/quota-headers/metrics"},
        "milvus": {"url": f"{url}/milvus/metrics"},
        "broker": {"system": "rabbitmq", "url": url, "queue": "documents"},
    }
    made = {kind: {"kind": kind, "interval": "300ms", **it} for kind, it in kinds.items()}
    first = ("page", "nvml", "allocator", "cgroup", "probe", "canary", "facts")
    second = ("dcgm", "cadvisor", "kube_state", "process", "log")
    assert {*first, *second} == kinds_of(SourceConfig)
    beside = {kind: made[kind] for kind in sorted(kinds_of(NeighbourConfig))}
    beside["page"] = {**made["page"], "signals": {"client_streams_active": "app_streams"}}
    targets = [
        {"id": name, "url": f"{url}{path}", "sources": [made[kind] for kind in chosen]}
        for name, path, chosen in (("a", "", first), ("b", "/b/metrics", second))
    ]
    return {
        "listen": "127.0.0.1:0",
        "scrape_interval": "200ms",
        "tiers": {"chat": {"targets": targets, "neighbours": beside}},
    }


def kinds_of(union: object) -> set[str]:
    return {it.model_fields["kind"].default for it in get_args(get_args(union)[0])}


def value(text: str, name: str, target: str, *labels: str) -> float | None:
    """Return the value of the first series of a target that has the labels."""
    for line in text.splitlines():
        wanted = (f'target="{target}"', *labels)
        if line.startswith(f"fusewire_{name}{{") and all(it in line for it in wanted):
            return float(line.rpartition(" ")[2])
    return None


EXPECTED: tuple[tuple[str, str, tuple[str, ...], float], ...] = (
    ("requests_running", "a", (), 0.0),
    ("memory_swap_bytes", "a", (), 77.0),  # page
    ("gpu_memory_used_bytes", "a", ('device="1"',), 10.0 * GIB),  # nvml
    ("allocator_reserved_bytes", "a", ('device="1"',), 5.0 * GIB),
    ("memory_working_set_bytes", "a", (), 96_468_992.0),  # cgroup
    ("log_events_total", "b", ('reason="torch_oom"',), 0.0),  # any number
    ("probe_up", "a", (), 1.0),
    ("canary_divergence_nats", "a", (), 0.0),
    ("context_tokens", "a", (), 512.0),  # facts
    ("gpu_utilization_ratio", "b", ('device="0"',), 0.0),  # dcgm
    ("memory_working_set_bytes", "b", (), 3e9),  # cadvisor
    ("replicas_max", "b", (), 3.0),  # kube_state
    ("memory_anon_bytes", "b", (), 1_048_576.0),  # process
    ("client_streams_active", "page", (), 3.0),
    ("client_requests_total", "client", (), 8712.0),
    ("client_quota_used_ratio", "quota", (), 0.2),
    ("client_queue_size", "broker", (), 18_250.0),
    ("vector_search_seconds_count", "milvus", (), 210.0),
    ("memory_working_set_bytes", "cgroup", (), 96_468_992.0),
    ("memory_anon_bytes", "process", (), 1_048_576.0),
    ("memory_working_set_bytes", "cadvisor", (), 3e9),
    ("replicas_max", "kube_state", (), 3.0),
    ("log_events_total", "log", ('reason="torch_oom"',), 0.0),  # any number
)


REMOVED = ["gpu_memory_used_bytes of a: None", "vector_search_seconds_count of milvus: None"]


def lost(text: str) -> list[str]:
    """Return what the metrics page does not show, or shows with another value."""
    found = [(row, value(text, row[0], row[1], *row[2])) for row in EXPECTED]
    return [
        f"{row[0]} of {row[1]}: {got}"
        for row, got in found
        if got is None or (row[0] != "log_events_total" and got != pytest.approx(row[3]))
    ]


def test_every_kind_is_shown_where_it_belongs_and_goes_when_it_is_taken_away(
    tmp_path: Path,
) -> None:
    compile_fake(tmp_path, soname=True)
    gpus = FakeGpus(tmp_path / "gpus.txt")
    environ = {"LD_LIBRARY_PATH": str(tmp_path), "FUSEWIRE_FAKE_GPU": str(gpus.path)}
    with everything() as url:
        config = configuration(url, written(tmp_path))
        file = tmp_path / "fusewire.yaml"
        file.write_text(yaml.safe_dump(config))
        with serving(tmp_path, **environ) as service:
            until_shown(service)
            tiers(service, sorted(kinds_of(NeighbourConfig)))
            assert broken(service.text("/metrics")) == ""

            target, neighbours = config["tiers"]["chat"]["targets"][0], config["tiers"]["chat"]
            target["sources"] = [it for it in target["sources"] if it["kind"] != "nvml"]
            del neighbours["neighbours"]["milvus"]
            file.write_text(yaml.safe_dump(config))
            assert service.post("/-/reload", b"")[0] == 200

            until(lambda: lost(service.text("/metrics")) == REMOVED, seconds=10)
            assert broken(service.text("/metrics")) == ""

            service.process.send_signal(signal.SIGTERM)
            asked = time.monotonic()
            assert service.process.wait(timeout=20) == 0
            assert time.monotonic() - asked < 5.0
            assert "Traceback" not in service.log


def until_shown(service: Serving) -> None:
    deadline = time.monotonic() + 30.0
    while lacking := lost(service.text("/metrics")):
        assert time.monotonic() < deadline, lacking
        time.sleep(0.2)


def tiers(service: Serving, names: list[str]) -> None:
    """Check that the tier lists its neighbours, each with what it tells and what is remarked."""
    (tier,) = service.list("/v1/tiers")
    beside = {it["id"]: it for it in tier["neighbours"]}
    assert sorted(beside) == names
    assert [it["id"] for it in beside.values() if it["up"] is not True] == []
    assert "queue_without_bound" in json.dumps(beside["client"]["findings"])
    assert "hpa_at_max" in json.dumps(beside["kube_state"]["findings"])
    assert "hpa_at_max" in json.dumps(tier["targets"][1]["findings"])
    assert beside["broker"]["signals"]["client_queue_size"]["value"] == 18_250.0


def broken(text: str) -> str:
    """Return the series of parts that are failing."""
    return "\n".join(
        it
        for it in text.splitlines()
        if it.startswith("fusewire_part_broken") and not it.endswith(" 0.0")
    )
