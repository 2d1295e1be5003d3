"""What the allocator probe of one process says, read from its page. Pure.

The probe is `exporters/embed/allocator_probe.py`; the names of its families are said there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from collector.sources.page.families import WantedFamilies, compile_families
from collector.sources.page.keys import SeriesCache
from collector.sources.page.page import Sample, parse
from collector.sources.page.series import is_count

PREFIX: Final = "fusewire_probe_"
FAMILIES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "allocator_allocated_bytes": f"{PREFIX}allocated_bytes",
        "allocator_reserved_bytes": f"{PREFIX}reserved_bytes",
        "allocator_active_bytes": f"{PREFIX}active_bytes",
        "allocator_inactive_split_bytes": f"{PREFIX}inactive_split_bytes",
        "allocator_largest_free_bytes": f"{PREFIX}largest_free_bytes",
        "allocator_retries_total": f"{PREFIX}retries_total",
        "allocator_ooms_total": f"{PREFIX}ooms_total",
    }
)
_INFO, _STATE, _CONF = f"{PREFIX}info", f"{PREFIX}state", f"{PREFIX}allocator_conf"
_SNAPSHOT, _EXPANDABLE = f"{PREFIX}snapshot_enabled", f"{PREFIX}expandable_segments"
_COMMON_NAME: Final = "PYTORCH_ALLOC_CONF"
_VERSION: Final = re.compile(r"(\d+)\.(\d+)")
_OBEYED_SINCE, _SURE_SINCE = (2, 10), (2, 11)  # pytorch issue 183387: 2.9.1 no, 2.11 yes


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of the allocator and who says so: a variable's name, or `torch`."""

    source: str
    conf: str
    expandable: bool
    max_split: str


@dataclass(frozen=True, slots=True)
class ProcessPage:
    """One process: `run` is new with each start, `state` is what the probe found.

    `figures` maps a canonical signal to its values by device, bytes or counts.
    """

    pid: str
    run: str
    state: str
    torch: str
    figures: Mapping[str, Mapping[str, float]]
    settings: tuple[Setting, ...] = ()
    snapshot: bool = False
    expandable_seen: bool = False
    unusable: frozenset[str] = field(default_factory=frozenset)

    @property
    def common_name_ignored(self) -> bool:
        """Whether its settings stand under a name that its torch does not surely obey."""
        version = _VERSION.match(self.torch)
        names = {it.source for it in self.settings} - {"torch"}
        if version is None or names != {_COMMON_NAME}:
            return False
        return (int(version[1]), int(version[2])) < _SURE_SINCE

    @property
    def effective(self) -> Setting | None:
        """The setting that the allocator obeys, as far as it can be told."""
        version = _VERSION.match(self.torch)
        deaf = version is not None and (int(version[1]), int(version[2])) < _OBEYED_SINCE
        known = {it.source: it for it in self.settings}
        order = ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF"]
        order = order if deaf else ["torch", _COMMON_NAME, *order]
        return next((known[source] for source in order if source in known), None)

    @property
    def expandable(self) -> bool:
        """Whether segments may grow, which leaves nothing for split pieces to say."""
        setting = self.effective
        return self.expandable_seen or (setting is not None and setting.expandable)


def wanted() -> WantedFamilies:
    """Compile what is read of a probe's page."""
    names = (*FAMILIES.values(), _INFO, _STATE, _CONF, _SNAPSHOT, _EXPANDABLE)
    return compile_families(dict.fromkeys(names, ("value",)))


def read_page(body: bytes, families: WantedFamilies, cache: SeriesCache) -> ProcessPage | None:
    """Return what a page says, None if it is no whole page of a probe; never raises."""
    page = parse(body, families, cache)
    info = _labels(page.samples.get(_INFO, ()))
    state = _labels(page.samples.get(_STATE, ())).get("state", "")
    if not info.get("run") or not state or page.cut:
        return None
    figures, unusable = {}, set()
    for signal, family in FAMILIES.items():
        samples = page.samples.get(family, ())
        good = [(series, value) for series, value in samples if is_count(value)]
        figures[signal] = {series.labels.get("device", ""): value for series, value in good}
        if len(good) < len(samples) or family in page.broken:
            unusable.add(signal)
    return ProcessPage(
        pid=info.get("pid", ""),
        run=info["run"],
        state=state,
        torch=info.get("torch", ""),
        figures=figures,
        settings=tuple(map(_setting, page.samples.get(_CONF, ()))),
        snapshot=any(value for _, value in page.samples.get(_SNAPSHOT, ())),
        expandable_seen=any(value for _, value in page.samples.get(_EXPANDABLE, ())),
        unusable=frozenset(unusable),
    )


def _labels(samples: Sequence[Sample]) -> Mapping[str, str]:
    return samples[0][0].labels if samples else {}


def _setting(sample: Sample) -> Setting:
    labels = sample[0].labels
    return Setting(
        source=labels.get("source", ""),
        conf=labels.get("conf", ""),
        expandable=labels.get("expandable_segments") in {"true", "1"},
        max_split=labels.get("max_split_size_mb", ""),
    )
