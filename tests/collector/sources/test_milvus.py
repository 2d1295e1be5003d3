"""Milvus' page becomes the time of a search in seconds and the share of deleted rows."""

from __future__ import annotations

import pytest

from collector.sources.neighbours.milvus import MilvusConfig
from detectors.records import Absence
from tests.collector.sources.neighbours import at, check_contract, page, read_once
from tests.collector.sources.servers import hanging_up, text

pytestmark = pytest.mark.anyio
SIGNALS = {"vector_search_seconds", "vector_deleted_ratio", "memory_rss_bytes"}


async def test_search_latency_is_in_seconds_and_counts_searches_only() -> None:
    async with at(text(page("milvus-2.5-reconstructed.txt"))) as url:
        reading = await read_once(MilvusConfig(url=url))

    search = reading.histograms["vector_search_seconds"]
    check_contract(reading, SIGNALS)
    assert search.total == 210.0  # 200 searches, 10 hybrid ones; no queries, no query nodes
    assert search.sum == pytest.approx(82.85)
    assert search.bounds[0] == pytest.approx(0.001)
    assert search.bounds[-1] == pytest.approx(131.072)
    assert search.counts[6] == 114.0


async def test_the_deleted_share_is_delete_entries_over_stored_rows() -> None:
    async with at(text(page("milvus-2.5-reconstructed.txt"))) as url:
        reading = await read_once(MilvusConfig(url=url))

    assert reading.values["vector_deleted_ratio"] == pytest.approx(0.40)
    assert reading.values["memory_rss_bytes"] == 2_147_483_648.0


async def test_the_misspelt_name_of_old_versions_is_read() -> None:
    async with at(text(page("milvus-2.0-reconstructed.txt"))) as url:
        reading = await read_once(MilvusConfig(url=url))

    assert reading.histograms["vector_search_seconds"].sum == pytest.approx(4.2)
    assert reading.absent["vector_deleted_ratio"] is Absence.NO_FAMILY


async def test_a_query_nodes_page_counts_each_search_once() -> None:
    lines = page("milvus-2.5-reconstructed.txt").splitlines(keepends=True)
    body = b"".join(line for line in lines if b"querynode" in line)
    async with at(text(body)) as url:
        reading = await read_once(MilvusConfig(url=url))

    assert reading.histograms["vector_search_seconds"].total == 50.0


async def test_without_level_zero_segments_the_proxy_s_own_counts_stand_in() -> None:
    body = b"milvus_proxy_delete_vectors_count 30\nmilvus_proxy_insert_vectors_count 80\n"
    body += b"milvus_proxy_upsert_vectors_count 20\n"
    async with at(text(body)) as url:
        reading = await read_once(MilvusConfig(url=url))

    assert reading.values["vector_deleted_ratio"] == pytest.approx(0.3)


async def test_a_milvus_that_is_gone_is_down() -> None:
    async with at(hanging_up) as url:
        reading = await read_once(MilvusConfig(url=url))

    check_contract(reading, SIGNALS)
    assert not reading.up
