"""The oddities of real pages, one by one: what each must give (README of the recorded pages)."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.sources.page.families import normal_bytes
from collector.sources.page.page import Page, Skip
from detectors.records import Absence
from tests.collector.sources.expected import PAGES
from tests.collector.sources.reading_pages import FAMILIES, NAMES, Scraped, body, page_of

WHOLE = {name: body(name) for name in NAMES if body(name)}
LINES = {
    name: [line for line in text.split(b"\n") if FAMILIES.pattern.match(b"\n" + line)]
    for name, text in WHOLE.items()
}


def samples(page: Page) -> int:
    return sum(map(len, page.samples.values()))


def test_a_type_under_the_colon_name_holds_for_samples_with_the_underscore() -> None:
    page = page_of(body("prometheus-client-0.26-openmetrics-escaping-underscores.txt"))

    assert page.types["vllm_prompt_tokens_total"] == "counter"
    assert page.samples["vllm_prompt_tokens_total"]


def test_counters_of_the_rust_front_end_are_counters_under_their_full_name() -> None:
    page = page_of(body("vllm-0.32.0-rust-load.txt"))
    found = Scraped().read(body("vllm-0.32.0-rust-load.txt"))

    assert page.types["vllm_generation_tokens_total"] == "counter"
    assert page.openmetrics
    assert found.values["generation_tokens_total"] > 0.0


@pytest.mark.parametrize("name", ["tgi-3.3-full-2025-09.txt", "triton-trtllm-23.11-full.txt"])
def test_counters_without_a_suffix_are_counters_by_their_type(name: str) -> None:
    found = Scraped().read(body(name))

    assert "requests_finished_total" in found.values


def test_created_series_feed_nothing() -> None:
    found = Scraped().read(body("vllm-0.10.0-created-series.txt"))

    assert b"_created" in body("vllm-0.10.0-created-series.txt")
    assert not [name for name in found.aliases.values() if "created" in name]


def test_ranks_in_no_order_and_without_types_are_summed() -> None:
    text = "".join(
        f'sglang:num_queue_reqs{{dp_rank="{rank}",tp_rank="{rank}"}} {rank}.0\n'
        for rank in (3, 0, 7, 1, 2, 6, 5, 4)
    )

    assert Scraped().read(text).values["requests_waiting"] == 28.0


def test_sums_may_stand_before_buckets() -> None:
    ttft = Scraped().read(body("sglang-2025-docs-full.txt")).histograms["ttft_seconds"]

    assert ttft.total == 11_008.0
    assert ttft.total - ttft.counts[-1] > 0.77 * ttft.total, "beyond the last finite bucket"


def test_float_noise_in_bounds_is_kept_as_it_is() -> None:
    steps = Scraped().read(body("tgi-3.3-full-2025-09.txt")).histograms["inter_token_seconds"]

    assert steps.bounds[0] == 0.00015000000000000001


@pytest.mark.parametrize(
    ("name", "signal"),
    [
        ("jetstream-queue-duration-excerpt.txt", "queue_seconds"),
        ("vllm-0.5.1-all-zero-ttft.txt", "ttft_seconds"),
        ("vllm-0.4.0-tgis-adapter.txt", "queue_seconds"),
    ],
)
def test_a_histogram_without_its_end_is_incomplete_not_small(name: str, signal: str) -> None:
    found = Scraped().read(body(name))

    assert signal not in found.histograms
    assert signal in found.absent


def test_a_missing_last_bucket_is_made_up_from_the_count() -> None:
    found = Scraped().read(
        'jetstream_queue_duration_bucket{id="x",le="0.5"} 17.0\n'
        'jetstream_queue_duration_sum{id="x"} 3.5\njetstream_queue_duration_count{id="x"} 20\n'
    )

    assert found.histograms["queue_seconds"].counts == (17.0,)
    assert found.histograms["queue_seconds"].total == 20.0


def test_blanks_comments_and_dots_are_passed_over() -> None:
    for name in ("tgi-3.3-full-2025-09.txt", "dcgm-netdata-testdata.txt"):
        assert page_of(body(name)).skipped == {}


def test_braces_and_quotes_inside_a_label_are_its_value() -> None:
    line = b"tgi_batch_inference_count{method=\"{'method': 'prefill'}\",x=\"a=b,}\"} 3\n"
    page = page_of(b"tgi_queue_size 1\n" + line.replace(b"_inference_count", b"_current_size"))

    series, value = page.samples["tgi_batch_current_size"][0]
    assert (series.labels["method"], series.labels["x"], value) == (
        "{'method': 'prefill'}", "a=b,}", 3.0
    )  # fmt: skip


def test_a_body_cut_in_a_label_loses_its_last_line_alone() -> None:
    found = page_of(body("vllm-0.2.3-aioprometheus-truncated.txt"))

    assert found.cut
    assert found.skipped == {Skip.CUT: 1}
    assert found.types["vllm_avg_generation_throughput_toks_per_s"] == "gauge"


def test_exponents_of_three_digits_and_sentinels_are_told_apart() -> None:
    found = Scraped().read(
        "llamacpp:prompt_tokens_total 1.1701968896e+010\n"
        "llamacpp:requests_processing 9223372036854775794\n"
    )

    assert found.values["prompt_tokens_total"] == 11_701_968_896.0
    assert found.absent["requests_running"] is Absence.UNUSABLE
    assert found.skipped[Skip.UNUSABLE] == 1


def test_six_significant_digits_never_let_a_counter_fall() -> None:
    target = Scraped()
    target.read("llamacpp:tokens_predicted_total 2.16578e+06\n")

    found = target.read("llamacpp:tokens_predicted_total 2.16578e+06\n")

    assert not found.restarted
    assert found.values["generation_tokens_per_second"] == 0.0


@pytest.mark.parametrize(
    "name", ["tgi-3.3-fresh-idle-empty.txt", "vllm-0.6-empty-body-http-head.txt"]
)
def test_an_empty_answer_is_no_zero(name: str) -> None:
    text = body(name).partition(b"\r\n\r\n")[2] if name.endswith("head.txt") else body(name)

    found = Scraped().read(text)

    assert found.values == {}
    assert set(found.absent.values()) == {Absence.NO_DATA}


def test_a_hang_shows_although_labels_are_elided() -> None:
    text = body("vllm-metal-2026-livelock-elided-labels.txt")

    found = Scraped().read(text)

    assert (found.values["requests_running"], found.values["requests_waiting"]) == (0.0, 6.0)
    assert found.absent["kv_cache_capacity_tokens"] is Absence.UNUSABLE
    assert page_of(text).skipped[Skip.LABELS] == 1


def test_a_console_paste_is_no_page_and_costs_its_lines_alone() -> None:
    text = body("vllm-0.10.2-dp8-prometheus-console.txt")

    found = Scraped().read(text + b'\nvllm:num_requests_running{engine="0"} 2\n')

    assert found.values["requests_running"] == 2.0


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(sorted(name for name, lines in LINES.items() if len(lines) > 3)),
    st.integers(0, 1 << 20),
    st.sampled_from(
        [b"{oops", b'{a="b"} x', b'{a="b} 3', b" NaNs", b'{a="b",a="c"} 4', b"{a=b} 5"]
    ),
)
def test_a_bad_line_anywhere_is_counted_and_costs_no_good_sample(
    name: str, place: int, tail: bytes
) -> None:
    lines = WHOLE[name].split(b"\n")
    names = sorted({line.partition(b"{")[0].partition(b" ")[0] for line in LINES[name]})
    plain = [
        it for it in names if FAMILIES.roles.get(normal_bytes(it), ("", "bucket"))[1] != "bucket"
    ]
    if not plain:
        return
    family = plain[place % len(plain)]
    before = page_of(b"\n".join(lines))
    at = place % len(lines)
    after = page_of(b"\n".join([*lines[:at], family + tail, *lines[at:]]))

    assert samples(after) == samples(before)
    if b"# EOF" not in lines[:at] and samples(before):
        assert sum(after.skipped.values()) == sum(before.skipped.values()) + 1


def test_every_recorded_page_of_an_engine_gives_finite_numbers() -> None:
    for name in NAMES:
        found = Scraped().read(body(name))

        assert all(math.isfinite(value) for value in found.values.values()), name


def test_the_table_of_expected_signals_covers_every_recorded_page() -> None:
    assert sorted(path.name for path in Path(PAGES).glob("*.txt")) == NAMES
