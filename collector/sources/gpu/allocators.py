"""The allocators of a target's processes together: sums, what is missing, what is odd. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from collector.sources.gpu.probe_pages import FAMILIES, ProcessPage
from collector.sources.page.series import MAX_PARTS, Ledger, Point
from detectors.records import Absence
from detectors.remarks import Finding
from detectors.signals import SIGNALS, Kind

SPLIT: Final = "allocator_inactive_split_bytes"
LARGEST: Final = "allocator_largest_free_bytes"
RESERVED: Final = "allocator_reserved_bytes"
_STATES: Final[Mapping[str, str]] = MappingProxyType(
    {  # the first that some process is in says why there are no figures
        "cuda_not_initialized": "torch has not touched a GPU in any of them yet, or there is none",
        "no_cuda": "torch is built without CUDA and HIP there: no CUDA, nothing to measure",
        "torch_not_loaded": "torch has not been imported in any of them yet",
        "torch_missing": "there is no torch; start the probe in the server's own environment",
    }
)


@dataclass(slots=True)
class Together:
    """What the processes hold together."""

    values: dict[str, float] = field(default_factory=dict)
    parts: dict[str, dict[str, float]] = field(default_factory=dict)
    absent: dict[str, Absence] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)


def together(pages: Sequence[ProcessPage], ledger: Ledger, *, whole: bool) -> Together:
    """Take the processes' figures together.

    Args:
        pages: One page of each process that answered, at least one.
        ledger: The memory of the counters; changed. A process that is started anew counts from
            nothing, and what the one before it counted stays counted.
        whole: Whether all processes answered; if not, no sum of what they hold is given.
    """
    out = Together(findings=[*_states(pages), *_settings(pages)])
    ledger.begin(None)
    used = [page for page in pages if page.state == "cuda"]
    whole = whole and not any(page.state == "failed" for page in pages)
    for signal in FAMILIES:
        if SIGNALS[signal].kind is Kind.COUNTER:
            _count(signal, used, ledger, out)
            continue
        absence = _no_gauge(signal, used, whole=whole)
        if absence is None:
            _gauge(signal, used, out)
        else:
            out.absent[signal] = absence
    return out


def _count(signal: str, used: Sequence[ProcessPage], ledger: Ledger, out: Together) -> None:
    points = [
        Point(f"{page.run}/{device}", value, device)
        for page in used
        for device, value in page.figures[signal].items()
    ]
    parts = ledger.counter(signal, FAMILIES[signal], points)
    if parts:  # also while a worker that counted is being started again
        out.values[signal], out.parts[signal] = math.fsum(parts.values()), parts
    else:
        out.absent[signal] = Absence.NO_SAMPLE


def _no_gauge(signal: str, used: Sequence[ProcessPage], *, whole: bool) -> Absence | None:
    """Return why a gauge has no value that can be trusted, None if it has one."""
    if not whole or any(signal in page.unusable for page in used):
        return Absence.UNUSABLE  # a sum would be silently too small
    if signal == SPLIT and any(page.expandable for page in used):
        return Absence.UNUSABLE
    if signal == LARGEST and used and not any(page.snapshot for page in used):
        return Absence.SWITCHED_OFF
    if any(page.figures[signal] for page in used):
        return None
    if signal != LARGEST and any(page.figures[RESERVED] for page in used):
        return Absence.NOT_IN_VERSION
    return Absence.NO_SAMPLE


def _gauge(signal: str, used: Sequence[ProcessPage], out: Together) -> None:
    combine: Callable[[Iterable[float]], float] = max if signal == LARGEST else math.fsum
    found: dict[str, list[float]] = {}
    for page in used:
        for device, value in page.figures[signal].items():
            found.setdefault(device, []).append(value)
    out.values[signal] = combine([value for values in found.values() for value in values])
    out.parts[signal] = {it: combine(found[it]) for it in sorted(found)[:MAX_PARTS]}


def _states(pages: Sequence[ProcessPage]) -> list[Finding]:
    found = []
    failed = [page.pid for page in pages if page.state == "failed"]
    if failed:
        text = "torch refused its figures; compare torch's version with the probe's page"
        found.append(Finding("probe_failed", RESERVED, f"process {', '.join(failed)}: {text}"))
    states = {page.state for page in pages}
    if states & {"cuda", "failed"}:
        return found
    state = next((it for it in _STATES if it in states), "")
    text = _STATES.get(state, "the probe says a state that this version does not know; upgrade")
    count = f"{len(pages)} process{'es' if len(pages) > 1 else ''} answered"
    return [Finding(state or "probe_unknown_state", RESERVED, f"{count}: {text}")]


def _settings(pages: Sequence[ProcessPage]) -> list[Finding]:
    """Return findings about settings of the allocator that do not do what they seem to."""
    found = []
    used = [page for page in pages if page.state in {"cuda", "cuda_not_initialized"}]
    expandable = [page for page in used if page.expandable]
    split = [it.effective.max_split for it in expandable if it.effective and it.effective.max_split]
    if split:
        text = (
            f"expandable_segments and max_split_size_mb:{split[0]} are both set; segments that "
            "grow are not kept from being split, and the pair has failed before: drop one of them"
        )
        found.append(Finding("expandable_segments_with_max_split_size", SPLIT, text))
    if expandable:
        text = (
            "with expandable_segments free pieces can be given back, so inactive split bytes say "
            "nothing of fragmentation and are left out; watch retries and reserved - allocated"
        )
        found.append(Finding("split_share_meaningless_with_expandable_segments", SPLIT, text))
    deaf = [page for page in used if page.common_name_ignored]
    if deaf:
        text = (
            f"torch {deaf[0].torch} may ignore PYTORCH_ALLOC_CONF={deaf[0].settings[0].conf} on "
            "CUDA (2.9.1 does, 2.11 does not): set PYTORCH_CUDA_ALLOC_CONF to the same"
        )
        found.append(Finding("alloc_conf_ignored", RESERVED, text))
    return found
