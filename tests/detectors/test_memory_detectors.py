"""GPU memory held high, container memory, fragmentation, duplicate copies, restarts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from pydantic import ValidationError

from detectors.container_memory import ContainerMemoryConfig
from detectors.duplicate_copies import DuplicateCopiesConfig
from detectors.fragmentation import FragmentationConfig
from detectors.gpu_memory_high import GpuMemoryHighConfig
from detectors.records import Absence, Identity, Level, Reading
from detectors.remarks import Finding, GpuProcess
from detectors.restarts import RestartsConfig
from tests.builders import a_reading
from tests.detectors.recordings import judged, seconds_when

GB = 1e9


def gpu(seconds: float, share: float, *, engine: str = "") -> Reading:
    values = {"gpu_memory_used_bytes": share * 80 * GB, "gpu_memory_total_bytes": 80 * GB}
    return replace(a_reading(values, seconds=seconds), identity=Identity(engine))


def gpu_levels(shares: list[float], *, engine: str = "") -> list[Level]:
    readings = [gpu(5.0 * n, share, engine=engine) for n, share in enumerate(shares)]
    return [it.level for it in judged(GpuMemoryHighConfig().build(), readings)]


def test_a_plain_server_above_the_limit_warns_at_once_and_raises_after_five_minutes() -> None:
    found = gpu_levels([0.9] * 70)

    assert found[0] is Level.WARNING
    assert found.index(Level.CRITICAL) == 60


def test_a_spike_shorter_than_five_minutes_raises_nothing() -> None:
    assert Level.CRITICAL not in gpu_levels(([0.9] * 50 + [0.5] * 10) * 5)


def test_a_healthy_vllm_at_its_reserved_memory_is_quiet_for_hours() -> None:
    rng = np.random.default_rng(4)
    start = list(np.linspace(0.1, 0.92, 60))

    found = gpu_levels(start + list(0.92 + 0.003 * rng.random(4_000)), engine="vllm")

    assert set(found) == {Level.OK}


def test_a_vllm_that_grows_beyond_what_it_reserved_is_told() -> None:
    found = gpu_levels([0.92] * 200 + [0.97] * 100, engine="vllm")

    assert set(found[:200]) == {Level.OK}
    assert found[-1] is Level.CRITICAL


def test_the_last_percent_is_too_much_on_any_engine_even_cold() -> None:
    assert gpu_levels([0.995] * 70, engine="sglang")[-1] is Level.CRITICAL


def test_an_engine_without_a_name_that_tells_its_cache_counts_as_reserving() -> None:
    readings = [
        replace(it, values={**it.values, "kv_cache_usage_ratio": 0.1})
        for it in (gpu(5.0 * n, 0.92) for n in range(200))
    ]

    assert judged(GpuMemoryHighConfig().build(), readings)[-1].level is Level.OK


def test_a_failed_read_adds_nothing_to_the_time_held() -> None:
    names = ("gpu_memory_used_bytes", "gpu_memory_total_bytes")
    lost = a_reading(absent=dict.fromkeys(names, Absence.STALE), seconds=250)
    readings = [*(gpu(5.0 * n, 0.9) for n in range(50)), lost, gpu(600, 0.9)]

    assert judged(GpuMemoryHighConfig().build(), readings)[-1].level is Level.WARNING


def container(share: float, **more: float) -> Reading:
    values = {"memory_working_set_bytes": share * 32 * GB, "memory_limit_bytes": 32 * GB}
    return a_reading({**values, **more})


def container_levels(readings: list[Reading]) -> list[Level]:
    return [it.level for it in judged(ContainerMemoryConfig().build(), readings)]


def test_container_memory_warns_at_three_quarters_and_raises_at_four_fifths() -> None:
    assert container_levels([container(0.7)] * 5) == [Level.OK] * 5
    assert container_levels([container(0.77)] * 3)[-1] is Level.WARNING
    assert container_levels([container(0.81)] * 3)[-1] is Level.CRITICAL


def test_resident_memory_counts_where_it_is_larger_than_the_working_set() -> None:
    verdict = judged(
        ContainerMemoryConfig().build(), [container(0.5, memory_rss_bytes=27 * GB)] * 3
    )[-1]

    assert verdict.level is Level.CRITICAL
    assert verdict.reason.startswith("resident memory 27 of 32 GB")


def test_a_container_without_a_limit_is_not_spoken_of() -> None:
    reading = a_reading(
        {"memory_working_set_bytes": GB}, absent={"memory_limit_bytes": Absence.UNUSABLE}
    )
    detector = ContainerMemoryConfig().build()

    assert detector.step(detector.start(), reading)[1] == ()


def test_container_limits_out_of_order_are_refused() -> None:
    with pytest.raises(ValidationError, match=r"clear 0.9 < warn 0.75"):
        ContainerMemoryConfig(clear=0.9)


def allocator(
    seconds: float, *, split: float = 0.02, allocated: float = 0.9, **more: float
) -> Reading:
    values = {
        "allocator_reserved_bytes": 60 * GB,
        "allocator_allocated_bytes": allocated * 60 * GB,
        "allocator_inactive_split_bytes": split * 60 * GB,
    }
    return a_reading({**values, **more}, seconds=seconds)


def test_split_pieces_that_last_warn_and_name_a_setting_but_never_both() -> None:
    found = judged(
        FragmentationConfig().build(), [allocator(10.0 * n, split=0.3) for n in range(70)]
    )

    assert [it.level for it in found].index(Level.WARNING) == 60
    assert "expandable_segments:True, or instead of it max_split_size_mb" in found[-1].reason
    assert "never both" in found[-1].reason


def test_one_retry_warns_at_once_and_with_pieces_is_critical() -> None:
    calm = [allocator(0, allocator_retries_total=3), allocator(10, allocator_retries_total=4)]
    broken = [
        allocator(0, split=0.3, allocator_retries_total=3),
        allocator(10, split=0.3, allocator_retries_total=4),
    ]

    assert judged(FragmentationConfig().build(), calm)[-1].level is Level.WARNING
    assert judged(FragmentationConfig().build(), broken)[-1].level is Level.CRITICAL


def test_slack_after_a_peak_is_harmless_while_its_largest_block_is_large() -> None:
    peak = {"allocated": 0.4, "allocator_largest_free_bytes": 30 * GB}
    shattered = {"allocated": 0.4, "allocator_largest_free_bytes": 2 * GB}

    def levels(more: dict[str, float]) -> set[Level]:
        readings = [allocator(10.0 * n, **more) for n in range(70)]
        return {it.level for it in judged(FragmentationConfig().build(), readings)}

    assert levels(peak) == {Level.OK}
    assert levels(shattered) == {Level.OK, Level.WARNING}


def test_with_expandable_segments_the_advice_is_another() -> None:
    told = Finding("split_share_meaningless_with_expandable_segments", "x", "y")
    readings = [
        replace(allocator(10.0 * n, allocator_retries_total=n), findings=(told,)) for n in range(3)
    ]

    verdict = judged(FragmentationConfig().build(), readings)[-1]

    assert "do not add max_split_size_mb" in verdict.reason


def test_the_worst_device_is_named() -> None:
    base = allocator(0, allocator_retries_total=1)
    parts = {
        "allocator_reserved_bytes": {"0": 30 * GB, "1": 30 * GB},
        "allocator_allocated_bytes": {"0": 29 * GB, "1": 15 * GB},
        "allocator_inactive_split_bytes": {"0": 0.0, "1": 12 * GB},
    }

    verdict = judged(FragmentationConfig().build(), [replace(base, parts=parts)])[-1]

    assert verdict.statistic == pytest.approx(0.4)
    assert "on device 1" in verdict.reason


def test_a_process_without_cuda_is_unknown_and_no_alert() -> None:
    names = ("allocator_reserved_bytes", "allocator_allocated_bytes")
    (verdict,) = judged(
        FragmentationConfig().build(), [a_reading(absent=dict.fromkeys(names, Absence.NO_SAMPLE))]
    )

    assert verdict.level is Level.UNKNOWN
    assert verdict.cause == ""


def copies(
    seconds: float, sizes: list[float], *, total: float = 80 * GB, name: str = "python"
) -> Reading:
    values = {"gpu_process_memory_bytes": sum(sizes), "gpu_memory_total_bytes": total}
    found = tuple(GpuProcess("0", 70 + n, size, name, "target") for n, size in enumerate(sizes))
    return replace(a_reading(values, seconds=seconds), processes=found)


def copy_levels(readings: list[Reading]) -> list[Level]:
    return [it.level for it in judged(DuplicateCopiesConfig().build(), readings)]


def test_two_copies_that_stay_are_told_with_pids_and_bytes() -> None:
    found = judged(
        DuplicateCopiesConfig().build(),
        [copies(10.0 * n, [15 * GB, 14.8 * GB]) for n in range(20)],
    )

    assert [it.level for it in found].index(Level.WARNING) == 12
    assert "pids 70, 71" in found[-1].reason
    assert "29.8 GB together, 0.19 of the device each" in found[-1].reason
    assert found[-1].effect == pytest.approx(14.8 * GB)


def test_copies_without_room_for_one_more_are_critical() -> None:
    assert copy_levels([copies(10.0 * n, [15 * GB] * 5) for n in range(20)])[-1] is Level.CRITICAL


def test_a_restart_that_overlaps_for_a_minute_is_quiet() -> None:
    sizes = [[15 * GB]] * 10 + [[15 * GB, 15 * GB]] * 6 + [[15 * GB]] * 10

    assert set(copy_levels([copies(10.0 * n, it) for n, it in enumerate(sizes)])) == {Level.OK}


@pytest.mark.parametrize(
    "sizes", [[15 * GB, 9 * GB], [0.4 * GB, 0.4 * GB], [15 * GB]], ids=["unlike", "small", "one"]
)
def test_processes_that_are_no_copies_are_quiet(sizes: list[float]) -> None:
    assert set(copy_levels([copies(10.0 * n, sizes) for n in range(30)])) == {Level.OK}


def test_the_same_bytes_on_different_devices_are_ranks_and_not_copies() -> None:
    ranks = tuple(GpuProcess(str(n), 70 + n, 60 * GB, "python", "target") for n in range(4))
    readings = [replace(copies(10.0 * n, [1.0]), processes=ranks) for n in range(30)]

    assert set(copy_levels(readings)) == {Level.OK}


def test_a_source_that_names_no_processes_is_not_spoken_of() -> None:
    reading = a_reading(absent={"gpu_process_memory_bytes": Absence.NO_FAMILY})
    detector = DuplicateCopiesConfig().build()

    assert detector.step(detector.start(), reading)[1] == ()


def restarts(seconds: float, **counts: float) -> Reading:
    reading = a_reading({"restarts_total": sum(counts.values())}, seconds=seconds)
    return replace(reading, parts={"restarts_total": counts})


def test_restarts_from_before_are_no_news_and_a_new_one_is_told_for_ten_minutes() -> None:
    readings = [restarts(30.0 * n, Error=4.0 + (n >= 2)) for n in range(40)]

    found = judged(RestartsConfig().build(), readings)

    told = seconds_when(found, lambda it: it.level is Level.WARNING)
    assert told[0] == 60
    assert told[-1] == 660
    assert "Error" in found[2].reason


def test_a_kill_for_memory_and_a_loop_are_critical() -> None:
    killed = [restarts(0, OOMKilled=0), restarts(30, OOMKilled=1)]
    loop = [restarts(60.0 * n, Error=float(n)) for n in range(5)]

    assert judged(RestartsConfig().build(), killed)[-1].level is Level.CRITICAL
    assert [it.level for it in judged(RestartsConfig().build(), loop)].index(Level.CRITICAL) == 3


def test_restarts_without_a_reason_are_counted_too() -> None:
    readings = [a_reading({"restarts_total": n}, seconds=30 * n) for n in (0.0, 1.0)]

    assert judged(RestartsConfig().build(), readings)[-1].reason.endswith("unknown")
