"""Quantiles of a window against NumPy, and what is said where buckets cannot say it."""

from __future__ import annotations

import math
from bisect import bisect_left
from itertools import accumulate

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from collector.sources.engine.quantiles import (
    GAUGES,
    MAX_SNAPSHOTS,
    Growth,
    Windows,
    growth_of,
    offered_quantiles,
    quantile_of,
)
from collector.sources.engine.translation import Translation
from detectors.records import Absence, Histogram
from detectors.signals import SIGNALS
from tests.collector.sources.reading_pages import Scraped, scrapes

BOUNDS = (0.1, 0.5, 1.0, 5.0)


def a_histogram(
    values: list[float], bounds: tuple[float, ...] = BOUNDS, before: Histogram | None = None
) -> Histogram:
    """Return a cumulative histogram of `values`, on top of one before."""
    counts = [0] * (len(bounds) + 1)
    for value in values:
        counts[bisect_left(bounds, value)] += 1
    cumulative = list(accumulate(counts))
    old = before or Histogram(bounds, (0.0,) * len(bounds), 0.0, 0.0)
    return Histogram(
        bounds,
        tuple(new + earlier for new, earlier in zip(cumulative, old.counts, strict=False)),
        cumulative[-1] + old.total,
        math.fsum(values) + old.sum,
    )


def growth(values: list[float], bounds: tuple[float, ...] = BOUNDS) -> Growth:
    empty = a_histogram([], bounds)
    return growth_of(0.0, empty, 60.0, a_histogram(values, bounds))


def taken(windows: Windows, histogram: Histogram, at: float) -> Translation:
    found = Translation(histograms={"ttft_seconds": histogram})
    windows.take(found, at)
    return found


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.floats(0.001, 20.0), min_size=1, max_size=200),
    st.sets(st.floats(0.01, 10.0), min_size=1, max_size=12),
    st.sampled_from([0.5, 0.9, 0.99]),
)
@example([2.0, 7.0], {1.3833500804908208, 6.089619102116628}, 0.5)  # rounds over the bound
def test_the_true_quantile_lies_in_the_stated_bucket_whatever_the_buckets(
    values: list[float], bounds: set[float], share: float
) -> None:
    found = quantile_of(growth(values, tuple(sorted(bounds))), share)

    assert found is not None
    truth = float(np.quantile(values, share, method="inverted_cdf"))
    assert found.lower <= truth <= found.upper
    assert found.lower <= found.value <= found.upper
    assert found.samples == len(values)


def test_inside_a_bucket_observations_are_taken_as_evenly_spread() -> None:
    found = quantile_of(growth([0.05] * 4 + [0.7] * 4 + [2.0] * 2), 0.5)

    assert found is not None
    assert (found.lower, found.value, found.upper) == (0.5, 0.625, 1.0)
    assert found.window_seconds == 60.0


def test_in_the_last_bucket_only_the_lower_bound_is_known() -> None:
    found = quantile_of(growth([0.05] * 5 + [30.0] * 5), 0.99)

    assert found is not None
    assert (found.lower, found.value, found.upper) == (5.0, 5.0, math.inf)


def test_where_one_bucket_holds_nearly_everything_the_mean_takes_the_place() -> None:
    few = quantile_of(growth([0.02] * 99 + [0.7]), 0.5)
    slow = quantile_of(growth([0.02] * 99 + [90.0]), 0.5)
    beyond = quantile_of(growth([20.0] * 99 + [0.02]), 0.99)

    assert few is not None
    assert few.value == pytest.approx((0.02 * 99 + 0.7) / 100)
    assert slow is not None
    assert slow.value == 0.1, "a mean outside the bucket is held to it"
    assert beyond is not None
    assert beyond.value == pytest.approx(19.8, abs=0.01)


def test_without_buckets_the_mean_stands_for_the_median_and_nothing_for_the_tail() -> None:
    bare = growth([1.0, 3.0], ())

    median = quantile_of(bare, 0.5)

    assert median is not None
    assert (median.lower, median.value, median.upper) == (0.0, 2.0, math.inf)
    assert quantile_of(bare, 0.99) is None


def test_the_first_scrape_has_no_window_and_the_second_has_one() -> None:
    windows = Windows()
    first = a_histogram([0.7] * 1000)

    before = taken(windows, first, 0.0)
    after = taken(windows, a_histogram([0.3] * 30, before=first), 5.0)

    assert before.absent["ttft_p50_seconds"] is Absence.NO_SAMPLE
    assert after.quantiles["ttft_p50_seconds"].samples == 30.0
    assert after.quantiles["ttft_p50_seconds"].upper == 0.5
    assert after.values["ttft_p99_seconds"] == after.quantiles["ttft_p99_seconds"].value
    assert after.quantiles["ttft_p99_seconds"].window_seconds == 5.0


def test_what_is_older_than_a_minute_has_left_the_window() -> None:
    windows = Windows()
    histogram = a_histogram([])
    taken(windows, histogram, 0.0)
    histogram = a_histogram([3.0] * 50, before=histogram)
    taken(windows, histogram, 5.0)
    found = Translation()
    for moment in range(10, 66, 5):
        histogram = a_histogram([0.3] * 10, before=histogram)
        found = taken(windows, histogram, float(moment))

    assert found.quantiles["ttft_p99_seconds"].upper == 0.5
    assert found.quantiles["ttft_p99_seconds"].window_seconds == 60.0
    assert found.quantiles["ttft_p99_seconds"].samples == 120.0


def test_too_few_requests_are_no_quantile() -> None:
    windows = Windows()
    taken(windows, a_histogram([]), 0.0)

    few = taken(windows, a_histogram([0.3] * 4), 5.0)
    some = taken(windows, a_histogram([0.3] * 19), 10.0)

    assert few.absent["ttft_p50_seconds"] is Absence.TOO_FEW
    assert some.values["ttft_p50_seconds"] == pytest.approx(0.3)
    assert some.absent["ttft_p99_seconds"] is Absence.TOO_FEW


def test_other_buckets_after_a_restart_begin_a_window_of_their_own() -> None:
    windows = Windows()
    taken(windows, a_histogram([]), 0.0)
    taken(windows, a_histogram([0.3] * 50), 5.0)

    changed = taken(windows, a_histogram([8.0] * 50, (2.0, 20.0)), 10.0)
    after = taken(windows, a_histogram([8.0] * 90, (2.0, 20.0)), 15.0)
    later = taken(windows, a_histogram([8.0] * 99, (2.0, 20.0)), 75.0)

    assert changed.absent["ttft_p50_seconds"] is Absence.NO_SAMPLE
    assert "bucket_bounds_changed" in [it.code for it in changed.findings]
    assert (
        after.quantiles["ttft_p50_seconds"].lower,
        after.quantiles["ttft_p50_seconds"].samples,
    ) == (2.0, 40.0)
    assert "bucket_bounds_changed" not in [it.code for it in later.findings]


def test_the_ring_is_bounded_however_fast_it_is_scraped() -> None:
    windows = Windows()
    histogram = a_histogram([])
    found = Translation()
    for place in range(10 * MAX_SNAPSHOTS):
        histogram = a_histogram([0.3], before=histogram)
        found = taken(windows, histogram, place * 0.01)

    assert found.quantiles["ttft_p50_seconds"].samples == MAX_SNAPSHOTS - 1


def test_a_latency_that_is_absent_passes_its_reason_on() -> None:
    found = Translation(absent={"queue_seconds": Absence.NOT_IN_VERSION})

    Windows().take(found, 0.0)

    assert found.absent["queue_p50_seconds"] is Absence.NOT_IN_VERSION
    assert "ttft_p50_seconds" not in found.absent


def test_one_full_bucket_is_a_finding_that_names_it() -> None:
    windows = Windows()
    taken(windows, a_histogram([]), 0.0)

    found = taken(windows, a_histogram([0.02] * 99 + [0.7]), 5.0)
    spread = taken(windows, a_histogram([0.02] * 99 + [0.7] * 99), 10.0)

    assert [it.code for it in found.findings] == ["one_bucket"]
    assert "between 0 and 0.1 s" in found.findings[0].text
    assert spread.findings == []


def test_a_histogram_without_buckets_says_so() -> None:
    windows = Windows()
    taken(windows, Histogram((), (), 0.0, 0.0), 0.0)

    found = taken(windows, Histogram((), (), 40.0, 80.0), 5.0)

    assert [it.code for it in found.findings] == ["no_buckets"]
    assert found.values["ttft_p50_seconds"] == 2.0
    assert found.absent["ttft_p99_seconds"] is Absence.UNUSABLE


def test_the_gauges_are_signals_of_the_table() -> None:
    names = [gauge for gauges in GAUGES.values() for gauge in gauges]

    assert len(names) == 8
    assert set(names) <= SIGNALS.keys()
    assert offered_quantiles(["queue_seconds", "up"]) == {"queue_p50_seconds", "queue_p99_seconds"}


def test_a_recorded_run_gives_quantiles_that_the_mean_bears_out() -> None:
    target, windows, found = Scraped(), Windows(), Translation()
    for place, text in enumerate(scrapes("0.32.0-kvfull")):
        found = target.read(text)
        windows.take(found, 5.0 * place)

    first, gaps = (found.quantiles[f"{it}_p50_seconds"] for it in ("ttft", "inter_token"))
    assert 2.5 <= first.lower <= first.value <= first.upper <= 5.0
    assert gaps.samples > 1000
    assert gaps.value < found.values["inter_token_p99_seconds"] < first.value
    assert found.absent["ttft_p99_seconds"] is Absence.TOO_FEW
