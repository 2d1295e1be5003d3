"""One case for every kind of source beside an engine's page: what it reads, before and after.

A case is served or written into a folder by `world`, which can also be empty, or be spoilt.
"""

from __future__ import annotations

import asyncio
import ctypes
import functools
import json
import re
import socket
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import pynvml
import pytest

from collector.sources.gpu.allocator import AllocatorConfig
from collector.sources.gpu.dcgm import DcgmConfig
from collector.sources.gpu.nvml import NvmlConfig
from collector.sources.host.cadvisor import CadvisorConfig
from collector.sources.host.cgroup import CgroupConfig
from collector.sources.host.kube_state import KubeStateConfig
from collector.sources.host.process_memory import ProcessConfig
from collector.sources.logs.lines import LogConfig
from collector.sources.neighbours.broker import BrokerConfig
from collector.sources.neighbours.client import ClientConfig
from collector.sources.neighbours.milvus import MilvusConfig
from collector.sources.neighbours.quota import QuotaConfig
from collector.sources.other_pages import PageConfig
from collector.sources.protocols import SourceSettings
from collector.sources.server.canary import CanaryConfig
from collector.sources.server.canary_prompts import PROMPTS
from collector.sources.server.facts import FactsConfig
from collector.sources.server.probe import ProbeConfig
from tests.collector.sources.fake_gpu import TWO_GPUS, compile_fake
from tests.collector.sources.probes import page_text
from tests.collector.sources.servers import Answer

FIXTURES = Path(__file__).parents[1] / "fixtures"
Content: TypeAlias = bytes | Callable[[bytes], bytes]  # what is there, or the answer to a question
Contents: TypeAlias = Mapping[str, Content]
Damage: TypeAlias = Callable[[bytes], bytes]


@dataclass(frozen=True)
class Where:
    """Where a source finds what it reads."""

    folder: Path
    url: str

    @property
    def redis(self) -> str:
        return self.url.replace("http://", "redis://")


@dataclass(frozen=True)
class Case:
    """One kind, set up in one way; `contents` are by path of the server, or of the folder.

    `after` is what is there when whatever is read has started anew and counts from the beginning.
    """

    kind: str
    settings: Callable[[Where], SourceSettings]
    contents: Contents
    after: Contents
    name: str = ""
    files: bool = False
    headers: str = ""
    around: Callable[[Path], AbstractContextManager[None]] = field(default=lambda _: nullcontext())

    def __str__(self) -> str:
        return "-".join(filter(None, (self.kind, self.name)))


@dataclass
class World:
    """Something to read that can change; with an `answer` it says that and nothing else."""

    case: Case
    where: Where
    contents: Contents
    damage: Damage = bytes
    answer: Answer | None = None

    def become(self, contents: Contents, damage: Damage = bytes) -> None:
        """Hold something else from now on."""
        self.contents, self.damage = contents, damage
        if self.case.files:
            _write(self.where.folder, contents, damage)


@asynccontextmanager
async def world(case: Case) -> AsyncIterator[World]:
    """Serve a case on the loopback, or write it into a folder."""
    with tempfile.TemporaryDirectory() as name, case.around(Path(name)):
        made = World(case, Where(Path(name), ""), case.contents)
        if case.files:
            made.become(case.contents)
            yield made
            return
        listener = await asyncio.start_server(functools.partial(_serve, made), "127.0.0.1", 0)
        try:
            port = listener.sockets[0].getsockname()[1]
            made.where = Where(Path(name), f"http://127.0.0.1:{port}")
            yield made
        finally:
            listener.close()


@contextmanager
def nothing(case: Case) -> Iterator[Where]:
    """Yield a place with an empty folder and a port where nobody listens."""
    with tempfile.TemporaryDirectory() as name, socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # bound, never listening: nobody else gets it
        with case.around(Path(name)):
            yield Where(Path(name), f"http://127.0.0.1:{held.getsockname()[1]}")


async def _serve(made: World, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while head := await reader.read(65_536):
            if made.answer is not None:
                await made.answer(writer)
                break
            if head.startswith(b"*"):  # Redis: the third line is the command
                words = head.split(b"\r\n")
                writer.write(_said(made, words[2].decode(), b""))
                continue
            writer.write(await _answer(made, head, reader))
            break
        await writer.drain()
    except (ConnectionError, asyncio.IncompleteReadError):
        pass  # the client left, as it may
    finally:
        writer.close()


async def _answer(made: World, head: bytes, reader: asyncio.StreamReader) -> bytes:
    head, _, question = head.partition(b"\r\n\r\n")
    stated = re.search(rb"content-length: (\d+)", head, flags=re.IGNORECASE)
    if stated:
        question += await reader.readexactly(int(stated[1]) - len(question))
    body = _said(made, head.split(b" ")[1].decode(), question)
    status = "200 OK" if body else "404 Not Found"
    lines = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n"
    return f"{lines}{made.case.headers}\r\n".encode() + body


def _said(made: World, path: str, question: bytes) -> bytes:
    content = made.contents.get(path, made.contents.get("*", b""))
    return made.damage(content(question) if callable(content) else content)


def _write(folder: Path, contents: Contents, damage: Damage) -> None:
    for name, content in contents.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        assert isinstance(content, bytes)
        path.write_bytes(damage(content))


def fixture(name: str, *changes: tuple[str, str]) -> bytes:
    """Return a recorded page with some of its text changed; each change must find its text."""
    text = (FIXTURES / name).read_text()
    for before, after in changes:
        assert before in text, before
        text = text.replace(before, after)
    return text.encode()


@functools.cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(str(compile_fake(Path(tempfile.mkdtemp()))))


@contextmanager
def _fake_driver(folder: Path) -> Iterator[None]:
    """Let pynvml find our stand-in, which tells what the folder's file says, or has no driver."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pynvml, "nvmlLib", _library())
        patch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
        patch.setenv("FUSEWIRE_FAKE_GPU", str(folder / "gpus.txt"))
        yield


def _page(running: int, sent: int) -> bytes:
    return (
        f"# TYPE app_running gauge\napp_running {running}\n# TYPE app_sent_total counter\n"
        f'app_sent_total{{to="a"}} {sent}\n# TYPE app_seconds histogram\n'
        f'app_seconds_bucket{{le="0.1"}} {sent // 2}\napp_seconds_bucket{{le="+Inf"}} {sent}\n'
        f'app_seconds_sum {sent}.5\napp_seconds_count {sent}\napp_used_bytes{{device="0"}} 7\n'
    ).encode()


def _any_page(where: Where) -> SourceSettings:
    signals = {
        "requests_running": "app_running",
        "client_requests_total": "app_sent_total",
        "vector_search_seconds": "app_seconds",
        "gpu_memory_used_bytes": "app_used_bytes",
        "gpu_power_watts": "app_never_there",
    }
    return PageConfig(url=where.url, signals=signals)


def _group(kills: int) -> Contents:
    return {
        "group/memory.current": b"104857600\n",
        "group/memory.max": b"209715200\n",
        "group/memory.events": b"oom 0\noom_kill %d\n" % kills,
        "group/memory.stat": b"anon 83886080\nfile_mapped 4194304\ninactive_file 8388608\n",
        "group/memory.swap.current": b"0\n",
        "group/cgroup.procs": b"4711\n",
    }


def _process(pid: int, start: int) -> Contents:
    stat = f"{pid} (server) S 1 {'0 ' * 17}{start} 0\n"
    status = "Name:\tserver\nVmRSS:\t 2048 kB\nRssAnon:\t 1024 kB\nVmSwap:\t 0 kB\n"
    return {
        "pid": f"{pid}\n".encode(),
        f"proc/{pid}/stat": stat.encode(),
        f"proc/{pid}/status": status.encode(),
    }


@functools.cache
def _rounds() -> list[object]:
    found: dict[str, list[object]] = json.loads(fixture("answers/canary-0.32.0.json"))
    return found["base"]


def _canary(question: bytes) -> bytes:
    prompt = json.loads(question)["prompt"]
    return json.dumps(_rounds()[PROMPTS.index(prompt)]).encode()


def _logs(*names: str) -> Contents:
    return {"server.log": b"".join(fixture(f"logs/{name}") for name in names)}


_VLLM: Contents = {
    "/version": fixture("answers/vllm-0.32.0-version.json"),
    "/v1/models": fixture("answers/vllm-0.32.0-models.json"),
    "/v1/completions": fixture("answers/vllm-0.32.0-completions-one-token.json"),
}
_CANARY: Contents = {"/v1/models": _VLLM["/v1/models"], "/v1/completions": _canary}
_CADVISOR = fixture("kube/cadvisor.txt")
_KUBE = fixture("kube/kube-state.txt")
_DCGM = fixture("gpu/pages/dcgm-3.3-driver-version-label.txt")
_CLIENT = fixture("neighbours/client-controller.txt")
_MILVUS = fixture("neighbours/milvus-2.5-reconstructed.txt")
_RABBIT = fixture("neighbours/rabbitmq-queue.json")
_NATS = fixture("neighbours/nats-jsz.json")
_LAG = fixture("neighbours/kafka-lag.txt")
_REDIS: Contents = {
    "TYPE": b"+stream\r\n",
    "XLEN": b":9\r\n",
    "XINFO": b"*1\r\n*6\r\n$4\r\nname\r\n$1\r\na\r\n$3\r\nlag\r\n:5\r\n$7\r\npending\r\n:2\r\n",
}
_USED: Contents = {"*": b'{"usage": {"used": 750, "limit": 1000}}'}
_QUOTA = "x-ratelimit-limit-requests: 5000\r\nx-ratelimit-remaining-requests: 4000\r\n"


def smaller(page: bytes) -> bytes:
    """Return a page whose numbers have all begun again: a tenth of what they were."""

    def tenth(found: re.Match[bytes]) -> bytes:
        return found[1] + b"%d" % int(float(found[2]) // 10) + found[3]

    return re.sub(rb"(?m)^([^#\n][^\n]*[ }])([0-9.e+]+)((?: \d+)?)$", tenth, page)


def _broker(system: str, where: Where) -> SourceSettings:
    named = {} if system == "page" else {"queue": "JOBS"}
    url = where.redis if system == "redis" else where.url
    return BrokerConfig.model_validate({"system": system, "url": url, "bound": 50_000, **named})


def _of_brokers() -> tuple[Case, ...]:
    contents: Mapping[str, Contents] = {
        "rabbitmq": {"*": _RABBIT},
        "nats": {"*": _NATS},
        "page": {"*": _LAG},
        "redis": _REDIS,
    }
    return tuple(
        Case("broker", functools.partial(_broker, system), held, held, system)
        for system, held in contents.items()
    )


CASES: tuple[Case, ...] = (
    Case("page", _any_page, {"*": _page(3, 40)}, {"*": _page(0, 4)}),
    Case(
        "nvml",
        lambda _: NvmlConfig(),
        {"gpus.txt": TWO_GPUS.encode()},
        {"gpus.txt": TWO_GPUS.replace("0.ecc 2", "0.ecc 0").encode()},
        files=True,
        around=_fake_driver,
    ),
    Case("dcgm", lambda it: DcgmConfig(url=it.url), {"*": _DCGM}, {"*": smaller(_DCGM)}),
    Case("facts", lambda _: FactsConfig(timeout=0.3), _VLLM, _VLLM),
    Case("probe", lambda _: ProbeConfig(timeout=0.3), _VLLM, _VLLM),
    Case("canary", lambda _: CanaryConfig(timeout=0.3), _CANARY, _CANARY),
    Case(
        "allocator",
        lambda it: AllocatorConfig(url=it.url),
        {"*": page_text({"0": 3.0, "1": 5.0}).encode()},
        {"*": page_text({"0": 1.0, "1": 1.0}, run="bb").encode()},
    ),
    Case(
        "cgroup",
        lambda it: CgroupConfig(path=Path("/group"), root=it.folder),
        _group(3),
        _group(0),
        files=True,
    ),
    Case(
        "process",
        lambda it: ProcessConfig(pid_file=Path("/pid"), root=it.folder),
        _process(4711, 100),
        _process(4712, 900),
        files=True,
    ),
    Case(
        "cadvisor",
        lambda it: CadvisorConfig(url=it.url, namespace="serving", pod="tgi-0"),
        {"*": _CADVISOR},
        {"*": _CADVISOR.replace(b"1.7643995e+09", b"1.7644995e+09").replace(b"} 1 1", b"} 0 1")},
    ),
    Case(
        "kube_state",
        lambda it: KubeStateConfig(url=it.url, namespace="serving", workload="tgi"),
        {"*": _KUBE},
        {"*": _KUBE.replace(b'container="tgi"} 3', b'container="tgi"} 0')},
    ),
    Case(
        "log",
        lambda it: LogConfig(path=it.folder / "server.log", from_end=False),
        _logs("torch-oom-lines.txt", "vllm-start-lines.txt"),
        _logs("torch-oom-lines.txt"),
        files=True,
    ),
    Case(
        "client",
        lambda it: ClientConfig(url=it.url, queue_bound=9000, memory_limit=1 << 32),
        {"*": _CLIENT},
        {"*": smaller(_CLIENT)},
    ),
    Case(
        "quota",
        lambda it: QuotaConfig(url=it.url),
        {"*": b"{}"},
        {"*": b"{}"},
        "headers",
        headers=_QUOTA,
    ),
    Case(
        "quota",
        lambda it: QuotaConfig.model_validate(
            {"url": it.url, "usage": [{"used": "/usage/used", "limit": "/usage/limit"}]}
        ),
        _USED,
        _USED,
        "json",
    ),
    Case("milvus", lambda it: MilvusConfig(url=it.url), {"*": _MILVUS}, {"*": smaller(_MILVUS)}),
    *_of_brokers(),
)
