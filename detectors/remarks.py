"""What a reading says beside its numbers: findings, changes, processes, quantiles' buckets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias


@dataclass(frozen=True, slots=True)
class Finding:
    """Something about a target that a person should know and no limit judges.

    `code` is stable (`bucket_bounds_changed`), the same finding has the same `code` and `signal`
    from reading to reading; `text` says what was seen and what to do about it.
    """

    code: str
    signal: str
    text: str


@dataclass(frozen=True, slots=True)
class Noticed:
    """A change of a target between two readings, worth a mark on every graph.

    `what` is one of a small set (`restart`, `version`, `model`, `generation_config`,
    `quantization`, `dtype`, ...); `before` and `after` are short, empty where not known. `first`
    marks what is known for the first time: whoever keeps history knows whether it is a change.
    """

    what: str
    before: str = ""
    after: str = ""
    first: bool = False


@dataclass(frozen=True, slots=True)
class Quantile:
    """A quantile of a latency over a window, and the bucket that it lies in, in seconds.

    The true value is within (`lower`, `upper`]; `upper` is infinite in the last bucket, where
    `value` is the lower bound and no more. `samples` were observed in the last `window_seconds`.
    """

    value: float
    lower: float
    upper: float
    samples: float
    window_seconds: float


Attribution: TypeAlias = Literal["target", "other", "unknown"]


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """Memory that one process holds on one device, as the driver tells it.

    `attribution` says whether the process is the target's own; `unknown` where pids of another
    namespace cannot be told apart. `name` is the command, empty if it cannot be read.
    """

    device: str
    pid: int
    used_bytes: float
    name: str = ""
    attribution: Attribution = "unknown"
