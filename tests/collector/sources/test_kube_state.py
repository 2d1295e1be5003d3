"""Pages of kube-state-metrics, served for real: joins, reasons, autoscalers, whole clusters."""

from __future__ import annotations

import asyncio
from time import perf_counter

import pytest
from pydantic import ValidationError

from collector.sources.host.kube_rows import RESTARTS, families
from collector.sources.host.kube_state import KubeStateConfig
from detectors.records import Absence, Reading
from detectors.remarks import Noticed
from tests.collector.sources.looked import FIXTURES, Clock, codes, finding, looking
from tests.collector.sources.servers import serving, text

pytestmark = pytest.mark.anyio
PAGE = (FIXTURES / "kube/kube-state.txt").read_bytes()
V1 = (FIXTURES / "kube/kube-state-v1.txt").read_bytes()


async def read_pages(*pages: bytes, every: float = 30.0, **settings: object) -> list[Reading]:
    """Serve one page after the other, and read each."""
    waiting = list(pages)
    clock = Clock()

    async def answer(writer: asyncio.StreamWriter) -> None:
        await text(waiting.pop(0))(writer)

    async with serving(answer) as server:
        config = KubeStateConfig.model_validate(
            {"url": f"{server.url}/metrics", "namespace": "serving", **settings}
        )
        async with looking(config, clock) as source:
            readings = []
            for _ in pages:
                readings.append(await source.read())
                clock.seconds += every
            return readings


async def test_a_page_says_everything_of_a_workload_in_its_namespace_only() -> None:
    (reading,) = await read_pages(PAGE, workload="tgi")

    assert reading.values["memory_limit_bytes"] == 4294967296
    assert reading.values["gpu_limit_gpus"] == 1
    assert reading.parts["restarts_total"] == {"OOMKilled": 1, "Segfault": 1, "unknown": 2}
    assert reading.values["restarts_total"] == 4.0
    assert reading.parts["node_pressure"] == {
        "MemoryPressure": 1,
        "DiskPressure": 0,
        "PIDPressure": 0,
        "NotReady": 0,
    }
    assert reading.values["node_pressure"] == 1.0
    assert reading.values["replicas_desired"] == reading.values["replicas_current"] == 3
    assert (reading.values["replicas_min"], reading.values["replicas_max"]) == (1, 3)
    assert reading.values["scaling_limited"] == 1.0
    assert codes(reading) == ["no_memory_limit", "oom_killed", "container_waiting", "hpa_at_max"]
    assert "exit code 137" in finding(reading, "oom_killed").text
    assert "CrashLoopBackOff" in finding(reading, "container_waiting").text
    assert not reading.absent


async def test_a_container_can_be_named_and_has_its_own_limit() -> None:
    (named,) = await read_pages(PAGE, pod="tgi-*", container="tgi")
    (sidecar,) = await read_pages(PAGE, pod="tgi-*", container="proxy")

    assert "no_memory_limit" not in codes(named)
    assert sidecar.absent["memory_limit_bytes"] is Absence.UNUSABLE
    assert sidecar.parts["restarts_total"] == {"Segfault": 1}
    assert "replicas_current" not in named.values.keys() | named.absent.keys()


async def test_an_old_kill_is_no_finding_and_a_new_one_is_for_an_hour() -> None:
    old = PAGE.replace(b"1.7959525e+09", b"1.7950000e+09")
    silent = b"\n".join(it for it in old.split(b"\n") if b"terminated_timestamp" not in it)
    grown = silent.replace(b'uid="u1",container="tgi"} 3\n', b'uid="u1",container="tgi"} 4\n')

    first, second, third, fourth = await read_pages(
        silent, grown, grown, grown, every=1790.0, pod="tgi-*", container="tgi"
    )
    (by_clock,) = await read_pages(old, pod="tgi-*", container="tgi")

    assert ["oom_killed" in codes(it) for it in (first, second, third)] == [False, True, True]
    assert "oom_killed" in codes(fourth)
    assert codes(by_clock) == []
    assert second.restarted
    assert second.noticed == (Noticed("restart", "3", "OOMKilled, exit code 137"),)
    assert third.noticed == ()
    assert third.parts["restarts_total"] == {"OOMKilled": 2, "unknown": 2}


async def test_of_several_restarts_between_two_pages_only_the_last_has_a_reason() -> None:
    grown = PAGE.replace(b'uid="u1",container="tgi"} 3\n', b'uid="u1",container="tgi"} 7\n')

    _, after = await read_pages(PAGE, grown, pod="tgi-*", container="tgi")

    assert after.parts["restarts_total"] == {"OOMKilled": 2, "unknown": 5}


async def test_a_restart_of_kube_state_metrics_changes_no_counter() -> None:
    restarted = PAGE.replace(
        b"process_start_time_seconds 1.76e+09", b"process_start_time_seconds 1.77e+09"
    )

    before, after = await read_pages(PAGE, restarted, pod="tgi-*")

    assert after.parts["restarts_total"] == before.parts["restarts_total"]
    assert not after.restarted


async def test_a_new_pod_of_the_same_name_adds_its_restarts() -> None:
    anew = PAGE.replace(b'uid="u1"', b'uid="u2"').replace(b'"tgi"} 3\n', b'"tgi"} 0\n')

    _, after = await read_pages(PAGE, anew, pod="tgi-*", container="tgi")

    assert after.values["restarts_total"] == 3.0
    assert not after.restarted


async def test_names_of_version_1_and_its_series_of_zeros_are_known() -> None:
    (reading,) = await read_pages(V1, pod="vllm-*", autoscaler="vllm")

    assert reading.values["memory_limit_bytes"] == 1.6e10
    assert reading.parts["restarts_total"] == {"Completed": 1}
    assert reading.values["replicas_max"] == 2
    assert reading.values["scaling_limited"] == 0.0
    assert codes(reading) == ["hpa_min_equals_max"]
    assert reading.absent["node_pressure"] is Absence.NO_SAMPLE


async def test_without_an_autoscaler_the_workloads_replicas_are_told() -> None:
    (reading,) = await read_pages(PAGE, workload="proxy")

    assert (reading.values["replicas_desired"], reading.values["replicas_current"]) == (2, 1)
    assert reading.absent["replicas_max"] is Absence.NO_SAMPLE
    assert reading.absent["scaling_limited"] is Absence.NO_SAMPLE


async def test_an_autoscaler_held_at_its_minimum_is_not_limited() -> None:
    low = PAGE.replace(
        b'replicas{namespace="serving",horizontalpodautoscaler="keda-hpa-tgi"} 3',
        b'replicas{namespace="serving",horizontalpodautoscaler="keda-hpa-tgi"} 1',
    )
    low = low.replace(
        b'max_replicas{namespace="serving",horizontalpodautoscaler="keda-hpa-tgi"} 1',
        b'max_replicas{namespace="serving",horizontalpodautoscaler="keda-hpa-tgi"} 3',
    )

    (reading,) = await read_pages(low, autoscaler="keda-hpa-tgi")

    assert reading.values["replicas_desired"] == 1
    assert reading.values["scaling_limited"] == 0.0
    assert codes(reading) == []


async def test_names_that_are_not_on_the_page_are_findings() -> None:
    (reading,) = await read_pages(PAGE, workload="vllm")

    assert reading.up
    assert codes(reading) == ["no_such_container", "no_such_workload"]
    assert set(reading.absent.values()) == {Absence.NO_SAMPLE}


async def test_nodes_that_are_not_ready_or_short_of_something_are_those_of_the_pods() -> None:
    moved = PAGE.replace(b'node="gpu-a",created_by', b'node="gpu-b",created_by')
    moved = moved.replace(b'"tgi",node="gpu-a"', b'"tgi",node="gpu-b"')

    (reading,) = await read_pages(moved, pod="tgi-*")

    assert reading.parts["node_pressure"] == {"DiskPressure": 1, "NotReady": 1}


@pytest.mark.slow
async def test_a_whole_clusters_page_is_read_while_the_loop_goes_on() -> None:
    row = f'{RESTARTS}{{{{namespace="ns{{0}}",pod="p-{{1}}",uid="u{{1}}",container="c"}}}} 1'
    others = "\n".join(row.format(number % 50, number) for number in range(200_000))
    page = others.encode() + b"\n" + PAGE
    longest = 0.0

    async def watch() -> None:
        nonlocal longest
        while True:
            before = perf_counter()
            await asyncio.sleep(0.001)
            longest = max(longest, perf_counter() - before)

    async with serving(text(page)) as server:
        config = KubeStateConfig(url=server.url, namespace="serving", workload="tgi")
        async with looking(config) as source:
            watcher = asyncio.get_running_loop().create_task(watch())
            reading = await source.read()
            watcher.cancel()

    assert len(page) > 20_000_000
    assert reading.values["restarts_total"] == 4.0
    assert longest < 0.5  # a machine under load; the whole takes longer


@pytest.mark.parametrize("settings", [{}, {"pod": "A"}, {"workload": 'x"'}])
def test_something_must_be_named_and_names_are_those_of_a_cluster(
    settings: dict[str, str],
) -> None:
    with pytest.raises(ValidationError):
        KubeStateConfig.model_validate(
            {"url": "http://127.0.0.1:1", "namespace": "serving", **settings}
        )


def test_every_family_has_the_prefix_that_all_of_the_pages_have() -> None:
    assert all(name.startswith("kube_") for name in families())
