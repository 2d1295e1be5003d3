"""What one device is asked, each number the newest way that its driver knows.

A refusal is noted and costs that number only; a device that is lost ends its own reading.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import pynvml

from collector.sources.gpu.gpu_owner import GpuRow

Handle: TypeAlias = Any  # an opaque pointer of the library; pynvml has no types

LOST: Final = frozenset(
    {
        pynvml.NVML_ERROR_GPU_IS_LOST,
        pynvml.NVML_ERROR_RESET_REQUIRED,
        pynvml.NVML_ERROR_GPU_NOT_FOUND,
    }
)
_OLDER: Final = frozenset(
    {
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
        pynvml.NVML_ERROR_DEPRECATED,
    }
)
HELD_DOWN: Final = 0xEC  # power cap, slowdown, heat by software and by hardware, power brake


@dataclass(frozen=True, slots=True)
class Refused:
    """A number that the driver would not give: for which signal, and its code."""

    signal: str
    device: str
    code: int
    text: str


@dataclass(slots=True)
class Look:
    """What one look found. `values` is signal by device; `xids` are (device, code).

    `lost` are wanted devices that do not answer, `missing` wanted ones that there never were,
    `blocked` those that we may not open; `present` says what there is. `trouble` is the code and
    the words of the driver where nothing could be asked at all.
    """

    values: dict[str, dict[str, float]] = field(default_factory=dict)
    rows: list[GpuRow] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    blocked: list[str] = field(default_factory=list)
    present: list[str] = field(default_factory=list)
    xids: list[tuple[str, int]] = field(default_factory=list)
    xids_watched: bool = False
    broken: bool = False  # something on this machine is lost, wanted or not
    trouble: tuple[int, str] | None = None


class DeviceLostError(Exception):
    """A device stopped answering in the middle of a look."""


def _take(
    out: Look, label: str, signals: tuple[str, ...], *ways: Callable[[], tuple[float, ...]]
) -> None:
    """Take numbers the newest way that this driver knows; note a refusal.

    Raises:
        DeviceLostError: If the device does not answer any more.
    """
    refusal = None
    for way in ways:
        try:
            numbers = way()
        except pynvml.NVMLError as error:
            if error.value in LOST:
                raise DeviceLostError(label) from error
            refusal = error
            if error.value in _OLDER:
                continue
            break
        for signal, number in zip(signals, numbers, strict=True):
            out.values.setdefault(signal, {})[label] = float(number)
        return
    if refusal is not None:
        out.refused += [Refused(it, label, refusal.value, str(refusal)) for it in signals]


def _read_memory(out: Look, label: str, handle: Handle) -> None:
    def plain() -> tuple[float, ...]:
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
        return memory.used, memory.total

    def without_reserve() -> tuple[float, ...]:  # what the driver keeps for itself is not "used"
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle, pynvml.nvmlMemory_v2)
        return memory.used, memory.total

    signals = ("gpu_memory_used_bytes", "gpu_memory_total_bytes")
    _take(out, label, signals, without_reserve, plain)


def _read_utilization(out: Look, label: str, handle: Handle) -> None:
    def ratio() -> tuple[float, ...]:
        return (pynvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100,)

    _take(out, label, ("gpu_utilization_ratio",), ratio)


def _read_temperature(out: Look, label: str, handle: Handle) -> None:
    core = pynvml.NVML_TEMPERATURE_GPU
    _take(
        out,
        label,
        ("gpu_temperature_celsius",),
        lambda: (pynvml.nvmlDeviceGetTemperatureV(handle, core),),
        lambda: (pynvml.nvmlDeviceGetTemperature(handle, core),),
    )


def _read_power(out: Look, label: str, handle: Handle) -> None:
    signals = ("gpu_power_watts",)
    _take(out, label, signals, lambda: (pynvml.nvmlDeviceGetPowerUsage(handle) / 1000,))


def _read_throttling(out: Look, label: str, handle: Handle) -> None:
    def held(ask: Callable[[Handle], int]) -> Callable[[], tuple[float, ...]]:
        return lambda: (float(bool(ask(handle) & HELD_DOWN)),)

    _take(
        out,
        label,
        ("gpu_throttled",),
        held(pynvml.nvmlDeviceGetCurrentClocksEventReasons),
        held(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons),
    )


def _read_ecc(out: Look, label: str, handle: Handle) -> None:
    def errors() -> tuple[float, ...]:
        kind = pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
        return (pynvml.nvmlDeviceGetTotalEccErrors(handle, kind, pynvml.NVML_VOLATILE_ECC),)

    _take(out, label, ("gpu_ecc_errors_total",), errors)


def _read_processes(out: Look, label: str, handle: Handle) -> None:
    """Read the processes with a compute context, clients of an MPS server included."""
    found: dict[int, float | None] = {}

    def listed(ask: Callable[[Handle], Any]) -> Callable[[], tuple[float, ...]]:
        def take() -> tuple[float, ...]:
            for process in ask(handle):
                used = process.usedGpuMemory
                found[int(process.pid)] = None if used is None else float(used)
            return (math.fsum(used or 0.0 for used in found.values()),)

        return take

    _take(
        out,
        label,
        ("gpu_process_memory_bytes",),
        listed(pynvml.nvmlDeviceGetComputeRunningProcesses_v3),
        listed(pynvml.nvmlDeviceGetComputeRunningProcesses_v2),
    )
    with contextlib.suppress(pynvml.NVMLError):
        listed(pynvml.nvmlDeviceGetMPSComputeRunningProcesses_v3)()
    out.rows += [GpuRow(label, pid, used) for pid, used in sorted(found.items())]


UNIT_READS: Final = (_read_memory, _read_utilization, _read_processes)
BOARD_READS: Final = (_read_temperature, _read_power, _read_throttling, _read_ecc)
