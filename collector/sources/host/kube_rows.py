"""Families of kube-state-metrics as rows of data: newest name first, the first present is read.

Version 1 called autoscalers `kube_hpa_…` with a label `hpa`, and had one family a resource.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

RESTARTS: Final = "kube_pod_container_status_restarts_total"
LAST_REASON: Final = "kube_pod_container_status_last_terminated_reason"
LAST_EXIT: Final = "kube_pod_container_status_last_terminated_exitcode"
LAST_TIME: Final = "kube_pod_container_status_last_terminated_timestamp"
WAITING: Final = "kube_pod_container_status_waiting_reason"
LIMITS: Final = "kube_pod_container_resource_limits"
LIMITS_V1: Final[Mapping[str, str]] = MappingProxyType(
    {
        "memory": "kube_pod_container_resource_limits_memory_bytes",
        "nvidia_com_gpu": "kube_pod_container_resource_limits_nvidia_gpu_devices",
    }
)
POD_INFO: Final = "kube_pod_info"
NODE_CONDITION: Final = "kube_node_status_condition"
SCALER_INFO: Final = "kube_horizontalpodautoscaler_info"
SCALER_CONDITION: Final = (
    "kube_horizontalpodautoscaler_status_condition",
    "kube_hpa_status_condition",
)
SCALER_LABELS: Final = ("horizontalpodautoscaler", "hpa")


@dataclass(frozen=True, slots=True)
class Replicas:
    """Which families feed a signal of replicas: of an autoscaler, and of what it scales."""

    signal: str
    scaler: tuple[str, ...]
    workload: tuple[str, ...] = ()


def _scaler(name: str) -> tuple[str, ...]:
    return (f"kube_horizontalpodautoscaler_{name}", f"kube_hpa_{name}")


REPLICAS: Final[tuple[Replicas, ...]] = (
    Replicas(
        "replicas_desired",
        _scaler("status_desired_replicas"),
        ("kube_deployment_spec_replicas", "kube_statefulset_replicas"),
    ),
    Replicas(
        "replicas_current",
        _scaler("status_current_replicas"),
        ("kube_deployment_status_replicas", "kube_statefulset_status_replicas"),
    ),
    Replicas("replicas_max", _scaler("spec_max_replicas")),
    Replicas("replicas_min", _scaler("spec_min_replicas")),
)
WORKLOAD_LABELS: Final = ("deployment", "statefulset")
PRESSURES: Final = ("MemoryPressure", "DiskPressure", "PIDPressure")
# why a container waits, as far as it is told by name
WAITS: Final = frozenset(
    {
        "CrashLoopBackOff",
        "ImagePullBackOff",
        "ErrImagePull",
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
    }
)
# what ended a container: the words of Kubernetes, and what an exit code says where it says Error
REASONS: Final = frozenset(
    {
        "OOMKilled",
        "Error",
        "Completed",
        "ContainerCannotRun",
        "StartError",
        "DeadlineExceeded",
        "Evicted",
    }
)
EXITS: Final[Mapping[int, str]] = MappingProxyType(
    {132: "IllegalInstruction", 134: "Aborted", 137: "Killed", 139: "Segfault", 143: "Terminated"}
)


def families() -> frozenset[str]:
    """Return every family that is read."""
    replicas = {name for row in REPLICAS for name in (*row.scaler, *row.workload)}
    own = {RESTARTS, LAST_REASON, LAST_EXIT, LAST_TIME, WAITING, LIMITS, *LIMITS_V1.values()}
    return frozenset({*replicas, *own, POD_INFO, NODE_CONDITION, SCALER_INFO, *SCALER_CONDITION})


def end_of(reason: str, exit_code: int | None) -> str:
    """Return why a container ended, as one of a bounded set.

    >>> end_of("Error", 139), end_of("OOMKilled", 137), end_of("", 137), end_of("new", None)
    ('Segfault', 'OOMKilled', 'Killed', 'other')
    """
    told = EXITS.get(exit_code, "") if exit_code is not None else ""
    if reason in {"", "Error"} and told:
        return told
    if not reason:
        return "unknown"
    return reason if reason in REASONS else "other"
