"""Whole recorded runs, scrape by scrape: what a real server does to counters and gauges."""

from __future__ import annotations

from itertools import pairwise

import pytest

from collector.sources.engine.translate import Translation
from detectors.records import Histogram
from detectors.signals import SIGNALS, Kind
from tests.collector.sources.reading_pages import Scraped, body, scrapes

RUNS = (
    "0.32.0-kvfull",
    "0.32.0-load",
    "0.8.5.post2-kvfull",
    "0.8.5.post2-load",
    "0.9.2.post2-load",
)


def run(name: str, *, most: int | None = None) -> list[Translation]:
    target = Scraped()
    return [
        target.read(text) for _, text in zip(range(most or 10_000), scrapes(name), strict=False)
    ]


def falls(found: list[Translation]) -> list[str]:
    """Return the signals of a run that fell although they must not."""
    fallen = []
    for before, after in pairwise(found):
        for signal, value in after.values.items():
            if SIGNALS[signal].kind is Kind.COUNTER and value < before.values.get(signal, 0.0):
                fallen.append(signal)
        for signal, histogram in after.histograms.items():
            known = before.histograms.get(signal, Histogram((), (), 0.0, 0.0))
            fallen += [signal] * (histogram.total < known.total)
    return fallen


@pytest.mark.parametrize("name", RUNS)
def test_counters_of_a_recorded_run_never_fall(name: str) -> None:
    found = run(name)

    assert len(found) >= 5
    assert not falls(found)
    assert not any(it.restarted for it in found)
    assert found[-1].values["generation_tokens_total"] > found[0].values.get(
        "generation_tokens_total", 0.0
    )


def test_the_full_kv_cache_of_the_new_engine_is_seen() -> None:
    found = run("0.32.0-kvfull")

    assert max(it.values["kv_cache_usage_ratio"] for it in found) == 1.0
    assert max(it.values["requests_waiting"] for it in found) >= 13.0
    assert found[-1].values["requests_waiting"] == 0.0
    assert found[-1].values["requests_lost_total"] <= 2.0, "85 preemptions are not losses"


def test_a_dead_engine_behind_a_healthy_page_shows_as_frozen_series() -> None:
    found = run("0.9.2.post2-enginedead-hang", most=300)

    late = found[150:]
    assert {it.values["requests_running"] for it in late} == {4.0}
    assert {it.values["requests_waiting"] for it in late} == {19.0}
    assert {it.values["generation_tokens_per_second"] for it in late} == {0.0}
    assert not falls(found)
    assert not any(it.restarted for it in found)


def test_a_restarted_server_makes_nothing_fall() -> None:
    target = Scraped()
    before = target.read(body("vllm-0.32.0-after-load.txt"))

    after = target.read(body("vllm-0.32.0-idle.txt"))
    later = target.read(body("vllm-0.32.0-load.txt"))

    assert after.restarted
    assert target.ledger.resets == 1
    assert not later.restarted
    assert after.values["generation_tokens_total"] == before.values["generation_tokens_total"]
    assert after.histograms["ttft_seconds"] == before.histograms["ttft_seconds"]
    assert later.values["generation_tokens_total"] == 5997.0 + 1264.0
    assert later.histograms["ttft_seconds"].total == 100.0 + 55.0
    assert later.parts["requests_finished_total"]["stop"] == (
        before.parts["requests_finished_total"]["stop"] + 9.0
    )


def test_an_upgrade_to_other_names_and_buckets_is_a_restart() -> None:
    target = Scraped()
    old = target.read(body("vllm-0.5.x-full-2024-08.txt"))

    new = target.read(body("vllm-0.32.0-load.txt"))

    assert new.restarted
    assert new.values["prompt_tokens_total"] == old.values["prompt_tokens_total"] + 908.0
    assert len(new.histograms["ttft_seconds"].bounds) > len(old.histograms["ttft_seconds"].bounds)
    assert new.histograms["ttft_seconds"].total == 55.0


def test_a_page_cut_at_any_line_neither_falls_nor_restarts() -> None:
    text = body("vllm-0.32.0-rust-load.txt")
    target = Scraped()
    whole = target.read(text)
    for end in range(0, len(text), 1_499):
        found = target.read(text[:end])

        assert not found.restarted
        assert not falls([whole, found])

    assert target.read(text).values == pytest.approx(
        {**whole.values, "generation_tokens_per_second": 0.0}
    )
