"""GPUs by a page of dcgm-exporter: rows of data, for pages that `Tidy` has put into one form."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from collector.sources.engine.engines import Across, Alias, Engine, Filter, Row, Term
from collector.sources.gpu.dcgm_tidy import Tidy
from collector.sources.gpu.nvml import Device
from collector.sources.other_pages import page_source
from collector.sources.protocols import Place, ScrapeStats, Source, Tools
from collector.sources.scrape import ScrapeSource
from collector.values import HttpUrl, Seconds
from detectors.records import Reading

_MIB: Final = 1_048_576.0
_DEV: Final = "DCGM_FI_DEV_"
_HELD: Final[Filter] = (
    (
        "clock_event",
        frozenset({"power_cap", "hw_slowdown", "sw_thermal", "hw_thermal", "hw_power_brake"}),
    ),
)


def _row(signal: str, *choices: tuple[str, ...], scale: float = 1.0, across: Across = "max") -> Row:
    """Return a row; a choice is families that add up, those with `?` if they are there."""
    aliases = []
    for families in choices:
        for spelt in (families, tuple(it.lower() for it in families)):
            terms = tuple(
                Term(
                    family.removesuffix("?"),
                    part_label="device",
                    keep=_HELD if "CLOCK_EVENTS_COUNT" in family.upper() else (),
                    optional=family.endswith("?"),
                )
                for family in spelt
            )
            aliases.append(Alias(terms, scale=scale))
    return Row(signal, tuple(aliases), across)


DCGM: Final = Engine(
    name="dcgm",
    prefix="",
    rows=(
        _row("gpu_memory_used_bytes", (f"{_DEV}FB_USED",), scale=_MIB, across="sum"),
        _row(
            "gpu_memory_total_bytes",
            (f"{_DEV}FB_TOTAL",),
            (f"{_DEV}FB_FREE", f"{_DEV}FB_RESERVED"),  # read for `_pair_memory`, never met here
            scale=_MIB,
            across="sum",
        ),
        Row(
            "gpu_utilization_ratio",
            (
                *_row("", (f"{_DEV}GPU_UTIL",), scale=0.01).aliases,
                *_row("", ("DCGM_FI_PROF_GR_ENGINE_ACTIVE",)).aliases,  # 0 to 1, all that MIG has
            ),
            "max",
        ),
        _row("gpu_temperature_celsius", (f"{_DEV}GPU_TEMP",)),
        _row("gpu_power_watts", (f"{_DEV}POWER_USAGE",), across="sum"),
        _row(
            "gpu_throttled",
            (f"{_DEV}CLOCKS_EVENT_REASONS",),
            (f"{_DEV}CLOCK_THROTTLE_REASONS",),
            ("DCGM_EXP_CLOCK_EVENTS_COUNT",),
            (f"{_DEV}THERMAL_VIOLATION", f"{_DEV}POWER_VIOLATION?"),
            (f"{_DEV}POWER_VIOLATION",),
        ),
        _row("gpu_xid_errors_total", (f"{_DEV}XID_ERRORS",), across="sum"),
        _row(
            "gpu_ecc_errors_total",
            (f"{_DEV}ECC_DBE_VOL_TOTAL",),
            (f"{_DEV}ECC_DBE_AGG_TOTAL",),
            across="sum",
        ),
    ),
)


class DcgmConfig(BaseModel):
    """A dcgm-exporter's page; of it the target's GPUs (docs/sources/gpu.md)."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    kind: Literal["dcgm"] = "dcgm"
    url: HttpUrl = Field(description="Address of the page.")
    devices: Literal["all"] | tuple[Device, ...] = Field(
        default="all",
        description="`all` that fit, or: indices (`0`), MIG instances (`0/2`, by GPU_I_ID), UUIDs.",
    )
    hostname: str | None = Field(default=None, description="Only series of this host.")
    pod: str | None = Field(default=None, description="Only GPUs of this pod.")
    namespace: str | None = Field(default=None, description="Only GPUs of this namespace.")
    container: str | None = Field(default=None, description="Only GPUs of this container.")
    interval: Seconds = Field(default=15.0, description="Time between reads.")

    @property
    def match(self) -> dict[str, str]:
        """The labels that a series must carry, under our names."""
        wanted = {
            "hostname": self.hostname,
            "pod": self.pod,
            "namespace": self.namespace,
            "container": self.container,
        }
        return {name: text for name, text in wanted.items() if text is not None}

    def build(self, place: Place, tools: Tools) -> Source:
        """Return the source; nothing is opened."""
        tidy = Tidy(() if self.devices == "all" else self.devices, self.match)
        page = page_source(DCGM, place, tools, url=self.url, prepare=tidy.page)
        return DcgmSource(page, tidy)


class DcgmSource:
    """Reads the page, and says what was seen on it beyond numbers."""

    def __init__(self, page: ScrapeSource, tidy: Tidy) -> None:
        self.name = page.name
        self._page = page
        self._tidy = tidy

    async def read(self) -> Reading:
        """Read the page once; trouble of the page is in the reading, never raised."""
        reading = await self._page.read()
        if not reading.up:
            return reading
        findings = (*reading.findings, *self._tidy.findings)
        return replace(reading, findings=findings, noticed=tuple(self._tidy.noticed))

    def stats(self) -> ScrapeStats:
        return self._page.stats()

    async def close(self) -> None:
        await self._page.close()
