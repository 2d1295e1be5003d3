"""The alias table against every recorded page, and the rules of merging by hand."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from collector.sources.engine.engines import (
    ENGINES,
    Alias,
    Engine,
    Row,
    Term,
    engine_names,
    engines_named,
    signal_named,
)
from collector.sources.engine.translate import Translation
from collector.sources.page.page import Skip
from detectors.records import Absence
from detectors.signals import READING_SIGNALS, SIGNALS
from tests.collector.sources.expected import EXPECTED, written
from tests.collector.sources.reading_pages import NAMES, Scraped, body

TABLE = json.loads(EXPECTED.read_text())


def first(text: bytes | str, **configured: float) -> Translation:
    """Return the signals of a page at its first scrape."""
    return Scraped(configured=configured).read(text)


def test_the_expected_signals_are_those_that_prometheus_client_gives_today() -> None:
    assert EXPECTED.read_text() == written()


@pytest.mark.parametrize("name", NAMES)
def test_each_recorded_page_gives_the_expected_signals(name: str) -> None:
    expected = TABLE[name]

    found = first(body(name))

    assert found.identity.engine == expected["engine"]
    assert found.values == pytest.approx(expected["values"], rel=1e-12)
    histograms = {
        signal: [float(len(it.bounds)), it.total, it.sum, *it.counts]
        for signal, it in found.histograms.items()
    }
    assert histograms == expected["histograms"]


@pytest.mark.parametrize("name", NAMES)
def test_each_signal_of_an_engine_has_a_value_or_a_reason(name: str) -> None:
    found = first(body(name))

    have = found.values.keys() | found.histograms.keys()
    assert not have & found.absent.keys()
    rows = {row.signal for engine in ENGINES for row in engine.rows if engine.name == "vllm"}
    if found.identity.engine == "vllm":
        assert have | found.absent.keys() == rows | {"requests_lost_total"}
    assert have <= found.aliases.keys()
    assert have <= SIGNALS.keys()


def test_the_full_cache_of_the_kv_recording_reads_as_a_person_reads_it() -> None:
    found = first(body("vllm-0.32.0-kvfull.txt"))

    assert found.values["kv_cache_usage_ratio"] == 1.0
    assert found.values["requests_waiting"] == 13.0
    assert found.values["requests_running"] == 5.0
    assert found.values["kv_cache_capacity_tokens"] == 1024.0
    assert found.values["preemptions_total"] == 52.0
    assert found.identity.model == "tiny"


@pytest.mark.parametrize(
    ("name", "signal", "absence"),
    [
        ("tgi-3.3-fresh-idle-empty.txt", "requests_running", Absence.NO_DATA),
        ("dcgm-netdata-testdata.txt", "requests_running", Absence.NO_DATA),
        ("vllm-0.8.5.post2-idle.txt", "requests_running", Absence.NO_FAMILY),
        ("vllm-0.6-headers-only-truncated.txt", "requests_running", Absence.NO_SAMPLE),
        ("vllm-0.6-headers-only-truncated.txt", "ttft_seconds", Absence.SCRAPE_FAILED),
        ("vllm-0.32.0-rust-idle.txt", "ttft_seconds", Absence.NO_SAMPLE),
        ("vllm-0.8.1-v1.txt", "prefix_cache_hit_ratio", Absence.NO_SAMPLE),
        ("vllm-0.8-v1-cache-config-none-split-lines.txt", "kv_cache_capacity_tokens",
         Absence.UNUSABLE),
        ("vllm-metal-2026-livelock-elided-labels.txt", "kv_cache_capacity_tokens",
         Absence.UNUSABLE),
        ("vllm-0.32.0-rust-load.txt", "kv_cache_capacity_tokens", Absence.NO_FAMILY),
        ("vllm-0.32.0-idle.txt", "prefix_cache_hit_ratio", Absence.UNUSABLE),
        ("vllm-0.9.2.post2-load.txt", "requests_failed_total", Absence.NO_SAMPLE),
        ("ray-2.32-vllm-0.6.txt", "prefix_cache_hit_ratio", Absence.UNUSABLE),
        ("vllm-0.5.1-all-zero-ttft.txt", "ttft_seconds", Absence.UNUSABLE),
        ("tgi-0.4-summaries-expired-window.txt", "prefill_seconds", Absence.NO_FAMILY),
        ("tgi-3.3-full-2025-09.txt", "batch_token_budget", Absence.NOT_IN_VERSION),
        ("tgi-3.3-full-2025-09.txt", "kv_cache_usage_ratio", Absence.UNUSABLE),
        ("tgi-3.3-full-2025-09.txt", "requests_rejected_total", Absence.NO_SAMPLE),
    ],
)  # fmt: skip
def test_the_kinds_of_absence_are_told_apart(name: str, signal: str, absence: Absence) -> None:
    assert first(body(name)).absent[signal] is absence


@pytest.mark.parametrize(
    ("name", "span"),
    [
        ("vllm-0.5.x-full-2024-08.txt", "0.4.3-0.6.2"),
        ("ray-2.32-vllm-0.6.txt", "0.5.5-0.6.6"),
        ("vllm-0.8.1-v1.txt", "0.7.3-0.11.2"),
        ("vllm-0.9.2.post2-load.txt", "0.9.2-0.11.2"),
        ("vllm-0.32.0-load.txt", ">=0.32.0"),
        ("vllm-0.2.3-aioprometheus-truncated.txt", "<=0.3.2"),
        ("vllm-ascend-dp2-excerpt.txt", ""),
    ],
)
def test_the_version_is_guessed_from_what_is_there(name: str, span: str) -> None:
    assert first(body(name)).identity.version == span


def test_evidence_that_contradicts_itself_says_nothing() -> None:
    found = first(
        "vllm:avg_generation_throughput_toks_per_s 3\n"
        "# TYPE vllm:request_num_preemptions histogram\n"
    )

    assert found.identity.version == ""


def test_the_report_says_which_family_fed_each_signal() -> None:
    old = first(body("vllm-0.8.5.post2-load.txt")).aliases
    new = first(body("vllm-0.32.0-load.txt")).aliases

    assert old["kv_cache_usage_ratio"] == "vllm_gpu_cache_usage_perc"
    assert new["kv_cache_usage_ratio"] == "vllm_kv_cache_usage_perc"
    assert old["inter_token_seconds"] == "vllm_time_per_output_token_seconds"
    assert new["inter_token_seconds"] == "vllm_inter_token_latency_seconds"


@pytest.mark.parametrize("prefix", ["vllm:", "vllm_", "ray_vllm:", "ray_vllm_", "kserve_vllm:"])
def test_every_prefix_form_of_a_page_means_the_same(prefix: str) -> None:
    text = body("vllm-0.32.0-load.txt").decode()

    found = first(text.replace("vllm:", prefix))

    expected = first(text)
    assert found.values == expected.values
    assert found.histograms == expected.histograms


def test_the_throughput_gauge_is_known_by_its_short_and_its_long_name() -> None:
    short = first("vllm:avg_generation_throughput 35.5\n")
    long = first("vllm:avg_generation_throughput_toks_per_s 35.5\n")

    assert short.values["generation_tokens_per_second"] == 35.5
    assert long.values["generation_tokens_per_second"] == 35.5


def test_without_the_gauge_throughput_is_the_rate_of_the_counter() -> None:
    target = Scraped()
    before = target.read("vllm:generation_tokens_total 100\n")

    after = target.read("vllm:generation_tokens_total 150\n")

    assert before.absent["generation_tokens_per_second"] is Absence.NO_SAMPLE
    assert after.values["generation_tokens_per_second"] == 10.0


def test_engines_of_one_target_add_up_and_usage_takes_the_fullest() -> None:
    found = first(
        'vllm:num_requests_running{engine="0"} 3\nvllm:num_requests_running{engine="1"} 4\n'
        'vllm:kv_cache_usage_perc{engine="0"} 0.2\nvllm:kv_cache_usage_perc{engine="1"} 0.8\n'
        'vllm:cache_config_info{engine="0",num_gpu_blocks="10",block_size="16"} 1\n'
        'vllm:cache_config_info{engine="1",num_gpu_blocks="20",block_size="16"} 1\n'
    )

    assert found.values["requests_running"] == 7.0
    assert found.values["kv_cache_usage_ratio"] == 0.8
    assert found.values["kv_cache_usage_mean_ratio"] == 0.5
    assert found.values["kv_cache_capacity_tokens"] == 480.0


def test_one_engine_without_a_capacity_makes_the_whole_unknown() -> None:
    found = first(
        'vllm:cache_config_info{engine="0",num_gpu_blocks="10",block_size="16"} 1\n'
        'vllm:cache_config_info{engine="1",num_gpu_blocks="None",block_size="16"} 1\n'
    )

    assert found.absent["kv_cache_capacity_tokens"] is Absence.UNUSABLE


def test_copies_by_several_processes_count_once_and_the_largest_holds() -> None:
    found = first(body("vllm-v1-multiprocess-2-api-servers.txt"))

    assert found.values["kv_cache_usage_ratio"] == 0.7
    assert found.values["kv_cache_usage_mean_ratio"] == pytest.approx(0.4)


@pytest.mark.parametrize("label", ["server", "worker_addr"])
def test_a_routers_copies_are_left_out_and_counted(label: str) -> None:
    found = first(
        f'vllm:num_requests_running{{{label}="http://192.0.2.1"}} 9\nvllm:num_requests_running 3\n'
    )

    assert found.values["requests_running"] == 3.0
    assert found.skipped[Skip.REEXPORT] == 1


@pytest.mark.parametrize("text", ["NaN", "+Inf", "-1", "2147483647", "140737488355328"])
def test_a_gauge_that_is_no_measurement_is_unusable_and_counted(text: str) -> None:
    found = first(f"vllm:num_requests_running {text}\n")

    assert found.absent["requests_running"] is Absence.UNUSABLE
    assert found.skipped[Skip.UNUSABLE] == 1


@pytest.mark.parametrize("text", ["NaN", "+Inf", "-1", "9.3e18", "9007199254740992"])
def test_a_counter_that_is_no_count_is_unusable_and_counted(text: str) -> None:
    found = first(f"vllm:prompt_tokens_total {text}\n")

    assert found.absent["prompt_tokens_total"] is Absence.UNUSABLE
    assert found.skipped[Skip.UNUSABLE] == 1


def test_an_unusable_series_does_not_take_its_counter_along() -> None:
    target = Scraped()
    target.read('vllm:prompt_tokens_total{engine="0"} 5\nvllm:prompt_tokens_total{engine="1"} 6\n')

    found = target.read(
        'vllm:prompt_tokens_total{engine="0"} NaN\nvllm:prompt_tokens_total{engine="1"} 8\n'
    )

    assert found.values["prompt_tokens_total"] == 13.0


def test_a_gauge_that_lost_a_line_is_unusable_rather_than_too_small() -> None:
    found = first(
        'vllm:num_requests_running{engine="0"} 3\nvllm:num_requests_running{engine="1" 4\n'
    )

    assert found.absent["requests_running"] is Absence.UNUSABLE


def test_the_type_of_the_page_overrules_the_name() -> None:
    found = first("# TYPE vllm:prompt_tokens_total histogram\nvllm:prompt_tokens_total 3\n")

    assert found.absent["prompt_tokens_total"] is Absence.UNUSABLE


def test_swapped_requests_of_v0_wait_too() -> None:
    found = first("vllm:num_requests_waiting 3\nvllm:num_requests_swapped 2\n")

    assert found.values["requests_waiting"] == 5.0


def test_requests_are_told_apart_by_the_reason_they_ended() -> None:
    found = first(body("vllm-0.32.0-load.txt"))

    assert found.parts["requests_finished_total"] == {
        "stop": 9.0,
        "length": 42.0,
        "abort": 0.0,
        "error": 0.0,
        "repetition": 0.0,
    }


def test_tgi_failures_are_told_apart_by_whose_fault_they_are() -> None:
    found = first(
        "tgi_request_success 10\n"
        'tgi_request_failure{err="overloaded"} 1\ntgi_request_failure{err="validation"} 2\n'
        'tgi_request_failure{err="generation"} 4\ntgi_request_failure{err="incomplete"} 8\n'
        'tgi_request_failure{err="dropped"} 16\n'
    )

    assert found.values["requests_rejected_total"] == 1.0
    assert found.values["requests_failed_total"] == 12.0
    assert found.values["requests_finished_total"] == 41.0
    assert found.parts["requests_finished_total"]["success"] == 10.0
    assert found.parts["requests_finished_total"]["validation"] == 2.0


def test_tgi_usage_is_its_batch_over_a_budget_from_the_page_or_the_configuration() -> None:
    page = "tgi_batch_current_max_tokens 3000\n"

    configured = first(page, batch_token_budget=12_000.0)
    stated = first(page + "tgi_batch_max_total_tokens 6000\n")
    both = first(page + "tgi_batch_max_total_tokens 6000\n", batch_token_budget=12_000.0)

    assert configured.values["kv_cache_usage_ratio"] == 0.25
    assert stated.values["kv_cache_usage_ratio"] == 0.5
    assert stated.values["kv_cache_capacity_tokens"] == 6000.0
    assert both.values["kv_cache_usage_ratio"] == 0.25
    assert both.aliases["batch_token_budget"] == "configured"
    assert first(page).absent["kv_cache_usage_ratio"] is Absence.UNUSABLE


def test_what_is_configured_wins_over_the_page_and_over_an_empty_one() -> None:
    page = body("vllm-0.32.0-load.txt")

    assert first(page, kv_cache_capacity_tokens=7.0).values["kv_cache_capacity_tokens"] == 7.0
    assert first(b"", request_slots=4.0).values == {"request_slots": 4.0}


def test_a_page_of_two_engines_is_taken_for_the_one_with_more_families() -> None:
    vllm = "vllm:num_requests_running 1\nvllm:num_requests_waiting 2\n"
    tgi = "tgi_queue_size 3\ntgi_batch_current_size 4\ntgi_request_success 5\n"

    assert first(vllm + "tgi_queue_size 3\n").values["requests_waiting"] == 2.0
    assert first("vllm:num_requests_waiting 2\n" + tgi).values["requests_waiting"] == 3.0


def test_an_engine_that_is_named_is_the_only_one_looked_for() -> None:
    target = Scraped(engines=engines_named("tgi"))

    found = target.read(body("vllm-0.32.0-load.txt"))

    assert set(found.absent.values()) == {Absence.NO_DATA}
    with pytest.raises(ValueError, match="'ollama': expected auto or one of vllm, tgi, sg"):
        engines_named("ollama")


def test_lost_requests_are_first_tokens_without_an_end() -> None:
    target = Scraped()
    idle = target.read(body("vllm-0.32.0-idle.txt"))

    after = target.read(body("vllm-0.32.0-after-load.txt"))

    assert idle.values["requests_lost_total"] == 0.0
    assert after.values["requests_lost_total"] == 2.0


def test_preemptions_are_not_taken_for_lost_requests() -> None:
    v0 = first(body("vllm-0.8.5.post2-after.txt"))
    v1 = first(body("vllm-0.32.0-kvfull.txt"))

    assert v0.values["preemptions_total"] == 100.0
    assert v0.values["requests_lost_total"] == 2.0
    assert v1.values["requests_lost_total"] == 0.0


def test_a_new_engine_is_only_new_rows() -> None:
    latency = Term("acme_latency_milliseconds", take="histogram")
    load = Alias((Term("acme_load_percent"),), scale=0.01)
    acme = Engine(
        "acme",
        "acme",
        (
            Row("e2e_seconds", (Alias((latency,), scale=0.001),)),
            Row("kv_cache_usage_ratio", (load,), "max"),
        ),
    )

    found = Scraped(engines=(*ENGINES, acme)).read(
        'acme_latency_milliseconds_bucket{le="+Inf"} 3\n'
        'acme_latency_milliseconds_bucket{le="500"} 2\n'
        "acme_latency_milliseconds_sum 1500\nacme_load_percent 87.5\n"
    )

    assert found.identity.engine == "acme"
    assert found.histograms["e2e_seconds"].bounds == (0.5,)
    assert found.histograms["e2e_seconds"].counts == (2.0,)
    assert found.histograms["e2e_seconds"].sum == 1.5
    assert found.values["kv_cache_usage_ratio"] == 0.875


@pytest.mark.parametrize(
    ("name", "signal"),
    [
        ("requests_waiting", "requests_waiting"),
        ("vllm:num_requests_waiting", "requests_waiting"),
        ("ray_vllm_gpu_cache_usage_perc", "kv_cache_usage_ratio"),
        ("vllm:avg_generation_throughput_toks_per_s", "generation_tokens_per_second"),
        ("tgi_queue_size", "requests_waiting"),
        ("vllm:prefix_cache_hits_total", None),  # a signal only over another
        ("vllm:nothing_of_the_kind", None),
    ],
)
def test_a_metric_name_of_an_engine_leads_to_its_signal(name: str, signal: str | None) -> None:
    assert signal_named(name) == signal


def test_every_name_that_is_offered_leads_to_a_signal() -> None:
    names = engine_names()

    assert {"vllm:num_requests_waiting", "tgi_queue_size"} <= names
    assert [name for name in names if signal_named(name) is None] == []


def test_rows_feed_signals_of_the_catalogue_once_an_engine() -> None:
    known = {signal.name for signal in READING_SIGNALS}
    for engine in ENGINES:
        fed = Counter(row.signal for row in engine.rows)

        assert fed.keys() <= known
        assert set(fed.values()) == {1}
