"""The GPUs of a target, through NVIDIA's management library on the same machine.

No driver, no permission, a device that is lost, a driver that hangs: these are states with words of
their own, never errors. What can be read is read, and the rest says why it is not there.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from collector.sources.fetch import Outcome
from collector.sources.gpu.gpu_owner import Owned, Owners, OwnProcesses
from collector.sources.gpu.gpu_states import findings_of, reason_for, state_of
from collector.sources.gpu.nvml_driver import MAX_DEVICES, NvmlDriver
from collector.sources.gpu.nvml_reads import Look
from collector.sources.one_thread import OneThread, StuckError
from collector.sources.page.series import Ledger, Point
from collector.sources.protocols import Place, ScrapeStats, Source, Tools
from collector.values import Kind, Seconds
from detectors.records import Absence, Reading
from detectors.remarks import Finding, Noticed

NVML: Final = "nvml"
CLOSE_SECONDS: Final = 1.0
PROC: Final = Path("/proc")
SUMMED: Final = frozenset(
    {
        "gpu_memory_used_bytes",
        "gpu_memory_total_bytes",
        "gpu_process_memory_bytes",
        "gpu_power_watts",
    }
)
_LARGEST: Final = ("gpu_utilization_ratio", "gpu_temperature_celsius", "gpu_throttled")
_ECC: Final = "gpu_ecc_errors_total"
_XID: Final = "gpu_xid_errors_total"
OFFERED: Final = frozenset({*SUMMED, *_LARGEST, _ECC, _XID})


def _as_text(value: object) -> object:
    """Read an index that was written as a number."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


Device: TypeAlias = Annotated[
    str,
    BeforeValidator(_as_text),
    Field(pattern=r"^([0-9]{1,3}(/[0-9]{1,2})?|(GPU|MIG)-[0-9A-Za-z./-]{1,100})$"),
    Kind("GPU"),
]


class NvmlConfig(BaseModel):
    """The target's GPUs, by the driver of this machine (docs/sources/gpu.md)."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    kind: Literal["nvml"] = "nvml"
    devices: Literal["all"] | tuple[Device, ...] = Field(
        default="all",
        description="`all`, or the target's own: indices (`0`), MIG instances (`0/1`), UUIDs.",
    )
    processes: OwnProcesses = Field(
        default_factory=OwnProcesses,
        description="Which processes are the target's; by default who listens on its port.",
    )
    interval: Seconds = Field(default=5.0, description="Time between reads.")

    def build(self, place: Place, tools: Tools) -> Source:
        """Return the source; nothing is opened."""
        return NvmlSource(self, place, tools)


@dataclass(frozen=True, slots=True)
class _Found:
    """What came back from the thread."""

    look: Look
    owned: Owned


class NvmlSource:
    """Reads the driver. Not to be read twice at a time: `polling.poll` sees to that."""

    def __init__(
        self, settings: NvmlConfig, place: Place, tools: Tools, *, proc: Path = PROC
    ) -> None:
        self.name = f"{NVML}:{place.tier}/{place.target}"
        self._place = place
        self._tools = tools
        wanted = () if settings.devices == "all" else settings.devices
        self._timeout = min(tools.timeout_seconds, 2 * settings.interval)  # before it goes stale
        self._driver = NvmlDriver(wanted)
        self._owners = Owners(settings.processes, _port(place.url), proc=proc)
        self._thread = OneThread(self.name, monotonic=tools.monotonic)
        self._ledger = Ledger()
        self._xids: Counter[str] = Counter()
        self._lost: frozenset[str] = frozenset()
        self._outcomes: Counter[str] = Counter()

    def stats(self) -> ScrapeStats:
        """Return the counts so far."""
        return ScrapeStats(outcomes=dict(self._outcomes), series=self._ledger.tracked)

    async def close(self) -> None:
        """Let the driver go, as soon as what runs in it has come back."""
        await self._thread.finish(self._driver.release, timeout_seconds=CLOSE_SECONDS)

    async def read(self) -> Reading:
        """Ask the driver once; its trouble is in the reading, never raised."""
        started = self._tools.monotonic()
        try:
            found = await self._thread.run(self._look, timeout_seconds=self._timeout)
        except StuckError as error:
            return self._hung(error, started)
        if found.look.trouble is not None:
            return self._without_driver(*found.look.trouble, started)
        return self._reading(found, started)

    def _look(self) -> _Found:
        look = self._driver.look()
        listed = look.values.pop("gpu_process_memory_bytes", {})
        used = look.values.get("gpu_memory_used_bytes", {})
        owned = self._owners.attribute(look.rows, {it: used.get(it, 0.0) for it in listed})
        return _Found(look, owned)

    def _hung(self, error: StuckError, started: float) -> Reading:
        self._outcomes[Outcome.TIMEOUT] += 1
        problem = (
            f"the NVIDIA driver has not answered for {error.seconds:.0f} s; a device is probably "
            "lost: look for XID lines in the kernel log, drain the machine and reset the device"
        )
        finding = Finding("gpu_driver_hung", "gpu_memory_used_bytes", problem)
        absent = dict.fromkeys(OFFERED, Absence.SCRAPE_FAILED)
        return replace(self._plain(started, problem=problem), absent=absent, findings=(finding,))

    def _without_driver(self, code: int, words: str, started: float) -> Reading:
        state = state_of(code, words)
        self._outcomes[Outcome.NO_DATA if state.driverless else Outcome.UNUSABLE] += 1
        absence = Absence.NO_DRIVER if state.driverless else Absence.SCRAPE_FAILED
        problem = "" if state.driverless else state.finding.text
        return replace(
            self._plain(started, problem=problem),
            absent=dict.fromkeys(OFFERED, absence),
            findings=(state.finding,),
        )

    def _reading(self, found: _Found, started: float) -> Reading:
        look, owned = found.look, found.owned
        self._outcomes[Outcome.CUT if look.lost else Outcome.READ] += 1
        parts = {it: dict(values) for it, values in look.values.items() if it != _ECC}
        if owned.own_bytes:
            parts["gpu_process_memory_bytes"] = dict(owned.own_bytes)
        parts |= self._counters(look)
        values = {signal: _whole(signal, split) for signal, split in parts.items()}
        return replace(
            self._plain(started, values),
            parts=parts,
            absent={it: reason_for(it, look) for it in OFFERED - values.keys()},
            findings=(*findings_of(look), *owned.findings),
            noticed=self._noticed(look),
            processes=owned.processes,
        )

    def _counters(self, look: Look) -> dict[str, dict[str, float]]:
        """Return ECC and XID errors by device; those of a lost device stay counted."""
        self._ledger.begin(None)
        ecc = look.values.get(_ECC, {})
        points = [Point(device, value, device) for device, value in ecc.items()]
        found = {_ECC: self._ledger.counter(_ECC, NVML, points)}
        for device in look.values.get("gpu_temperature_celsius", {}) if look.xids_watched else ():
            self._xids[device] += 0
        for device, _ in look.xids:
            known = device in self._xids or len(self._xids) < MAX_DEVICES
            self._xids[device if known else ""] += 1
        found[_XID] = {device: float(count) for device, count in self._xids.items()}
        return {signal: parts for signal, parts in found.items() if parts}

    def _noticed(self, look: Look) -> tuple[Noticed, ...]:
        lost = frozenset(look.lost)
        noticed = [
            Noticed("gpu_xid", after=f"{code} on GPU {device}") for device, code in look.xids
        ]
        noticed += [Noticed("gpu_lost", after=it) for it in sorted(lost - self._lost)]
        noticed += [Noticed("gpu_returned", after=it) for it in sorted(self._lost - lost)]
        self._lost = lost
        return tuple(noticed)

    def _plain(
        self, started: float, values: Mapping[str, float] | None = None, *, problem: str = ""
    ) -> Reading:
        """Return a reading of now with nothing in it but `values`."""
        ended = self._tools.monotonic()
        return Reading(
            tier=self._place.tier,
            target=self._place.target,
            source=NVML,
            at=self._tools.now(),
            monotonic_seconds=ended,
            scrape_seconds=ended - started,
            values={
                **(values or {}),
                "up": float(not problem),
                "scrape_seconds": ended - started,
            },
            problem=problem,
            neighbour=self._place.neighbour,
        )


def _whole(signal: str, parts: Mapping[str, float]) -> float:
    """Return the number of all devices together: a sum, or the worst of them."""
    if signal in _LARGEST:
        return max(parts.values())
    return math.fsum(parts.values())


def _port(url: str) -> int:
    parts = urlsplit(url)
    return parts.port or (443 if parts.scheme == "https" else 80)
