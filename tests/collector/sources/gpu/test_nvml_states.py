"""GPUs that are lost, hang, hide or are not there, and whose processes are whose."""

from __future__ import annotations

import asyncio
import ctypes
import os
import time
from typing import Any

import pynvml
import pytest
from pydantic import TypeAdapter, ValidationError

from collector.sources.gpu.nvml import OFFERED, NvmlConfig
from collector.sources.joined import Companion, JoinedSource
from collector.sources.protocols import ScrapeStats
from collector.sources.settings import SourceConfig
from detectors.limit import Limit, LimitConfig
from detectors.records import Absence, Level, Reading
from detectors.signals import SIGNALS
from tests.collector.sources.fake_gpu import GIB, FakeGpus
from tests.collector.sources.gpu.told import codes, text_of
from tests.collector.sources.servers import NOW

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("code", "absence", "finding", "up"),
    [
        (9, Absence.NO_DRIVER, "gpu_no_driver", True),
        (18, Absence.NO_DRIVER, "gpu_no_driver", True),
        (4, Absence.SCRAPE_FAILED, "gpu_no_permission", False),
        (999, Absence.SCRAPE_FAILED, "gpu_read_failed", False),
    ],
)
async def test_a_driver_that_cannot_be_asked_is_a_state_and_is_tried_again(
    gpus: FakeGpus, make: Any, code: int, absence: Absence, finding: str, up: bool
) -> None:
    source = make()
    gpus.set(init=code)

    without = await source.read()
    gpus.set(init=0)
    there = await source.read()

    assert dict(without.absent) == dict.fromkeys(OFFERED, absence)
    assert codes(without) == [finding]
    assert without.up is up
    assert there.values["gpu_memory_used_bytes"] == 40.0 * GIB


async def test_a_machine_without_the_library_says_so(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pynvml, "nvmlLib", None)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    monkeypatch.setattr(pynvml, "CDLL", lambda name: ctypes.CDLL("libfusewire-is-not-there.so.1"))
    source = make()

    reading = await source.read()

    assert dict(reading.absent) == dict.fromkeys(OFFERED, Absence.NO_DRIVER)
    assert "libnvidia-ml.so.1 is not found" in text_of(reading, "gpu_no_driver")
    assert reading.up
    assert source.stats() == ScrapeStats(outcomes={"no data": 1})


async def test_a_device_that_may_not_be_opened_hides_none_of_the_others(
    gpus: FakeGpus, make: Any
) -> None:
    gpus.set(_0_denied=1)

    reading = await make(devices=["0", "1"]).read()

    assert reading.parts["gpu_temperature_celsius"] == {"1": 40.0}
    assert "GPU 0 may not be opened" in text_of(reading, "gpu_no_permission")
    assert "gpu_not_found" not in codes(reading)


async def test_a_machine_with_a_driver_and_no_device_says_so(gpus: FakeGpus, make: Any) -> None:
    gpus.set(count=0)

    reading = await make().read()

    assert codes(reading) == ["gpu_not_found"]
    assert set(reading.absent.values()) == {Absence.NO_DATA}


async def test_mig_instances_are_devices_and_their_board_speaks_for_heat_and_power(
    gpus: FakeGpus, make: Any
) -> None:
    gpus.set(_0_places=7, _0_1_uuid="MIG-x", _0_1_total=20 * GIB, _0_1_used=5 * GIB)
    gpus.set(_0_4_uuid="MIG-y", _0_4_total=40 * GIB, _0_4_used=8 * GIB)

    whole = await make().read()
    one = await make(devices=["MIG-y"]).read()
    by_place = await make(devices=["0/1"]).read()

    assert whole.parts["gpu_memory_used_bytes"] == {
        "0/1": 5.0 * GIB,
        "0/4": 8.0 * GIB,
        "1": 10.0 * GIB,
    }
    assert whole.parts["gpu_temperature_celsius"] == {"0": 71.0, "1": 40.0}
    assert whole.parts["gpu_utilization_ratio"] == {"1": 0.04}
    assert one.parts["gpu_memory_used_bytes"] == {"0/4": 8.0 * GIB}
    assert one.parts["gpu_power_watts"] == {"0": 412.5}
    assert by_place.parts["gpu_memory_total_bytes"] == {"0/1": 20.0 * GIB}


async def test_a_driver_that_hangs_has_its_own_words_and_is_not_entered_twice(
    gpus: FakeGpus, make: Any
) -> None:
    gpus.set(_0_hang=1)
    source, other = make(timeout=0.1), make(devices=[1], timeout=5.0)

    first = await source.read()
    second = await source.read()
    held = gpus.holders
    beside = await other.read()
    gpus.set(_0_hang=0)
    await asyncio.sleep(0.2)  # the call inside the library returns
    free = await source.read()

    for hung in (first, second):
        assert not hung.up
        assert "has not answered" in hung.problem
        assert codes(hung) == ["gpu_driver_hung"]
        assert set(hung.absent.values()) == {Absence.SCRAPE_FAILED}
    assert held == 1
    assert beside.parts["gpu_temperature_celsius"] == {"1": 40.0}
    assert free.parts["gpu_temperature_celsius"] == {"0": 71.0, "1": 40.0}


async def test_a_hang_is_told_before_the_values_of_the_last_read_go_stale(
    gpus: FakeGpus, make: Any
) -> None:
    source = make(interval=0.05, timeout=30.0)
    gpus.set(_0_hang=1)

    reading = await source.read()
    gpus.set(_0_hang=0)

    assert codes(reading) == ["gpu_driver_hung"]
    assert 0.1 <= reading.scrape_seconds < 3.0  # two intervals; three make a value stale


@pytest.mark.slow
async def test_closing_while_the_driver_hangs_waits_little_and_lets_go_in_the_end(
    gpus: FakeGpus, make: Any
) -> None:
    gpus.set(_0_hang=1)
    source = make(timeout=0.05)
    await source.read()

    started = time.monotonic()
    await source.close()
    took = time.monotonic() - started

    gpus.set(_0_hang=0)
    await asyncio.sleep(0.2)
    assert 0.9 < took < 2.0
    assert gpus.holders == 0


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"_1_lost": 1},
        {"_0_lost": 1, "_1_lost": 1},
        {"init": 9},
        {"init": 999},
        {"count": 0},
        {"_0_refuse": 999, "_1_refuse": 3},
        {"_0_denied": 1},
        {"_0_places": 2, "_0_0_uuid": "MIG-x"},
    ],
)
async def test_in_every_state_each_signal_has_a_value_or_a_reason_and_wholes_fit_their_parts(
    gpus: FakeGpus, make: Any, change: dict[str, int | str]
) -> None:
    source = make()
    gpus.set(**change)

    for reading in (await source.read(), await source.read()):
        assert reading.known == OFFERED | {"up", "scrape_seconds"}
        assert not reading.values.keys() & reading.absent.keys()
        assert reading.values["up"] == float(reading.up)
        for signal, parts in reading.parts.items():
            largest = signal in {
                "gpu_utilization_ratio",
                "gpu_temperature_celsius",
                "gpu_throttled",
            }
            whole = max(parts.values()) if largest else sum(parts.values())
            assert reading.values[signal] == whole
            assert SIGNALS[signal].label == "device"


async def test_a_still_machine_reads_the_same_twice(gpus: FakeGpus, make: Any) -> None:
    source = make()

    first, second = await source.read(), await source.read()

    assert second.parts == first.parts
    assert second.findings == first.findings
    assert second.noticed == ()


async def test_the_targets_own_processes_are_told_from_others(gpus: FakeGpus, make: Any) -> None:
    gpus.processes("0", (os.getpid(), 3 * GIB), (os.getppid(), GIB))
    gpus.processes("1", (os.getpid(), 2 * GIB))

    reading = await make(processes={"pids": [os.getpid()]}).read()

    assert reading.parts["gpu_process_memory_bytes"] == {"0": 3.0 * GIB, "1": 2.0 * GIB}
    assert reading.values["gpu_process_memory_bytes"] == 5.0 * GIB
    assert {(it.device, it.pid, it.attribution) for it in reading.processes} == {
        ("0", os.getpid(), "target"),
        ("0", os.getppid(), "other"),
        ("1", os.getpid(), "target"),
    }
    assert all(it.name for it in reading.processes)


async def test_a_pid_of_another_namespace_is_unknown_and_never_somebody_elses(
    gpus: FakeGpus, make: Any
) -> None:
    gpus.processes("0", (4_194_000, 3 * GIB))

    reading = await make(processes={"pids": [os.getpid()]}).read()

    assert [it.attribution for it in reading.processes] == ["unknown"]
    assert "hostPID" in text_of(reading, "gpu_pid_namespace")
    assert "0" not in reading.parts.get("gpu_process_memory_bytes", {})


async def test_bytes_that_the_driver_does_not_say_are_not_zero(gpus: FakeGpus, make: Any) -> None:
    gpus.processes("0", (os.getpid(), -1))

    reading = await make(devices=[0], processes={"pids": [os.getpid()]}).read()

    assert "gpu_process_memory_hidden" in codes(reading)
    assert reading.absent["gpu_process_memory_bytes"] is Absence.NO_SAMPLE


async def test_gpu_memory_joins_the_scrape_and_a_limit_judges_its_share(
    gpus: FakeGpus, make: Any
) -> None:
    gpus.set(_0_used=79 * GIB, _1_used=78 * GIB)
    source = make()
    joined = JoinedSource(_Main(), [Companion(source, 5.0)], monotonic=time.monotonic)
    config = LimitConfig(
        signal="gpu_memory_used_bytes",
        divisor="gpu_memory_total_bytes",
        trip=0.95,
        clear=0.9,
        breaches=1,
    )
    limit = Limit(config)

    await joined.keep(0, await source.read())
    reading = await joined.read()
    _, (verdict,) = limit.step(limit.start(), reading)

    assert reading.parts["gpu_memory_used_bytes"] == {"0": 79.0 * GIB, "1": 78.0 * GIB}
    assert verdict.level is Level.CRITICAL
    assert verdict.statistic == pytest.approx(157 / 160)


class _Main:
    """An engine's page of one signal."""

    name = "scrape:chat/a"

    async def read(self) -> Reading:
        return Reading("chat", "a", "scrape", NOW, time.monotonic(), 0.01, values={"up": 1.0})

    def learn(self, limits: object) -> None:
        raise AssertionError("GPUs tell no limits")

    def stats(self) -> ScrapeStats:
        return ScrapeStats()

    async def close(self) -> None:
        return


def test_devices_are_written_as_numbers_instances_or_uuids() -> None:
    read = TypeAdapter(SourceConfig).validate_python
    config = read({"kind": "nvml", "devices": [0, "1/3", "MIG-12-ab"], "interval": "10s"})

    assert isinstance(config, NvmlConfig)
    assert config.devices == ("0", "1/3", "MIG-12-ab")
    for wrong in ([True], ["gpu0"], [-1], ["0/1/2"], "some"):
        with pytest.raises(ValidationError):
            read({"kind": "nvml", "devices": wrong})
    with pytest.raises(ValidationError, match="regular expression"):
        read({"kind": "nvml", "processes": {"command": "("}})
