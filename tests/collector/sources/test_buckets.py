"""The pieces of a histogram, in any order and of any worth."""

from __future__ import annotations

import pytest

from collector.sources.page.buckets import histograms
from collector.sources.page.page import Skip
from detectors.records import Absence
from tests.collector.sources.reading_pages import Scraped, body, page_of


@pytest.mark.parametrize("order", [1, -1])
def test_pieces_of_a_histogram_may_come_in_any_order(order: int) -> None:
    lines = [
        'vllm:time_to_first_token_seconds_bucket{le="0.1"} 1',
        'vllm:time_to_first_token_seconds_bucket{le="1.0"} 2',
        "vllm:time_to_first_token_seconds_count 3",
        "vllm:time_to_first_token_seconds_sum 4.5",
    ]

    found = Scraped().read("\n".join(lines[::order]) + "\n").histograms["ttft_seconds"]

    assert (found.bounds, found.counts) == ((0.1, 1.0), (1.0, 2.0))
    assert (found.total, found.sum) == (3.0, 4.5)


@pytest.mark.parametrize(
    "missing", ["_bucket", "_sum", "_count"], ids=["no buckets", "no sum", "no total"]
)
def test_a_histogram_with_a_part_missing_is_unusable(missing: str) -> None:
    text = (
        'vllm:time_to_first_token_seconds_bucket{le="0.1"} 1\n'
        "vllm:time_to_first_token_seconds_sum 4.5\nvllm:time_to_first_token_seconds_count 3\n"
    )
    kept = [line for line in text.splitlines() if missing not in line]

    found = Scraped().read("\n".join(kept) + "\n")

    assert found.absent["ttft_seconds"] is Absence.UNUSABLE
    assert found.skipped[Skip.UNUSABLE] == 1


def test_buckets_read_while_they_change_are_put_right() -> None:
    found = (
        Scraped()
        .read(
            'vllm:time_to_first_token_seconds_bucket{le="0.1"} 5\n'
            'vllm:time_to_first_token_seconds_bucket{le="1.0"} 4\n'
            'vllm:time_to_first_token_seconds_bucket{le="+Inf"} 4\n'
            "vllm:time_to_first_token_seconds_sum 1\n"
        )
        .histograms["ttft_seconds"]
    )

    assert found.counts == (5.0, 5.0)
    assert found.total == 5.0


def test_a_cut_histogram_is_unusable_even_if_its_count_came_first() -> None:
    found = Scraped().read(
        "vllm:time_to_first_token_seconds_sum 1\nvllm:time_to_first_token_seconds_count 4\n"
        'vllm:time_to_first_token_seconds_bucket{le="0.1"} 4\n'
        'vllm:time_to_first_token_seconds_bucket{le="1'
    )

    assert found.absent["ttft_seconds"] is Absence.UNUSABLE


PIECES = {
    "_bucket": 'vllm:time_to_first_token_seconds_bucket{le="0.1"} ',
    "_sum": "vllm:time_to_first_token_seconds_sum ",
    "_count": "vllm:time_to_first_token_seconds_count ",
}


@pytest.mark.parametrize("value", ["1e308", "9.1e15", "NaN", "+Inf"])
@pytest.mark.parametrize("piece", PIECES)
def test_a_histogram_with_a_number_that_is_no_count_is_unusable(piece: str, value: str) -> None:
    lines = {name: start + ("4.5" if name == "_sum" else "3") for name, start in PIECES.items()}
    lines[piece] = PIECES[piece] + value

    found = Scraped().read("\n".join(lines.values()) + "\n")

    assert found.absent["ttft_seconds"] is Absence.UNUSABLE
    assert found.skipped[Skip.UNUSABLE] == 1


def test_a_bound_of_minus_infinity_is_unusable() -> None:
    found = Scraped().read(
        'vllm:time_to_first_token_seconds_bucket{le="-Inf"} 1\n'
        'vllm:time_to_first_token_seconds_bucket{le="+Inf"} 1\n'
        "vllm:time_to_first_token_seconds_sum 1\n"
    )

    assert found.absent["ttft_seconds"] is Absence.UNUSABLE


def test_one_absurd_count_leaves_nothing_behind() -> None:
    good = body("vllm-0.32.0-load.txt").decode()
    name = 'vllm:time_to_first_token_seconds_count{engine="0"'
    absurd = "\n".join(
        line.rpartition(" ")[0] + " 1e308"
        if line.startswith((name, name.replace("_count", "_bucket"))) and "0.0" not in line
        else line
        for line in good.splitlines()
    )
    target, calm = Scraped(), Scraped()

    with_it = [target.read(page) for page in (good, absurd + "\n", good)]
    without = [calm.read(page) for page in (good, good, good)]

    assert absurd != good
    assert with_it[1].absent["ttft_seconds"] is Absence.UNUSABLE
    assert with_it[1].absent["requests_lost_total"] is Absence.UNUSABLE
    assert with_it[2].histograms == without[2].histograms
    assert with_it[2].values["requests_lost_total"] == without[2].values["requests_lost_total"]


def test_a_fall_of_buckets_is_put_right_and_told() -> None:
    steady, torn = (
        histograms(page.samples["vllm_e2e_request_latency_seconds"], scale=1.0)[0][0]
        for page in (
            page_of(
                f'vllm:e2e_request_latency_seconds_bucket{{le="1"}} 9\n'
                f'vllm:e2e_request_latency_seconds_bucket{{le="2"}} {second}\n'
                "vllm:e2e_request_latency_seconds_sum 5\nvllm:e2e_request_latency_seconds_count 9\n"
            )
            for second in (9, 4)
        )
    )

    assert (steady.dip, torn.dip) == (0.0, 5.0)
    assert torn.counts == (9.0, 9.0)


@pytest.mark.parametrize("missing", ["sum", "count"])
def test_a_summary_needs_its_sum_and_its_count(missing: str) -> None:
    lines = ["tgi_request_duration_sum 21.5\n", "tgi_request_duration_count 31\n"]
    page = page_of("".join(lines))
    torn = page_of("".join(line for line in lines if missing not in line))

    (whole,), none = histograms(page.samples["tgi_request_duration"], scale=1.0, bare=True)

    assert (whole.bounds, whole.total, whole.sum, none) == ((), 31.0, 21.5, 0)
    assert histograms(torn.samples["tgi_request_duration"], scale=1.0, bare=True) == ([], 1)
