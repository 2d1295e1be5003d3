"""The GPUs of a target, through the real pynvml and a library of ours behind it."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from collector.sources.gpu.nvml import OFFERED
from detectors.records import Absence
from detectors.remarks import Noticed
from tests.collector.sources.fake_gpu import GIB, FakeGpus
from tests.collector.sources.gpu.told import codes, text_of

pytestmark = pytest.mark.anyio


async def test_two_devices_are_told_apart_and_added_up(gpus: FakeGpus, make: Any) -> None:
    reading = await make().read()

    assert reading.parts["gpu_memory_used_bytes"] == {"0": 30.0 * GIB, "1": 10.0 * GIB}
    assert reading.values["gpu_memory_used_bytes"] == 40.0 * GIB
    assert reading.values["gpu_memory_total_bytes"] == 160.0 * GIB
    assert reading.parts["gpu_utilization_ratio"] == {"0": 0.97, "1": 0.04}
    assert reading.values["gpu_utilization_ratio"] == 0.97
    assert reading.values["gpu_temperature_celsius"] == 71.0
    assert reading.parts["gpu_power_watts"] == {"0": 412.5, "1": 90.0}
    assert reading.values["gpu_power_watts"] == 502.5
    assert reading.parts["gpu_throttled"] == {"0": 0.0, "1": 0.0}
    assert reading.parts["gpu_ecc_errors_total"] == {"0": 2.0, "1": 0.0}
    assert reading.parts["gpu_xid_errors_total"] == {"0": 0.0, "1": 0.0}
    assert reading.up
    assert reading.source == "nvml"
    assert reading.known >= OFFERED


@pytest.mark.parametrize(
    ("mask", "throttled"),
    [(0x1, 0.0), (0x2, 0.0), (0x100, 0.0), (0x4, 1.0), (0x20, 1.0), (0x40, 1.0), (0x81, 1.0)],
)
async def test_heat_and_power_throttle_and_idling_does_not(
    gpus: FakeGpus, make: Any, mask: int, throttled: float
) -> None:
    gpus.set(_1_reasons=mask)

    reading = await make().read()

    assert reading.parts["gpu_throttled"] == {"0": 0.0, "1": throttled}
    assert reading.values["gpu_throttled"] == throttled


@pytest.mark.parametrize("devices", [[1], ["1"], ["GPU-bbbb"]])
async def test_only_the_named_devices_are_read(gpus: FakeGpus, make: Any, devices: Any) -> None:
    reading = await make(devices=devices).read()

    assert reading.parts["gpu_memory_used_bytes"] == {"1": 10.0 * GIB}
    assert reading.values["gpu_temperature_celsius"] == 40.0


async def test_a_device_that_is_not_there_is_a_finding_that_lists_what_is(
    gpus: FakeGpus, make: Any
) -> None:
    reading = await make(devices=["0", "7"]).read()

    assert reading.parts["gpu_memory_used_bytes"] == {"0": 30.0 * GIB}
    assert codes(reading) == ["gpu_not_found", "gpu_processes_hidden"]
    text = text_of(reading, "gpu_not_found")
    assert "GPU 7" in text
    assert "0 (GPU-aaaa), 1 (GPU-bbbb)" in text


async def test_a_lost_device_keeps_the_values_of_the_others_and_is_read_again_when_it_returns(
    gpus: FakeGpus, make: Any
) -> None:
    source = make()
    await source.read()

    gpus.set(_1_lost=1)
    lost = await source.read()
    held = gpus.holders
    gpus.set(_1_lost=0, _1_celsius=35)
    back = await source.read()

    assert lost.parts["gpu_memory_used_bytes"] == {"0": 30.0 * GIB}
    assert lost.values["gpu_memory_total_bytes"] == 80.0 * GIB
    assert lost.parts["gpu_ecc_errors_total"] == {"0": 2.0, "1": 0.0}  # counters never fall
    assert "GPU 1" in text_of(lost, "gpu_lost")
    assert lost.noticed == (Noticed("gpu_lost", after="1"),)
    assert held == 0  # or the driver would not forget the dead device
    assert back.parts["gpu_temperature_celsius"] == {"0": 71.0, "1": 35.0}
    assert back.noticed == (Noticed("gpu_returned", after="1"),)
    assert "gpu_lost" not in codes(back)


async def test_a_source_of_a_sound_device_lets_go_while_another_device_is_lost(
    gpus: FakeGpus, make: Any
) -> None:
    sound, losing = make(devices=[0]), make(devices=[1])
    await sound.read()
    await losing.read()

    gpus.set(_1_lost=1)
    lost = await losing.read()
    unmoved = await sound.read()
    gpus.set(_1_lost=0)
    back = await losing.read()

    assert "gpu_lost" in codes(lost)
    assert "gpu_memory_used_bytes" in lost.absent
    assert "gpu_lost" not in codes(unmoved)
    assert unmoved.parts["gpu_memory_used_bytes"] == {"0": 30.0 * GIB}
    assert back.parts["gpu_memory_used_bytes"] == {"1": 10.0 * GIB}


async def test_a_device_that_vanishes_does_not_lend_its_label_to_the_next(
    gpus: FakeGpus, make: Any
) -> None:
    source = make()
    await source.read()

    gpus.text = gpus.text.replace("count 2", "count 1")
    gpus.set(_0_uuid="GPU-bbbb", _0_celsius=40)
    reading = await source.read()

    assert reading.parts["gpu_temperature_celsius"] == {"1": 40.0}
    assert "GPU 0" in text_of(reading, "gpu_lost")


async def test_a_device_that_was_lost_before_the_start_is_named_by_its_index(
    gpus: FakeGpus, make: Any
) -> None:
    gpus.set(_1_lost=1)

    reading = await make().read()

    assert reading.parts["gpu_temperature_celsius"] == {"0": 71.0}
    assert "GPU 1" in text_of(reading, "gpu_lost")


async def test_xid_errors_are_counted_and_noticed_with_their_code(
    gpus: FakeGpus, make: Any
) -> None:
    gpus.set(_1_xids=3, _1_xid=43)  # from before the start
    source = make()
    before = await source.read()

    gpus.set(_1_xids=5, _1_xid=79)
    reading = await source.read()

    assert before.values["gpu_xid_errors_total"] == 0.0
    assert reading.parts["gpu_xid_errors_total"] == {"0": 0.0, "1": 2.0}
    assert reading.noticed == (Noticed("gpu_xid", after="79 on GPU 1"),) * 2


async def test_an_older_driver_gives_what_it_can_and_says_what_it_lacks(
    load: Callable[..., FakeGpus], make: Any
) -> None:
    gpus = load("-DOLD", "-DNO_EVENTS")
    gpus.processes("0", (os.getpid(), GIB))

    reading = await make(processes={"pids": [os.getpid()]}).read()

    assert reading.values["gpu_memory_used_bytes"] == 41.0 * GIB  # with what the driver reserves
    assert reading.values["gpu_temperature_celsius"] == 71.0
    assert reading.values["gpu_throttled"] == 0.0
    assert [it.pid for it in reading.processes] == [os.getpid()]
    assert reading.absent["gpu_xid_errors_total"] is Absence.NO_FAMILY


@pytest.mark.parametrize(
    ("refusal", "absence", "code"),
    [
        (3, Absence.NO_FAMILY, None),
        (13, Absence.NO_FAMILY, "gpu_old_driver"),
        (4, Absence.NO_SAMPLE, "gpu_no_permission"),
        (999, Absence.UNUSABLE, "gpu_read_failed"),
    ],
)
async def test_a_number_that_is_refused_costs_that_number_only(
    gpus: FakeGpus, make: Any, refusal: int, absence: Absence, code: str | None
) -> None:
    gpus.set(_0_refuse=refusal, _1_refuse=refusal)

    reading = await make().read()

    assert reading.absent["gpu_power_watts"] is absence
    assert reading.values["gpu_memory_total_bytes"] == 160.0 * GIB
    assert ("gpu_power_watts" in {it.signal for it in reading.findings}) == (code is not None)
    assert code is None or code in codes(reading)


async def test_a_device_without_ecc_is_left_out_of_that_count_only(
    gpus: FakeGpus, make: Any
) -> None:
    gpus.set(_1_ecc=-1)

    reading = await make().read()

    assert reading.parts["gpu_ecc_errors_total"] == {"0": 2.0}
