r"""Troubles and limits that engines, torch and the kernel write into logs, as rows of data.

A row's `needle` stands in every line that it is about, and is looked for first: a plain search
costs next to nothing, and lines without any are never looked at closely. Sources: the logs and
issues of the projects, and the recorded lines in the tests. Nothing here keeps text of a line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True)
class LogPattern:
    """One trouble: `code` is its part of `log_events_total`; without `advice` it is only counted.

    `regex` is looked for anywhere in a line that has the needle; None takes the needle for it.
    """

    code: str
    needle: bytes
    regex: re.Pattern[bytes] | None = None
    advice: str = ""


@dataclass(frozen=True, slots=True)
class LogFact:
    """Something that a server states of itself; its numbers are the named groups of `regex`."""

    needle: bytes
    regex: re.Pattern[bytes] = field(repr=False)


def _row(code: str, needle: str, regex: str = "", advice: str = "") -> LogPattern:
    compiled = re.compile(regex.encode()) if regex else None
    return LogPattern(code, needle.encode(), compiled, advice)


def _fact(needle: str, regex: str) -> LogFact:
    return LogFact(needle.encode(), re.compile(regex.encode()))


TORCH_OOM: Final = "torch_oom"
KERNEL_OOM: Final = "kernel_oom_kill"
XID: Final = "xid"
_NAMED_XIDS: Final = frozenset({13, 31, 43, 45, 48, 61, 62, 63, 64, 74, 79, 92, 94, 95, 119, 120})

_GPU_FULL = "GPU memory ran out: fewer or shorter requests at a time, or a smaller memory share"
_HOST_FULL = "this machine or container ran out of memory: raise its limit or lower the load"
_LIMITED = "a server answers 429: send fewer at a time, and wait as long as Retry-After says"
_ENGINE_DEAD = "the engine died and answers nothing more: it must be restarted"
_ONE_LINE = "an operation of the GPU failed and the process cannot go on: restart the server"

EVENTS: Final[tuple[LogPattern, ...]] = (
    _row(TORCH_OOM, "out of memory. Tried", r"(?:CUDA|HIP|XPU) out of memory\. Tried", _GPU_FULL),
    _row("cuda_oom", "CUDA error: out of memory", "", _GPU_FULL),
    _row("cuda_oom", "CUDA_ERROR_OUT_OF_MEMORY", "", _GPU_FULL),
    _row("cuda_oom", "cudaErrorMemoryAllocation", "", _GPU_FULL),
    _row("cuda_oom", "cudaMalloc failed: out of memory", "", _GPU_FULL),
    _row(
        KERNEL_OOM,
        "Killed process ",
        r"Killed process \d+ (?:\([^)\n]{0,64}\),? ?)?(?:total-vm|UID|score)?",
        "the kernel killed a process for memory: raise the limit or lower the load",
    ),
    _row(
        "oom_in_cgroup", "oom-kill:constraint=CONSTRAINT_MEMCG", "", "a container's limit is full"
    ),
    _row(
        "oom_on_machine",
        "oom-kill:constraint=",
        "oom-kill:constraint=CONSTRAINT_(?!MEMCG)",
        "the whole machine is out of memory: put limits on its containers",
    ),
    _row("unit_oom_kill", "killed by the OOM killer", "", _HOST_FULL),
    _row(
        "memory_allocation_failed",
        "emory allocation ",
        r"[Mm]emory allocation (?:failed|of \d+ bytes failed)",
        _HOST_FULL,
    ),
    _row("memory_error", "MemoryError", r"(?:_Array|(?<![A-Za-z_]))MemoryError\b", _HOST_FULL),
    _row(
        "cannot_allocate_memory", "annot allocate memory", "[Cc]annot allocate memory", _HOST_FULL
    ),
    _row("buffer_allocation_failed", "ailed to allocate buffer", "", _HOST_FULL),
    _row(
        "collection_failed",
        "ailed to create collection",
        "",
        "the vector store could not make a collection: look at its memory and its log",
    ),
    _row(
        "queue_full",
        "QueueFull",
        r"\bQueueFull\b",
        "a bounded queue is full: the sender must wait (back-pressure), or the queue be drained",
    ),
    _row("queue_full", "queue.Full", r"\bqueue\.Full\b"),
    _row("rate_limited", "RateLimitError", "", _LIMITED),
    _row(
        "rate_limited",
        "429",
        r"(?:\" 429\b|\b429 Too Many|[Ss]tatus(?:[_ ]?[Cc]ode)?[\"']?[=: ]{1,3}429\b"
        r"|[Ee]rror code: 429\b)",
        _LIMITED,
    ),
    _row("overloaded", "Model is overloaded", "", "the engine refuses requests: all slots taken"),
    _row("gpu_illegal_access", "an illegal memory access was encountered", "", _ONE_LINE),
    _row("gpu_assert", "device-side assert triggered", "", _ONE_LINE),
    _row("gpu_ecc", "uncorrectable ECC error", "", "GPU memory is damaged: take the GPU out"),
    _row(
        "cuda_error",
        "CUDA error: ",
        r"CUDA error: (?!out of memory|an illegal memory|device-side assert|uncorrectable ECC)",
        _ONE_LINE,
    ),
    _row(
        XID, "NVRM: Xid", r"NVRM: Xid \([^)\n]{0,64}\): (\d{1,3})\b", "the driver saw a GPU error"
    ),
    _row(
        "nccl_timeout",
        "Watchdog caught collective operation timeout",
        "",
        "GPUs of one engine wait for each other in vain: one hangs, or the network between them",
    ),
    _row(
        "nccl_error",
        "nccl",
        r"\bnccl(?:InternalError|UnhandledCudaError|SystemError|RemoteError)\b",
        "GPUs of one engine cannot talk to each other; restart it, look at the links",
    ),
    _row("engine_dead", "EngineDeadError", "", _ENGINE_DEAD),
    _row("engine_dead", "EngineCore encountered a fatal error", "", _ENGINE_DEAD),
    _row("engine_dead", "EngineCore", r"EngineCore\w{0,16} died unexpectedly", _ENGINE_DEAD),
    _row("engine_dead", "Background loop has errored already", "", _ENGINE_DEAD),
    _row("worker_died", "Worker proc ", r"Worker proc [\w-]{1,32} died unexpectedly", _ENGINE_DEAD),
    _row(
        "shard_crashed",
        "hard",
        r"(?:Shard \d{1,3} crashed|Shard \d{1,3} failed to start|[Ss]hard process was signaled)",
        "a shard of TGI died: the server ends with it",
    ),
    _row("segfault", "Segmentation fault", "", "a process crashed in native code"),
    _row("segfault", " segfault at ", "", "a process crashed in native code"),
    _row(
        "duplicate_timeseries",
        "Duplicated timeseries in CollectorRegistry",
        "",
        "the server dies at its start because a metric is registered twice; this is a bug of its "
        "version or of a connector, no trouble of scraping",
    ),
    _row(
        "port_in_use",
        "ddress already in use",
        "",
        "two servers want one port; TGI's --prometheus-port is 9000 for every server of a host",
    ),
    _row(
        "kv_cache_does_not_fit",
        "KV cache",
        r"larger than the maximum number of tokens that can be stored in KV cache",
        "the context does not fit: lower max_model_len or raise the memory share",
    ),
    _row(
        "kv_cache_does_not_fit",
        "No available memory for the cache blocks",
        "",
        "the model leaves no room for a KV cache: raise the memory share",
    ),
    _row("preempted", "is preempted by PreemptionMode."),
    _row("preempted", "KV cache pool is full. Retract requests"),
    _row("preempted", "Decode out of memory happened"),
    _row(
        "request_too_long",
        "inputs",
        r"`inputs` (?:tokens \+ `max_new_tokens` must be|must have less than)",
    ),
    _row("request_too_long", "maximum context length is"),
    _row("request_aborted", "Aborted request"),
    _row("server_error", '" 5', r"HTTP/[0-9.]{1,3}\\?\" 5\d\d\b"),
    _row("disk_full", "No space left on device", "", "a disk is full"),
)

# of a target with several engines each states its own limits: EngineCore_DP1, [… DP1 TP0]
ENGINE: Final = re.compile(rb"(?:EngineCore_(?:DP)?|\bDP)(\d{1,4})\b")
FACTS: Final[tuple[LogFact, ...]] = (
    _fact("KV cache size: ", r"KV cache size: (?P<kv_tokens>[\d,]{1,20}) tokens"),
    _fact(
        "Maximum concurrency for ",
        r"Maximum concurrency for (?P<context>[\d,]{1,20}) tokens per request: "
        r"(?P<concurrency>\d{1,9}(?:\.\d{1,6})?)x",
    ),
    _fact(" blocks: ", r"# (?!CPU)\w{1,12} blocks: (?P<blocks>\d{1,12}), # CPU blocks: "),
    _fact("max_num_seqs", r"\bmax_num_seqs'?[=:] ?(?P<slots>\d{1,9})\b"),
    _fact(
        "Setting max batch total tokens to ",
        r"Setting max batch total tokens to (?P<batch_tokens>\d{1,12})",
    ),
    _fact("otal tokens defaulted to ", r"otal tokens defaulted to (?P<context>\d{1,12})"),
    _fact(
        "max_total_num_tokens=",
        r"max_total_num_tokens=(?P<kv_tokens>\d{1,12})\b"
        r"(?:[^\n]{0,200}?max_running_requests=(?P<slots>\d{1,9})\b)?"
        r"(?:[^\n]{0,200}?context_len=(?P<context>\d{1,12})\b)?",
    ),
)

# whether a server is on its way up; True where it begins, False where it is there
PHASES: Final[tuple[tuple[bool, LogFact], ...]] = (
    (True, _fact("vLLM API server version", "vLLM API server version")),
    (True, _fact("text_generation_launcher: Args {", "Args {")),
    (True, _fact("server_args=ServerArgs(", "ServerArgs")),
    (False, _fact("Application startup complete", "startup complete")),
    (False, _fact(": Connected", r"text_generation_router.{0,80}: Connected\b")),
    (False, _fact("The server is fired up and ready to roll", "ready to roll")),
)
LAUNCHER_BEGINS: Final = b"text_generation_launcher: Args {"
LAUNCHER_FACT: Final = re.compile(
    rb"\b(?P<name>max_batch_total_tokens|max_total_tokens): Some\(\s*(?P<number>\d{1,12})"
)
# lines that carry what users wrote: nothing in them is an event of the server
USER_TEXT: Final = re.compile(
    rb"Received request |Generated response |prompt: ['\"]|prompt_token_ids|server\.rs:\d+: Input: "
    rb"|\b(?:Generate|Embedding)ReqInput\("
)


def xid_code(number: int) -> str:
    """Return the code of an XID error; those that are rare share one."""
    return f"{XID}_{number}" if number in _NAMED_XIDS else f"{XID}_other"
