"""Puts pages of dcgm-exporter into one form: one `device` label, upper-case names, plain numbers.

Labels changed their names and case over the years; a GPU and its MIG instances stand side by side;
a GPU that pods share stands there once a pod; the last XID code and the mask of clock reasons are
no measurements; sentinels stand for what is not known.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from collector.sources.gpu.nvml_driver import MAX_DEVICES
from collector.sources.gpu.nvml_reads import HELD_DOWN
from collector.sources.page.keys import Series
from collector.sources.page.page import Page, Sample, Skip
from detectors.remarks import Finding, Noticed

_LABELS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "uuid": ("UUID", "uuid", "gpu_uuid"),
        "hostname": ("Hostname", "hostname"),
        "pod": ("exported_pod", "pod", "pod_name"),
        "namespace": ("exported_namespace", "namespace", "pod_namespace"),
        "container": ("exported_container", "container", "container_name"),
    }
)
_SENTINELS: Final = range(2_147_483_632, 2_147_483_648)  # and from _ABOVE up: "not known"
_ABOVE: Final = 140_737_488_355_328.0
_OF_UNITS: Final = ("_FB_", "_GPU_UTIL", "_GR_ENGINE_ACTIVE")  # told of MIG instances by themselves
_FREE, _USED, _RESERVED, _TOTAL = (
    f"DCGM_FI_DEV_FB_{it}" for it in ("FREE", "USED", "RESERVED", "TOTAL")
)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a series belongs: its labels under our names."""

    board: str
    instance: str
    facts: Mapping[str, str]

    @property
    def device(self) -> str:
        return f"{self.board}/{self.instance}" if self.instance else self.board


def _place(labels: Mapping[str, str]) -> _Place:
    facts = {
        name: next((labels[it] for it in spelt if labels.get(it)), "")
        for name, spelt in _LABELS.items()
    }
    return _Place(labels.get("gpu", ""), labels.get("GPU_I_ID", ""), facts)


class Tidy:
    """Puts pages of one exporter into one form; remembers what codes and times were before."""

    def __init__(self, devices: Sequence[str], match: Mapping[str, str]) -> None:
        self.findings: list[Finding] = []
        self.noticed: list[Noticed] = []
        self._devices = frozenset(devices)
        self._match = match
        self._codes: dict[str, float] = {}
        self._changes: Counter[str] = Counter()
        self._lengths: dict[str, float] = {}

    def page(self, page: Page) -> Page:
        """Return the page with the target's series only: `device`, and numbers that mean it."""
        self.findings, self.noticed = [], []
        skipped = Counter(page.skipped)
        samples: dict[str, list[Sample]] = {}
        seen: dict[str, _Place] = {}
        for family, found in _upper(page.samples).items():
            placed = [(_place(series.labels), series, value) for series, value in found]
            seen |= {it.device: it for it, _, _ in placed if len(seen) < MAX_DEVICES}
            own = [it for it in placed if self._fits(it[0])]
            samples[family] = _usable(_one_level(family, own), skipped)
        self._say_what_is_seen(seen)
        if seen and not any(samples.values()):
            self.findings.append(self._nothing_fits(seen))
        for family, found in samples.items():
            samples[family] = self._meant(family, found)
        _pair_memory(samples)
        return replace(
            page,
            samples=samples,
            skipped=skipped,
            types={family.upper(): word for family, word in page.types.items()},
            broken=frozenset(map(str.upper, page.broken)),
        )

    def _fits(self, place: _Place) -> bool:
        names = {place.device, place.board, place.facts["uuid"]}
        if self._devices and self._devices.isdisjoint(names):
            return False
        return all(place.facts[name] == text for name, text in self._match.items())

    def _meant(self, family: str, found: list[Sample]) -> list[Sample]:
        """Return the samples of a family with codes, masks and times turned into what they say."""
        if any(math.isnan(value) for _, value in found):
            return found
        if family.endswith("XID_ERRORS"):
            return [(series, self._counted(series, code)) for series, code in found]
        if family.endswith(("_EVENT_REASONS", "_THROTTLE_REASONS")):
            return [(series, float(bool(int(mask) & HELD_DOWN))) for series, mask in found]
        if family.endswith("CLOCK_EVENTS_COUNT"):
            return [(series, float(count > 0)) for series, count in found]
        if family.endswith("_VIOLATION"):
            return [it for sample in found if (it := self._lengthened(sample)) is not None]
        return found

    def _counted(self, series: Series, code: float) -> float:
        """Return how often the last XID code of a device has changed to a new one."""
        device = series.labels["device"]
        before = self._codes.get(series.key)
        if before is not None and code not in {0.0, before}:
            self._changes[series.key] += 1
            self.noticed.append(Noticed("gpu_xid", after=f"{code:g} on GPU {device}"))
        if before is not None or len(self._codes) < MAX_DEVICES:
            self._codes[series.key] = code
        if code:
            text = (
                f"the last XID error of GPU {device} was {code:g}, when, the page does not tell; "
                "look it up in the kernel log and in NVIDIA's list of XID errors"
            )
            self.findings.append(Finding("gpu_xid", "gpu_xid_errors_total", text))
        return float(self._changes[series.key])

    def _lengthened(self, sample: Sample) -> Sample | None:
        """Return 1 if the time spent throttled grew since the page before; None on the first."""
        series, length = sample
        before = self._lengths.get(series.key)
        if before is not None or len(self._lengths) < 2 * MAX_DEVICES:
            self._lengths[series.key] = length
        return None if before is None else (series, float(length > before))

    def _say_what_is_seen(self, seen: Mapping[str, _Place]) -> None:
        hosts = {it.facts["hostname"] for it in seen.values()} - {""}
        if len(hosts) > 1 and "hostname" not in self._match:
            text = (
                f"the page has GPUs of {len(hosts)} hosts, whose indices may be the same; set "
                f"'hostname' to one of: {', '.join(sorted(hosts)[:8])}"
            )
            self.findings.append(Finding("gpu_hosts_mixed", "gpu_memory_used_bytes", text))

    def _nothing_fits(self, seen: Mapping[str, _Place]) -> Finding:
        asked = {"pod", "namespace", "container"} & self._match.keys()
        if asked and not any(it.facts[name] for it in seen.values() for name in asked):
            text = (
                "the page says of no GPU which pod uses it; let dcgm-exporter see the kubelet's "
                "pod-resources socket, or name the GPUs by 'devices'"
            )
            return Finding("gpu_pods_untold", "gpu_memory_used_bytes", text)
        listed = ", ".join(
            f"{device} ({it.facts['uuid'] or it.facts['hostname']})"
            for device, it in sorted(seen.items())[:8]
        )
        text = f"no GPU of the page is what the configuration names; there are: {listed}"
        return Finding("gpu_not_found", "gpu_memory_used_bytes", text)


def _upper(samples: Mapping[str, Sequence[Sample]]) -> dict[str, list[Sample]]:
    """Return the samples by family in upper case, as all but very old builds write them."""
    found: dict[str, list[Sample]] = {}
    for family, rows in samples.items():
        found.setdefault(family.upper(), []).extend(rows)
    return found


def _one_level(family: str, found: Sequence[tuple[_Place, Series, float]]) -> list[Sample]:
    """Return one series a device: of instances where these speak for themselves, else of boards."""
    by_itself = any(word in family for word in _OF_UNITS)
    split = {it.board for it, _, _ in found if it.instance} if by_itself else set()
    out: dict[str, Sample] = {}
    for place, series, value in found:
        if not place.instance and place.board in split:
            continue  # the whole GPU, beside its instances
        device = place.device if by_itself else place.board
        event = series.labels.get("clock_event", "")
        labels = {"device": device, **({"clock_event": event} if event else {})}
        key = f"{family}{{{place.facts['uuid']} {device} {event}}}"
        known = out.get(key)  # one GPU may stand there once for each pod that shares it
        if known is None or not value <= known[1]:
            out[key] = (Series(family, series.role, key, labels), value)
    return list(out.values())


def _usable(found: list[Sample], skipped: Counter[str]) -> list[Sample]:
    """Return the samples that are measurements; if none is, all as NaN, so that this is told."""
    good = [it for it in found if 0.0 <= it[1] < _ABOVE and it[1] not in _SENTINELS]
    if not good:
        return [(series, math.nan) for series, _ in found]
    if len(good) < len(found):
        skipped[Skip.UNUSABLE] += len(found) - len(good)
    return good


def _pair_memory(samples: dict[str, list[Sample]]) -> None:
    """Make each device's total where the page has only its parts; keep what has used and total.

    A device of which one of the two is missing would falsify the share of all together.
    """
    free, used, spare, total = (
        {
            series.key.removeprefix(family): (series, value)
            for series, value in samples.get(family, ())
        }
        for family in (_FREE, _USED, _RESERVED, _TOTAL)
    )
    samples.pop(_FREE, None)
    samples.pop(_RESERVED, None)
    if not total:
        for key in free.keys() & used.keys():
            series, value = used[key]
            value += free[key][1] + (spare[key][1] if key in spare else 0.0)
            total[key] = (replace(series, family=_TOTAL), value)
    if total and used:
        samples[_USED] = [it for key, it in used.items() if key in total]
        samples[_TOTAL] = [it for key, it in total.items() if key in used]
