"""Pages of the allocator probe as text, and sources that read probes."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2

from collector.sources.gpu.allocator import AllocatorConfig
from collector.sources.gpu.probe_pages import ProcessPage, read_page, wanted
from collector.sources.page.keys import SeriesCache
from collector.sources.protocols import Place, Source, Tools
from tests.collector.sources.servers import NOW

GIB = 2.0**30
GAUGES = ("allocated", "reserved", "active", "inactive_split")


def page_text(
    devices: Mapping[str, float] | None = None,
    *,
    run: str = "aa",
    state: str = "cuda",
    torch: str = "2.11.0+cu128",
    conf: Mapping[str, str] | None = None,
    more: str = "",
) -> str:
    """Return a page: each device holds so many GiB in every gauge, and as many retries and ooms."""
    lines = [
        f'fusewire_probe_info{{pid="7",run="{run}",torch="{torch}",cuda="12.8",hip=""}} 1.0',
        f'fusewire_probe_state{{pid="7",state="{state}"}} 1.0',
    ]
    for device, size in (devices or {}).items():
        labels = f'{{pid="7",device="{device}"}}'
        lines += [f"fusewire_probe_{gauge}_bytes{labels} {size * GIB}" for gauge in GAUGES]
        lines += [f"fusewire_probe_{name}_total{labels} {size}" for name in ("retries", "ooms")]
    for source, text in (conf or {}).items():
        options = dict(part.split(":") for part in text.split(","))
        lines.append(
            f'fusewire_probe_allocator_conf{{pid="7",source="{source}",conf="{text}",'
            f'expandable_segments="{options.get("expandable_segments", "").lower()}",'
            f'max_split_size_mb="{options.get("max_split_size_mb", "")}"}} 1.0'
        )
    return "\n".join([*lines, more, ""])


def a_page(
    devices: Mapping[str, float] | None = None,
    *,
    run: str = "aa",
    state: str = "cuda",
    torch: str = "2.11.0+cu128",
    conf: Mapping[str, str] | None = None,
    more: str = "",
) -> ProcessPage:
    """Return `page_text` as it is read."""
    text = page_text(devices, run=run, state=state, torch=torch, conf=conf, more=more)
    page = read_page(text.encode(), wanted(), SeriesCache())
    assert page is not None
    return page


@asynccontextmanager
async def a_source(
    *, url: str | None = None, directory: Path | None = None, timeout_seconds: float = 5.0
) -> AsyncIterator[Source]:
    """Make a source of probes."""
    config = AllocatorConfig.model_validate({"url": url, "directory": directory})
    async with httpx2.AsyncClient() as client:
        tools = Tools(client, lambda: NOW, time.monotonic, timeout_seconds)
        source = config.build(Place("chat", "a"), tools)
        yield source
        await source.close()
