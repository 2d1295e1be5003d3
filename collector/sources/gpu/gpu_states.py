"""The words for what a GPU driver cannot or will not say, and what to do about each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import pynvml

from collector.sources.gpu.nvml_reads import Look
from detectors.records import Absence
from detectors.remarks import Finding

_ANY: Final = "gpu_memory_used_bytes"
_SHOWN: Final = 8  # of a list, in a sentence

_NO_DRIVER: Final[Mapping[int, str]] = MappingProxyType(
    {
        pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: (
            "libnvidia-ml.so.1 is not found: this machine has no NVIDIA driver, or the container "
            "does not see it; run on the GPU's machine, in a container with the NVIDIA runtime"
        ),
        pynvml.NVML_ERROR_DRIVER_NOT_LOADED: (
            "the NVIDIA driver is installed and not loaded; load it (modprobe nvidia) and look at "
            "the kernel log if that fails"
        ),
        pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: (
            "the NVIDIA driver in the kernel is of another version than its library: it was "
            "updated without a restart; restart the machine or reload the module"
        ),
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: (
            "libnvidia-ml.so.1 is too old, or no NVIDIA library; install a driver of 2019 or newer"
        ),
    }
)
_ABSENCES: Final[Mapping[int, Absence]] = MappingProxyType(
    {
        pynvml.NVML_ERROR_NOT_SUPPORTED: Absence.NO_FAMILY,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: Absence.NO_FAMILY,
        pynvml.NVML_ERROR_NO_PERMISSION: Absence.NO_SAMPLE,
    }
)


@dataclass(frozen=True, slots=True)
class State:
    """Why the driver could not be asked; `driverless` where there is none to ask."""

    driverless: bool
    finding: Finding


def state_of(code: int, words: str) -> State:
    """Return what the code means that the whole look ended with."""
    if code in _NO_DRIVER:
        return State(driverless=True, finding=Finding("gpu_no_driver", _ANY, _NO_DRIVER[code]))
    if code == pynvml.NVML_ERROR_NO_PERMISSION:
        text = (
            "the NVIDIA driver refuses this user; give it access to /dev/nvidiactl and "
            "/dev/nvidia0 (group, device cgroup, or the container's runtime)"
        )
        return State(driverless=False, finding=Finding("gpu_no_permission", _ANY, text))
    text = f"the NVIDIA driver answered {words!r} (code {code}); see the kernel log and nvidia-smi"
    return State(driverless=False, finding=Finding("gpu_read_failed", _ANY, text))


def reason_for(signal: str, look: Look) -> Absence:
    """Return why a signal has no value on any device."""
    codes = [refused.code for refused in look.refused if refused.signal == signal]
    if codes:
        return _ABSENCES.get(codes[0], Absence.UNUSABLE)
    if look.values:
        return Absence.NO_FAMILY if signal == "gpu_xid_errors_total" else Absence.NO_SAMPLE
    return Absence.NO_SAMPLE if look.lost or look.blocked else Absence.NO_DATA


def findings_of(look: Look) -> Iterator[Finding]:
    """Yield what a person should know of the devices."""
    if look.lost:
        text = (
            f"GPU {_list(look.lost)} does not answer any more; look for XID lines in the kernel "
            "log, drain the machine, then reset the device or restart"
        )
        yield Finding("gpu_lost", _ANY, text)
    if look.missing:
        there = _list(look.present) or "none"
        text = f"GPU {_list(look.missing)} is not there; correct 'devices', there are: {there}"
        yield Finding("gpu_not_found", _ANY, text)
    if look.blocked:
        text = (
            f"GPU {_list(look.blocked)} may not be opened; give this user or container access to "
            "its /dev/nvidia file, or leave it out of 'devices'"
        )
        yield Finding("gpu_no_permission", _ANY, text)
    if not look.values and not (look.lost or look.missing or look.blocked):
        yield Finding("gpu_not_found", _ANY, "the NVIDIA driver is there and finds no GPU")
    yield from _refusals(look)


def _refusals(look: Look) -> Iterator[Finding]:
    """Yield one finding a signal that a driver could tell and did not."""
    said = set()
    for refused in look.refused:
        if refused.code == pynvml.NVML_ERROR_NOT_SUPPORTED or refused.signal in said:
            continue  # many devices have no ECC, no MIG instance has a utilisation
        said.add(refused.signal)
        if refused.code == pynvml.NVML_ERROR_FUNCTION_NOT_FOUND:
            text = "this driver is too old to tell it; update the driver"
            yield Finding("gpu_old_driver", refused.signal, text)
        elif refused.code == pynvml.NVML_ERROR_NO_PERMISSION:
            text = f"GPU {refused.device}: the driver tells it to root only; give the rights"
            yield Finding("gpu_no_permission", refused.signal, text)
        else:
            text = f"GPU {refused.device}: the driver answered {refused.text!r}; see nvidia-smi"
            yield Finding("gpu_read_failed", refused.signal, text)


def _list(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
