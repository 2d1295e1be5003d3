"""Counters never fall, histograms add, and the memory behind both is bounded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.sources.page.series import MAX_PARTS, Ledger, Point, RawHistogram
from detectors.records import Histogram

START = 1_700_000_000.0


def count(ledger: Ledger, *points: Point, start: float | None = None, alias: str = "x") -> float:
    """Take one scrape of one counter in and return its total."""
    ledger.begin(start)
    return sum(ledger.counter("prompt_tokens_total", alias, points).values())


def raw(*counts: float, key: str = "a", bounds: tuple[float, ...] = (0.1, 1.0)) -> RawHistogram:
    """Return a histogram whose last number is its total; the sum is half of it."""
    return RawHistogram(key, bounds, counts[:-1], counts[-1], counts[-1] / 2)


def test_a_counter_starts_at_the_pages_value_and_grows_with_it() -> None:
    ledger = Ledger()

    totals = [count(ledger, Point("a", value)) for value in (100.0, 100.0, 130.0)]

    assert totals == [100.0, 100.0, 130.0]
    assert ledger.resets == 0


def test_a_counter_that_fell_counts_from_zero_again() -> None:
    ledger = Ledger()
    count(ledger, Point("a", 100.0), Point("b", 10.0))

    total = count(ledger, Point("a", 7.0), Point("b", 11.0))

    assert total == 118.0
    assert ledger.restarted
    assert ledger.resets == 1


def test_a_moved_process_start_restarts_counters_that_are_already_higher() -> None:
    ledger = Ledger()
    count(ledger, Point("a", 100.0), start=START)

    total = count(ledger, Point("a", 150.0), start=START + 60.0)

    assert total == 250.0
    assert ledger.restarted


def test_a_process_start_that_wobbles_or_goes_missing_is_no_restart() -> None:
    ledger = Ledger()
    count(ledger, Point("a", 100.0), start=START)
    count(ledger, Point("a", 110.0), start=None)

    total = count(ledger, Point("a", 120.0), start=START + 0.01)

    assert total == 120.0
    assert ledger.resets == 0


def test_a_series_that_leaves_takes_nothing_away() -> None:
    ledger = Ledger()
    count(ledger, Point("a", 100.0), Point("b", 50.0))

    totals = [count(ledger, Point("a", 101.0)), count(ledger, Point("a", 101.0), Point("b", 52.0))]

    assert totals == [151.0, 153.0]
    assert not ledger.restarted


def test_a_series_away_for_long_is_forgotten_and_what_it_counted_stays() -> None:
    ledger = Ledger(forget_after=16)
    count(ledger, Point("a", 100.0), Point("b", 50.0))

    totals = [count(ledger, Point("a", 100.0)) for _ in range(40)]

    assert set(totals) == {150.0}
    assert ledger.tracked == 1


def test_a_new_alias_does_not_count_its_past_twice() -> None:
    ledger = Ledger()
    count(ledger, Point("old", 100.0), alias="old")

    totals = [count(ledger, Point("new", value), alias="new") for value in (100.0, 105.0)]

    assert totals == [100.0, 105.0]


def test_a_new_alias_after_a_restart_counts_from_zero() -> None:
    ledger = Ledger()
    count(ledger, Point("old", 100.0), alias="old", start=START)

    total = count(ledger, Point("new", 8.0), alias="new", start=START + 60.0)

    assert total == 108.0


def test_series_beyond_the_limit_are_refused_and_counted() -> None:
    ledger = Ledger(limit=2)

    total = count(ledger, *(Point(str(number), 1.0) for number in range(5)))

    assert total == 2.0
    assert (ledger.tracked, ledger.refused) == (2, 3)


def test_parts_beyond_the_limit_count_as_other() -> None:
    ledger = Ledger()
    ledger.begin(None)
    points = [Point(str(n), 1.0, part=f"reason {n}") for n in range(MAX_PARTS + 5)]

    parts = ledger.counter("requests_finished_total", "x", points)

    assert len(parts) == MAX_PARTS + 1
    assert parts["other"] == 5.0


def test_histograms_of_two_engines_add_and_a_reset_counts_from_zero() -> None:
    ledger = Ledger()
    ledger.begin(None)
    ledger.histogram("ttft_seconds", "x", [raw(1, 2, 3), raw(10, 20, 30, key="b")], whole=True)
    ledger.begin(None)

    merged = ledger.histogram(
        "ttft_seconds", "x", [raw(0, 1, 1), raw(11, 20, 31, key="b")], whole=True
    )

    assert merged is not None
    assert merged.bounds == (0.1, 1.0)
    assert merged.counts == (12.0, 23.0)
    assert (merged.total, merged.sum) == (35.0, 17.5)
    assert ledger.restarted


def test_engines_with_different_buckets_add_over_those_they_share() -> None:
    ledger = Ledger()
    ledger.begin(None)
    other = raw(5, 6, 7, 8, key="b", bounds=(0.1, 0.5, 1.0))

    merged = ledger.histogram("ttft_seconds", "x", [raw(1, 2, 3), other], whole=True)

    assert merged is not None
    assert merged.bounds == (0.1, 1.0)
    assert merged.counts == (6.0, 9.0)
    assert merged.total == 11.0


def test_other_bounds_begin_a_histogram_anew_but_not_its_count_of_observations() -> None:
    ledger = Ledger()
    ledger.begin(None)
    ledger.histogram("ttft_seconds", "x", [raw(1, 2, 3)], whole=True)
    ledger.begin(None)

    merged = ledger.histogram("ttft_seconds", "x", [raw(1, 1, bounds=(5.0,))], whole=True)

    assert merged is not None
    assert (merged.bounds, merged.counts, merged.total) == ((5.0,), (1.0,), 1.0)
    assert ledger.restarted
    assert ledger.observed("ttft_seconds") == 4.0


def test_missing_buckets_of_a_damaged_page_are_no_reset() -> None:
    ledger = Ledger()
    ledger.begin(None)
    ledger.histogram("ttft_seconds", "x", [raw(1, 2, 3)], whole=True)
    ledger.begin(None)

    damaged = ledger.histogram("ttft_seconds", "x", [raw(1, 4, bounds=(0.1,))], whole=False)
    after = ledger.histogram("ttft_seconds", "x", [raw(1, 3, 5)], whole=True)

    assert damaged is None
    assert after is not None
    assert after.counts == (1.0, 3.0)
    assert not ledger.restarted


def test_a_histogram_under_a_new_alias_does_not_count_its_past_twice() -> None:
    ledger = Ledger()
    ledger.begin(None)
    ledger.histogram("inter_token_seconds", "old", [raw(1, 2, 3)], whole=True)
    ledger.histogram("inter_token_seconds", "new", [raw(1, 2, 3, key="n")], whole=True)

    merged = ledger.histogram("inter_token_seconds", "new", [raw(1, 2, 4, key="n")], whole=True)

    assert merged is not None
    assert merged.total == 4.0


def test_histogram_series_are_forgotten_and_refused_like_counters() -> None:
    ledger = Ledger(limit=1, forget_after=8)
    ledger.begin(None)
    ledger.histogram("ttft_seconds", "x", [raw(1, 2, 3, key="gone")], whole=True)
    for _ in range(30):
        ledger.begin(None)
        ledger.histogram("ttft_seconds", "x", [raw(1, 2, 3)], whole=True)
    ledger.counter("prompt_tokens_total", "x", [Point("a", 1.0)])

    assert ledger.observed("ttft_seconds") == 6.0
    assert ledger.tracked == 1
    assert 8 <= ledger.refused <= 12, "refused until the first was forgotten, then the counter"


def test_a_rate_needs_two_scrapes_and_time_between_them() -> None:
    ledger = Ledger()

    rates = [ledger.rate("x", total, at) for total, at in ((5.0, 1.0), (9.0, 3.0), (9.0, 3.0))]

    assert rates == [None, 2.0, None]


def test_an_estimate_keeps_its_highest_value_and_is_never_negative() -> None:
    ledger = Ledger()

    seen = [ledger.highest("x", value) for value in (-3.0, 2.0, 1.0)]

    assert seen == [0.0, 2.0, 2.0]


pages = st.lists(
    st.dictionaries(st.sampled_from("abc"), st.integers(0, 1_000).map(float), max_size=3),
    max_size=30,
)


@given(pages, st.integers(1, 3))
def test_no_sequence_of_pages_makes_a_counter_fall(
    sequence: list[dict[str, float]], limit: int
) -> None:
    ledger = Ledger(limit=limit, forget_after=4)

    totals = [count(ledger, *(Point(k, v) for k, v in page.items())) for page in sequence]

    assert totals == sorted(totals)


@given(st.lists(st.lists(st.integers(0, 50), min_size=3, max_size=3), min_size=1, max_size=20))
def test_no_sequence_of_pages_makes_a_bucket_fall(sequence: list[list[int]]) -> None:
    ledger = Ledger()
    before = (0.0, 0.0, 0.0)
    for numbers in sequence:
        ledger.begin(None)
        merged = ledger.histogram("ttft_seconds", "x", [raw(*sorted(numbers))], whole=True)
        assert merged is not None
        now = (*merged.counts, merged.total)
        assert all(new >= old for new, old in zip(now, before, strict=True))
        before = (now[0], now[1], now[2])


@pytest.mark.parametrize("limit", [0, 1])
def test_the_bound_on_series_holds_over_counters_and_histograms(limit: int) -> None:
    ledger = Ledger(limit=limit)
    ledger.begin(None)

    ledger.counter("prompt_tokens_total", "x", [Point("a", 1.0)])
    ledger.histogram("ttft_seconds", "x", [raw(1, 2, 3)], whole=True)

    assert ledger.tracked == limit
    assert ledger.refused == 2 - limit


def test_a_spoilt_histogram_begins_anew_with_what_the_page_says() -> None:
    ledger = Ledger()
    ledger.begin(None)
    ledger.histogram(
        "queue_seconds", "q", [RawHistogram("a", (1.0,), (3.0,), 4.0, 5e9)], whole=True
    )
    ledger.begin(None)
    fresh = [
        RawHistogram("a", (1.0,), (1.0,), 1.0, 0.5),
        RawHistogram("b", (1.0,), (0.0,), 2.0, 4.0),
    ]
    ledger.histogram("queue_seconds", "q", fresh, whole=True)

    assert ledger.anew("queue_seconds") == Histogram((1.0,), (1.0,), 3.0, 4.5)
    assert ledger.observed("queue_seconds") == 7.0
    assert ledger.anew("ttft_seconds") is None
