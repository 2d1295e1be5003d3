"""Findings about a page's own data, one made by hand or recorded for each code."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from collector.sources.engine.oddities import oddities
from collector.sources.engine.quality import SCRAPES, Quality
from collector.sources.engine.translation import Translation
from detectors.records import Absence
from detectors.remarks import Finding
from tests.collector.sources.reading_pages import NAMES, Scraped, body, page_of, scrapes


class Watched:
    """A target scraped again and again, with what the source says of its data."""

    def __init__(self) -> None:
        self._scraped = Scraped()
        self._quality = Quality()
        self._seconds = 0.0

    def read(self, text: bytes | str, *, after: float = 5.0) -> Translation:
        self._seconds += after
        page, found = page_of(text), self._scraped.read(text)
        self._quality.check(page, found, self._scraped.ledger, self._seconds)
        found.findings += oddities(page, found)
        return found

    def read_all(self, texts: Iterable[bytes | str]) -> Translation:
        found = Translation()
        for text in texts:
            found = self.read(text)
        return found


def finding(found: Translation, code: str) -> Finding | None:
    return next((it for it in found.findings if it.code == code), None)


def histogram(name: str, *, counts: Iterable[tuple[str, float]], total: float) -> str:
    lines = [f'vllm:{name}_bucket{{le="{bound}"}} {count}\n' for bound, count in counts]
    last = list(counts)[-1][1]
    return "".join(lines) + f"vllm:{name}_sum {total}\nvllm:{name}_count {last}\n"


def an_engine(*, running: float = 0.0, tokens: float = 100.0, usage: float = 0.0) -> str:
    return (
        f"vllm:num_requests_running {running}\nvllm:num_requests_waiting 0\n"
        f"vllm:kv_cache_usage_perc {usage}\nvllm:generation_tokens_total {tokens}\n"
    )


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("tgi-3.3-fresh-idle-empty.txt", "no_engine_data"),
        ("vllm-0.5.3-ttft-exceeds-success.txt", "ttft_above_requests"),
        ("vllm-v1-multiprocess-2-api-servers.txt", "pid_duplicates"),
        ("vllm-v1-multiprocess-2-api-servers.txt", "several_processes"),
        ("vllm-0.32.0-rust-load.txt", "kv_capacity_unknown"),
        ("tgi-3.3-full-2025-09.txt", "kv_capacity_unknown"),
        ("sglang-2024-09-wip-percent-hit-rate.txt", "ratio_above_one"),
        ("triton-ensemble-zero-counts.txt", "model_counts_nothing"),
    ],
)
def test_a_recorded_page_with_a_known_oddity_has_its_finding(name: str, code: str) -> None:
    assert finding(Watched().read(body(name)), code)


def test_a_sound_page_has_no_finding() -> None:
    for name in ("vllm-0.32.0-load.txt", "vllm-0.9.2.post2-kvfull.txt", "llamacpp-2026.txt"):
        assert Watched().read(body(name)).findings == []


@pytest.mark.parametrize("name", NAMES)
def test_findings_of_a_page_are_one_a_code_and_signal(name: str) -> None:
    found = Watched().read(body(name)).findings

    keys = [(it.code, it.signal) for it in found]
    assert len(keys) == len(set(keys))
    assert all(len(it.text) > 40 for it in found)


def test_a_page_that_lost_its_engine_is_told_with_the_ways_out() -> None:
    found = Watched().read("python_info 1\n# TYPE http_requests_total counter\n")

    told = finding(found, "no_engine_data")
    assert told
    assert "--disable-log-stats" in told.text
    assert "--disable-frontend-multiprocessing" in told.text


def test_a_router_is_not_taken_for_its_engines() -> None:
    found = Watched().read('vllm:num_requests_running{server="a"} 9\n')

    assert "requests_running" not in found.values
    assert finding(found, "router_reexport")


def test_a_front_that_passes_an_engine_on_warns_of_counting_twice() -> None:
    found = Watched().read("dynamo_component_inflight_requests 1\nvllm:num_requests_running 3\n")

    told = finding(found, "passed_through")
    assert told
    assert told.text.startswith("dynamo passes the families of vllm on")


def test_successes_beyond_the_first_tokens_are_no_ratio() -> None:
    first = histogram("time_to_first_token_seconds", counts=[("+Inf", 100.0)], total=9.0)
    found = Watched().read(first + 'vllm:request_success_total{finished_reason="stop"} 400\n')

    assert finding(found, "success_above_requests")


def test_preemptions_of_v0_are_no_surplus_of_first_tokens() -> None:
    assert not finding(Watched().read(body("vllm-0.8.5.post2-after.txt")), "ttft_above_requests")


def test_buckets_that_fall_are_told_unless_it_is_by_a_few() -> None:
    name = "time_to_first_token_seconds"
    torn = histogram(name, counts=[("1", 900.0), ("2", 500.0), ("+Inf", 1000.0)], total=9.0)
    raced = histogram(name, counts=[("1", 900.0), ("2", 899.0), ("+Inf", 1000.0)], total=9.0)

    assert finding(Watched().read(torn), "buckets_not_monotone")
    assert not finding(Watched().read(raced), "buckets_not_monotone")


@pytest.mark.parametrize("wrong", [5e7, -4e6])
def test_times_as_long_as_the_hosts_uptime_are_set_aside_until_a_restart(wrong: float) -> None:
    name = "request_queue_time_seconds"
    good = histogram(name, counts=[("1", 50.0), ("+Inf", 100.0)], total=60.0)
    bad = histogram(name, counts=[("1", 50.0), ("+Inf", 101.0)], total=60.0 + wrong)
    late = histogram(name, counts=[("1", 80.0), ("+Inf", 900.0)], total=500.0 + wrong)
    target = Watched()

    before = target.read(good)
    during, after = target.read(bad), target.read(late)
    restarted = target.read(histogram(name, counts=[("1", 1.0), ("+Inf", 2.0)], total=1.0))

    assert before.histograms["queue_seconds"].total == 100.0
    for found in (during, after):
        assert found.absent["queue_seconds"] is Absence.UNUSABLE
        assert finding(found, "absurd_latency")
    assert restarted.restarted
    assert restarted.histograms["queue_seconds"].sum == 1.0
    assert restarted.histograms["queue_seconds"].counts == (1.0,)


def test_a_full_cache_without_any_work_is_not_believed_until_it_moves() -> None:
    target = Watched()
    stuck = an_engine(usage=0.99)

    before = target.read_all([stuck] * SCRAPES)
    held = target.read(stuck)
    moved = target.read(an_engine(usage=0.98))

    assert before.values["kv_cache_usage_ratio"] == 0.99
    assert held.absent["kv_cache_usage_ratio"] is Absence.UNUSABLE
    assert held.absent["kv_cache_usage_mean_ratio"] is Absence.UNUSABLE
    assert finding(held, "stuck_kv_usage")
    assert moved.values["kv_cache_usage_ratio"] == 0.98


def test_a_full_cache_with_work_or_with_waiting_requests_is_believed() -> None:
    working = Watched().read_all(an_engine(usage=0.99, tokens=float(n)) for n in range(3 * SCRAPES))
    hanging = Watched().read_all([body("vllm-0.9.2.post2-enginedead-frozen-1.txt")] * 3 * SCRAPES)

    assert working.values["kv_cache_usage_ratio"] == 0.99
    assert hanging.values["kv_cache_usage_ratio"] == 0.78125


def test_signals_that_an_upgrade_lost_are_told_once_there_is_work() -> None:
    target = Watched()
    target.read(an_engine(usage=0.2) + "vllm:num_preemptions_total 3\n")
    bare = "vllm:num_requests_running 1\nvllm:generation_tokens_total {}\n"

    idle = target.read_all([bare.format(100)] * 2 * SCRAPES)
    busy = target.read_all(bare.format(100 + n) for n in range(SCRAPES + 1))
    back = target.read(an_engine(usage=0.2, tokens=999) + "vllm:num_preemptions_total 3\n")

    assert not finding(idle, "signals_lost")
    told = finding(busy, "signals_lost")
    assert told
    assert "kv_cache_usage_ratio" in told.text
    assert "preemptions_total" in told.text
    assert not finding(back, "signals_lost")


def test_lost_requests_warn_that_latencies_are_of_survivors() -> None:
    def page(begun: float, ended: float) -> str:
        return (
            histogram("time_to_first_token_seconds", counts=[("+Inf", begun)], total=begun)
            + histogram("e2e_request_latency_seconds", counts=[("+Inf", ended)], total=ended)
            + "vllm:num_requests_running 0\n"
        )

    target = Watched()
    calm = target.read(page(100, 100))
    lossy = target.read(page(150, 110))
    over = target.read_all([page(150, 110)] * 130)

    assert not finding(calm, "survivor_bias")
    told = finding(lossy, "survivor_bias")
    assert told
    assert told.text.startswith("about 40 requests")
    assert not finding(over, "survivor_bias"), "ten minutes without losses end it"


@pytest.mark.parametrize("family", ["kv_cache_usage_perc", "num_requests_running"])
def test_engines_of_one_target_that_differ_for_long_are_told(family: str) -> None:
    low, high = (0.1, 0.9) if family == "kv_cache_usage_perc" else (1, 40)
    uneven = f'vllm:{family}{{engine="0"}} {low}\nvllm:{family}{{engine="1"}} {high}\n'
    even = f'vllm:{family}{{engine="0"}} {high}\nvllm:{family}{{engine="1"}} {high}\n'
    target = Watched()

    short = target.read_all([uneven] * (SCRAPES - 1))
    long = target.read(uneven)
    healed = target.read(even)

    assert not finding(short, "engines_unlike")
    assert finding(long, "engines_unlike")
    assert not finding(healed, "engines_unlike")


@pytest.mark.parametrize("run", ["0.32.0-load", "0.8.5.post2-load", "0.9.2.post2-load"])
def test_a_recorded_run_without_trouble_raises_no_finding(run: str) -> None:
    target = Watched()

    codes = {it.code for text in scrapes(run) for it in target.read(text).findings}

    assert codes <= {"survivor_bias"}
