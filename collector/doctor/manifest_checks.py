"""What in a manifest is known to have killed inference tiers, and what to write instead."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from collector.doctor.manifest import Autoscaler, Container, Manifest, Workload
from detectors.remarks import Finding

_QUEUE_FLAGS: Final = {
    "vllm": ("max-num-queued-reqs", "max-num-queued-tokens"),
    "sglang": ("max-queued-requests",),
}
_PROMPT_FLAGS: Final = {
    "vllm": ("max-model-len",),
    "tgi": ("max-input-tokens", "max-input-length"),
    "sglang": ("context-length",),
    "llamacpp": ("ctx-size",),
}
_PARALLEL_FLAGS: Final = ("tensor-parallel-size", "num-shard", "tp-size", "tp")


def manifest_findings(manifest: Manifest) -> tuple[Finding, ...]:
    """Return what is wrong, in the order of the files; `signal` is what would show the harm."""
    return tuple(_findings(manifest))


def _findings(manifest: Manifest) -> Iterator[Finding]:
    for workload in manifest.workloads:
        engines = [it for it in workload.containers if it.engine]
        for container in engines:
            yield from _of_container(container)
        if len(engines) > 1:
            names = ", ".join(it.name for it in engines)
            yield Finding(
                "several_engines_in_a_pod",
                "gpu_process_memory_bytes",
                f"{workload.place}: {names} each load their own weights on the pod's GPUs; "
                "serve variants from one engine (adapters), or give each its own GPU",
            )
        if engines:
            yield from _of_scaling(workload, manifest)
    for autoscaler in manifest.autoscalers:
        if autoscaler.least == autoscaler.most:
            yield Finding(
                "hpa_min_equals_max",
                "replicas_max",
                f"{autoscaler.place}: minReplicas and maxReplicas are both {autoscaler.most:g}, so "
                "it never scales; raise maxReplicas",
            )


def _of_container(container: Container) -> Iterator[Finding]:
    for check in (_limits, _ceilings, _allocator, _probes, _gpus):
        yield from check(container)


def _limits(container: Container) -> Iterator[Finding]:
    if container.memory_limit_bytes is None:
        yield Finding(
            "no_memory_limit",
            "memory_limit_bytes",
            f"{container.place}: no memory limit, so a leak takes the node's other pods along; "
            "set resources.limits.memory above the measured peak",
        )


def _ceilings(container: Container) -> Iterator[Finding]:
    queue = _QUEUE_FLAGS.get(container.engine)
    if queue and container.option(*queue) is None:
        yield Finding(
            "no_queue_cap",
            "requests_waiting",
            f"{container.place}: the queue has no bound; set --{queue[0]} (vLLM has it from 0.29 "
            "on), or let the gateway shed",
        )
    prompt = _PROMPT_FLAGS.get(container.engine)
    if prompt and container.option(*prompt) is None:
        yield Finding(
            "no_prompt_ceiling",
            "context_tokens",
            f"{container.place}: prompts may be as long as the model allows; set --{prompt[0]} to "
            "the longest that your callers need",
        )


def _allocator(container: Container) -> Iterator[Finding]:
    for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        words = container.environment.get(name, "").replace(" ", "").lower()
        if "expandable_segments:true" in words and "max_split_size_mb" in words:
            yield Finding(
                "expandable_segments_with_max_split_size",
                "allocator_inactive_split_bytes",
                f"{container.place}: {name} sets expandable_segments and max_split_size_mb; the "
                "second has no effect beside the first: remove one",
            )


def _probes(container: Container) -> Iterator[Finding]:
    liveness = container.probes.get("liveness")
    if not container.probes:
        yield Finding(
            "no_probes",
            "up",
            f"{container.place}: no probes, so traffic comes before the weights are loaded; set "
            "startupProbe and readinessProbe",
        )
    elif container.engine == "tgi" and liveness and liveness.kind == "http":
        yield Finding(
            "liveness_kills_a_full_server",
            "requests_waiting",
            f"{container.place}: TGI's {liveness.path or '/health'} also fails while the server is "
            "merely full, and a failed liveness probe restarts it; use a TCP probe for liveness",
        )
    elif all(it.kind == "http" for it in container.probes.values()):
        yield Finding(
            "probes_only_check_http",
            "probe_up",
            f"{container.place}: its probes only ask the HTTP server, which answers while the "
            "engine hangs; add 'sources: [{kind: probe}]' to the target",
        )


def _gpus(container: Container) -> Iterator[Finding]:
    asked = container.option(*_PARALLEL_FLAGS)
    wanted = int(asked) if asked and asked.isdigit() else 1
    if container.gpus is None:
        yield Finding(
            "no_gpu_limit",
            "gpu_memory_total_bytes",
            f"{container.place}: no GPU in resources.limits, so the scheduler may put two engines "
            f"on one; set nvidia.com/gpu: {wanted}",
        )
    elif wanted > container.gpus:
        yield Finding(
            "fewer_gpus_than_shards",
            "gpu_memory_total_bytes",
            f"{container.place}: {wanted} shards on {container.gpus:g} GPUs; set nvidia.com/gpu: "
            f"{wanted}, or fewer shards",
        )


def _of_scaling(workload: Workload, manifest: Manifest) -> Iterator[Finding]:
    scalers = [it for it in manifest.autoscalers if it.target == (workload.kind, workload.name)]
    if not scalers and workload.kind in {"Deployment", "StatefulSet"}:
        yield Finding(
            "no_autoscaler",
            "replicas_max",
            f"{workload.place}: {workload.replicas:g} replicas and no HorizontalPodAutoscaler for "
            "it in these files; load beyond them only queues",
        )
    needed = _most_replicas(workload, scalers) * sum(it.gpus or 0.0 for it in workload.containers)
    for quota in manifest.quotas:
        if quota.namespace != workload.namespace or quota.gpus is None:
            continue
        if needed > quota.gpus:
            yield Finding(
                "gpu_quota_below_scale",
                "replicas_max",
                f"{quota.place}: {quota.gpus:g} GPUs, but {workload.place} at its most replicas "
                f"needs {needed:g}; raise the quota or lower the most",
            )


def _most_replicas(workload: Workload, scalers: Iterable[Autoscaler]) -> float:
    return max([workload.replicas, *(it.most for it in scalers)])
