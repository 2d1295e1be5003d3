"""Page parse: ours cold and warm, prometheus-client, and the bare split into lines as the limit."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import perf_counter

import pytest
from prometheus_client.parser import text_string_to_metric_families

from collector.sources.page.keys import SeriesCache
from collector.sources.page.page import parse
from tests.collector.sources.page_facts import normal
from tests.collector.sources.reading_pages import FAMILIES, Scraped, body

PAGES = ("vllm-0.32.0-load.txt", "vllm-0.8.5.post2-kvfull.txt", "tgi-3.3-full-2025-09.txt")


def best(work: Callable[[], object], *, rounds: int = 15) -> float:
    """Return the shortest of several runs, in seconds."""
    times = []
    for _ in range(rounds):
        start = perf_counter()
        work()
        times.append(perf_counter() - start)
    return min(times)


def peer_values(text: str) -> dict[str, list[float]]:
    """Return what prometheus-client reads of the wanted samples, values sorted by name."""
    found: dict[str, list[float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            name = normal(sample.name)
            if name.encode() not in FAMILIES.roles:
                name = name.removesuffix("_total")  # it adds this to TGI's counters
            if name.encode() in FAMILIES.roles and "quantile" not in sample.labels:
                found.setdefault(name, []).append(sample.value)
    return {name: sorted(values) for name, values in found.items()}


def our_values(data: bytes) -> dict[str, list[float]]:
    suffixes = {"value": "", "bucket": "_bucket", "sum": "_sum", "count": "_count"}
    found: dict[str, list[float]] = {}
    for rows in parse(data, FAMILIES, SeriesCache()).samples.values():
        for series, value in rows:
            found.setdefault(series.family + suffixes[series.role], []).append(value)
    return {name: sorted(values) for name, values in found.items()}


def cold_parse(data: bytes) -> object:
    return parse(data, FAMILIES, SeriesCache())


def peer_parse(text: str) -> object:
    return list(text_string_to_metric_families(text))


@pytest.mark.bench
def test_page_parse_beside_prometheus_client() -> None:
    print(f"\n{'page parse, µs':28}{'cold':>8}{'warm':>8}{'+signals':>10}{'peer':>9}{'limit':>7}")
    for name in PAGES:
        data = body(name)
        text = data.decode()
        cold = best(partial(cold_parse, data))
        warm = best(partial(parse, data, FAMILIES, SeriesCache()))
        signals = best(partial(Scraped().read, data))
        peer = best(partial(peer_parse, text), rounds=5)
        limit = best(partial(data.split, b"\n"))

        numbers = f"{cold * 1e6:8.0f}{warm * 1e6:8.0f}{signals * 1e6:10.0f}{peer * 1e6:9.0f}"
        print(f"{name:28}{numbers}{limit * 1e6:7.0f}   warm is {peer / warm:.0f} x the peer")
        assert our_values(data) == peer_values(text)
