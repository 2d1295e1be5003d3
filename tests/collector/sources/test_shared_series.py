"""What sources of like pages know together: each reads as if it were alone, and nobody's stays."""

from __future__ import annotations

import gc
from datetime import UTC, datetime
from pathlib import Path

import httpx2
import pytest

from collector.config import load
from collector.readers import readers_of
from collector.sources.engine.engines import engines_named, wanted_families
from collector.sources.joined import JoinedSource
from collector.sources.page.keys import SeriesCache, SeriesPool, SeriesPools
from collector.sources.page.page import parse
from collector.sources.protocols import Tools
from tests.collector.sources.reading_pages import FAMILIES, body
from tests.collector.sources.test_layout import shown

PAGE = "vllm-0.32.0-load.txt"


def of_model(name: str) -> bytes:
    """Return the recorded page as another model would write it: as many lines, other labels."""
    return body(PAGE).replace(b'model_name="', b'model_name="' + name.encode())


def test_sources_of_one_pool_read_what_each_reads_alone() -> None:
    pool = SeriesPool()
    pages = {name: of_model(name) for name in ("", "a", "b")}
    caches = {name: SeriesCache(pool=pool) for name in pages}

    for _ in range(4):
        for name, page in pages.items():
            found = parse(page, FAMILIES, caches[name])
            assert shown(found) == shown(parse(page, FAMILIES, SeriesCache()))

    lines = {name: next(iter(cache.layouts)) for name, cache in caches.items()}
    assert len(set(lines.values())) == 1  # pages of one length, and a layout for each source
    assert [cache.wait for cache in caches.values()] == [0, 0, 0]


def test_sources_of_like_pages_hold_one_layout() -> None:
    pool = SeriesPool()
    first, second = SeriesCache(pool=pool), SeriesCache(pool=pool)

    for cache in (first, second, first, second):
        parse(body(PAGE), FAMILIES, cache)

    (layout,) = first.layouts.values()
    assert list(second.layouts.values()) == [layout]
    assert second.layouts[layout.lines] is layout
    assert second.misses == 0


def test_what_nobody_uses_any_more_is_let_go() -> None:
    pool = SeriesPool()
    stays, goes = SeriesCache(pool=pool), SeriesCache(pool=pool)
    for _ in range(2):
        parse(of_model("stays"), FAMILIES, stays)
        parse(of_model("goes"), FAMILIES, goes)
    lines = next(iter(goes.layouts))

    goes.close()
    gc.collect()

    assert len(list(pool.layouts(lines))) == 1
    assert not any(b"goes" in key for key in pool.series)
    assert parse(of_model("stays"), FAMILIES, stays).samples  # by its layout, without a miss
    assert not pool.series


def test_of_many_sources_one_that_goes_takes_nothing_with_it() -> None:
    pool = SeriesPool()
    caches = [SeriesCache(pool=pool) for _ in range(4)]
    parse(body(PAGE), FAMILIES, caches[0])

    caches[0].close()
    known = len(pool.series)
    caches[1].close()

    assert known > 100
    assert not pool.series  # half of those who knew it are gone


def test_a_full_pool_is_emptied_and_read_on() -> None:
    pool = SeriesPool(limit=10)
    cache = SeriesCache(pool=pool)

    page = parse(body(PAGE), FAMILIES, cache)

    assert pool.emptied > 1
    assert len(pool.series) <= 10
    assert shown(page) == shown(parse(body(PAGE), FAMILIES, SeriesCache()))


def test_a_pool_belongs_to_what_is_wanted_and_goes_with_its_last_user() -> None:
    pools = SeriesPools()
    other = wanted_families(engines_named("tgi"))

    pool = pools.of(FAMILIES)
    cache = SeriesCache(pool=pool)
    pools.of(other)
    kept = pools.of(FAMILIES) is pool
    cache.close()
    pools.of(wanted_families(engines_named("sglang")))

    assert kept
    assert pools.of(other) is not pool
    assert pools.of(FAMILIES) is not pool


@pytest.mark.anyio
async def test_targets_of_a_service_know_their_series_together(tmp_path: Path) -> None:
    file = tmp_path / "fusewire.yaml"
    urls = ", ".join(f"http://127.0.0.1:{port}" for port in (1, 2, 3))
    file.write_text(f"tiers:\n  chat:\n    targets: [{urls}]\n")
    config = load(file, {})

    def answer(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, stream=httpx2.ByteStream(body(PAGE)))

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer)) as client:
        tools = Tools(client, lambda: datetime(2026, 11, 29, tzinfo=UTC), lambda: 0.0)
        readers = readers_of(config, {}, tools)
        readings = [await it.source.read() for it in readers.values() for _ in range(2)]

    pool = tools.pools.of(wanted_families(engines_named("auto")))
    assert pool.users == 3
    assert all(reading.up for reading in readings)
    assert {len(reading.values) for reading in readings[1::2]} == {len(readings[1].values)}
    for reader in readers.values():
        assert isinstance(reader.source, JoinedSource)
        await reader.source.close()
    assert pool.users == 0
