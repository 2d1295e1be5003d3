"""What every source that looks at a machine or a cluster owes the pipeline, good day or bad."""

from __future__ import annotations

import math
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import TypeAlias

import pytest

from collector.sources.host.cadvisor import CadvisorConfig
from collector.sources.host.cgroup import CgroupConfig
from collector.sources.host.kube_state import KubeStateConfig
from collector.sources.host.process_memory import ProcessConfig
from collector.sources.joined import Companion, JoinedSource
from collector.sources.logs.lines import LogConfig
from collector.sources.protocols import Source
from detectors.records import Absence
from detectors.signals import SIGNALS, Kind
from tests.collector.sources.looked import FIXTURES, Clock, looking
from tests.collector.sources.servers import a_source, hanging_up, serving, text

pytestmark = pytest.mark.anyio
Make: TypeAlias = Callable[[bool, Path], AbstractAsyncContextManager[Source]]


@asynccontextmanager
async def cgroup(good: bool, folder: Path) -> AsyncIterator[Source]:
    config = CgroupConfig(pid=4711 if good else 4712, root=FIXTURES / "host/v2")
    async with looking(config) as source:
        yield source


@asynccontextmanager
async def process(good: bool, folder: Path) -> AsyncIterator[Source]:
    pid_file = folder / "pid"
    pid_file.write_text(str(os.getpid()) if good else "none")
    async with looking(ProcessConfig(pid_file=pid_file)) as source:
        yield source


@asynccontextmanager
async def log(good: bool, folder: Path) -> AsyncIterator[Source]:
    path = FIXTURES / "logs/torch-oom-lines.txt" if good else folder / "no.log"
    async with looking(LogConfig(path=path, from_end=False)) as source:
        yield source


@asynccontextmanager
async def cadvisor(good: bool, folder: Path) -> AsyncIterator[Source]:
    page = text((FIXTURES / "kube/cadvisor.txt").read_bytes())
    async with serving(page if good else hanging_up) as server:
        config = CadvisorConfig(url=server.url, namespace="serving", pod="tgi-0")
        async with looking(config) as source:
            yield source


@asynccontextmanager
async def kube_state(good: bool, folder: Path) -> AsyncIterator[Source]:
    page = text((FIXTURES / "kube/kube-state.txt").read_bytes())
    async with serving(page if good else hanging_up) as server:
        config = KubeStateConfig(url=server.url, namespace="serving", workload="tgi")
        async with looking(config) as source:
            yield source


KINDS: Mapping[str, Make] = {
    "cgroup": cgroup,
    "process": process,
    "log": log,
    "cadvisor": cadvisor,
    "kube_state": kube_state,
}


@pytest.fixture(params=sorted(KINDS))
def make(request: pytest.FixtureRequest) -> Make:
    return KINDS[request.param]


@pytest.mark.parametrize("good", [True, False])
async def test_a_reading_says_who_when_and_how_it_went(
    make: Make, good: bool, tmp_path: Path
) -> None:
    async with make(good, tmp_path) as source:
        reading = await source.read()

    assert (reading.tier, reading.target) == ("chat", "a")
    assert source.name == f"{reading.source}:chat/a"
    assert reading.at.utcoffset() == timedelta(0)
    assert reading.up is good
    assert reading.values["up"] == float(good)
    assert sum(source.stats().outcomes.values()) == 1
    if not good:
        assert len(reading.problem.split()) > 2
        assert set(reading.values) == {"up", "scrape_seconds"}
        assert set(reading.absent.values()) == {Absence.SCRAPE_FAILED}


async def test_values_are_finite_and_parts_are_of_signals_with_a_label(
    make: Make, tmp_path: Path
) -> None:
    async with make(True, tmp_path) as source:
        reading = await source.read()

    assert all(math.isfinite(value) for value in reading.values.values())
    assert not reading.values.keys() & reading.absent.keys()
    assert reading.values.keys() <= SIGNALS.keys()
    for signal, parts in reading.parts.items():
        whole = max(parts.values()) if signal == "node_pressure" else math.fsum(parts.values())
        assert SIGNALS[signal].label
        assert reading.values[signal] == whole


async def test_reading_twice_changes_no_counter_of_a_still_world(
    make: Make, tmp_path: Path
) -> None:
    async with make(True, tmp_path) as source:
        first = await source.read()
        second = await source.read()

    counters = [it for it in first.values if SIGNALS[it].kind is Kind.COUNTER]
    assert {it: second.values[it] for it in counters} == {it: first.values[it] for it in counters}
    assert not second.restarted
    assert second.noticed == ()


async def test_what_a_log_states_reaches_the_targets_reading(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_bytes((FIXTURES / "logs/vllm-start-lines.txt").read_bytes())
    clock = Clock()
    page = text(b"# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running 3.0\n")
    async with serving(page) as server, looking(LogConfig(path=log), clock) as companion:
        client = companion._tools.client  # type: ignore[attr-defined]  # one that is open
        main = a_source(server.url, client)
        joined = JoinedSource(main, [Companion(companion, 10.0)], monotonic=clock)
        await joined.keep(0, await companion.read())
        reading = await joined.read()

    assert reading.values["kv_cache_capacity_tokens"] == 296_208
    assert reading.values["request_slots"] == 128
    assert reading.values["log_events_total"] == 0.0
    assert reading.values["requests_running"] == 3.0
