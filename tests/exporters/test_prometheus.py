"""The metrics page: bounded, finite, and what prometheus-client and promtool can read."""

from __future__ import annotations

import math
import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text

from detectors.records import Histogram
from exporters.catalog import (
    ADMIT_RATIO,
    BREAKER_STATE,
    BUILD_INFO,
    LOOP_LAG,
    SCRAPES,
    SERIES_REFUSED,
    SIGNAL_AGE,
    STATISTIC,
    TRANSITIONS,
    VALUES_REFUSED,
    VERDICT_LEVEL,
    Metric,
    signal_metric,
)
from exporters.prometheus import CHUNK_SAMPLES, LABEL_CHARACTERS, MetricsPage

OPENMETRICS = "application/openmetrics-text;version=1.0.0;q=0.75,text/plain;version=0.0.4;q=0.5"
KV = signal_metric("kv_cache_usage_ratio")
TTFT = signal_metric("ttft_seconds")
A = {"tier": "chat", "target": "a"}
B = {"tier": "chat", "target": "b"}
FEW = Histogram(bounds=(0.1, 0.5), counts=(1.0, 3.0), total=4.0, sum=2.5)


def a_page(series_limit: int = 1_000, now: float = 50.0) -> MetricsPage:
    return MetricsPage(monotonic=lambda: now, series_limit=series_limit)


def shown(page: MetricsPage) -> dict[str, float]:
    """Return the page's lines, as prometheus-client's own parser reads them."""
    lines = {}
    for family in read_text(page.render()[0].decode()):
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            lines[f"{sample.name}{{{labels}}}"] = sample.value
    return lines


def test_a_gauge_a_counter_and_a_histogram_come_out_as_written() -> None:
    page = a_page()

    page.set(KV, A, 0.25)
    page.set(KV, A, 0.5)
    page.add(SCRAPES, {**A, "reason": "ok"})
    page.add(SCRAPES, {**A, "reason": "ok"}, 2)
    page.observe_histogram(TTFT, A, FEW)

    lines = shown(page)
    assert lines["fusewire_kv_cache_usage_ratio{target=a,tier=chat}"] == 0.5
    assert lines["fusewire_scrapes_total{reason=ok,target=a,tier=chat}"] == 3
    assert lines["fusewire_ttft_seconds_bucket{le=0.1,target=a,tier=chat}"] == 1
    assert lines["fusewire_ttft_seconds_bucket{le=+Inf,target=a,tier=chat}"] == 4
    assert lines["fusewire_ttft_seconds_count{target=a,tier=chat}"] == 4
    assert lines["fusewire_ttft_seconds_sum{target=a,tier=chat}"] == 2.5


def test_the_age_of_a_moment_grows_by_itself() -> None:
    clock = [50.0]
    page = MetricsPage(monotonic=lambda: clock[0])
    page.set_since(SIGNAL_AGE, {**A, "signal": "up"}, 49.0)

    clock[0] = 60.0

    assert shown(page)["fusewire_signal_age_seconds{signal=up,target=a,tier=chat}"] == 11.0


def test_a_metric_that_is_not_in_the_catalogue_is_a_mistake() -> None:
    with pytest.raises(ValueError, match=r"'fusewire_new' is not in exporters/catalog\.py"):
        a_page().set(Metric("fusewire_new", "gauge", "New."), {}, 1)


def test_a_label_that_is_not_in_the_catalogue_is_a_mistake() -> None:
    with pytest.raises(ValueError, match=r"no label user; exporters/catalog\.py has: tier, target"):
        a_page().set(KV, {**A, "user": "someone"}, 1)
    with pytest.raises(ValueError, match="no label user"):
        a_page().remove(KV, user="someone")


def test_a_metric_of_another_kind_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="is a gauge, used as counter"):
        a_page().add(KV, A)
    with pytest.raises(ValueError, match="is a histogram, used as gauge or counter"):
        a_page().set(TTFT, A, 1)


@pytest.mark.parametrize("amount", [-1.0, math.nan, math.inf])
def test_a_counter_does_not_count_nonsense(amount: float) -> None:
    with pytest.raises(ValueError, match="expected a finite number >= 0"):
        a_page().add(SCRAPES, {**A, "reason": "ok"}, amount)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_not_finite_leaves_no_series_and_is_counted(value: float) -> None:
    page = a_page()
    page.set(KV, A, 0.5)

    page.set(KV, A, value)
    page.set(KV, B, value)

    assert not [line for line in shown(page) if line.startswith(KV.name)]
    assert shown(page)[VALUES_REFUSED.name + "{}"] == 2


def test_a_counter_keeps_its_last_value_when_the_next_is_not_finite() -> None:
    tokens = signal_metric("generation_tokens_total")
    page = a_page()
    page.set(tokens, A, 7)

    page.set(tokens, A, math.nan)

    assert shown(page)["fusewire_generation_tokens_total{target=a,tier=chat}"] == 7


@pytest.mark.parametrize(
    "broken",
    [
        Histogram((0.1, 0.5), (1.0, math.nan), 4.0, 2.5),
        Histogram((0.1, 0.5), (1.0, 3.0), 4.0, math.inf),
        Histogram((0.1, 0.5), (1.0,), 4.0, 2.5),
    ],
)
def test_a_broken_histogram_is_refused_and_counted(broken: Histogram) -> None:
    page = a_page()

    page.observe_histogram(TTFT, A, broken)

    assert page.series == 0
    assert shown(page)[VALUES_REFUSED.name + "{}"] == 1


def test_label_values_are_printable_and_short() -> None:
    page = a_page()

    page.set(BUILD_INFO, {"reason": 'a"b\\c\nd\x00' + "x" * 500}, 1)

    ((family, *_),) = [[f for f in read_text(page.render()[0].decode()) if "build" in f.name]]
    value = family.samples[0].labels["reason"]
    assert value == 'a"b\\c_d_' + "x" * (LABEL_CHARACTERS - 8)


def test_series_beyond_the_cap_are_refused_and_counted_and_others_stay() -> None:
    page = a_page(series_limit=10)

    for number in range(15):
        page.set(BREAKER_STATE, {"tier": "chat", "target": str(number)}, 0)
    page.set(BREAKER_STATE, {"tier": "chat", "target": "3"}, 2)

    lines = shown(page)
    assert page.series == 10
    assert lines[SERIES_REFUSED.name + "{}"] == 5
    assert lines["fusewire_breaker_state{target=3,tier=chat}"] == 2


def test_signals_of_targets_leave_room_for_breakers() -> None:
    page = a_page(series_limit=10)

    for number in range(15):
        page.set(KV, {"tier": "chat", "target": str(number)}, 0.5)
    page.set(BREAKER_STATE, A, 2)
    page.set(ADMIT_RATIO, A, 0)

    assert shown(page)["fusewire_breaker_state{target=a,tier=chat}"] == 2
    assert page.series == 10


def test_a_histogram_counts_with_all_its_lines() -> None:
    page = a_page()

    page.observe_histogram(TTFT, A, FEW)
    page.observe_histogram(TTFT, A, Histogram((0.1,), (1.0,), 1.0, 0.1))

    assert page.series == 4


def test_a_histogram_that_outgrows_the_cap_leaves_the_page_rather_than_growing_old() -> None:
    page = a_page(series_limit=6)
    page.observe_histogram(TTFT, A, Histogram((0.1,), (1.0,), 1.0, 0.1))

    page.observe_histogram(TTFT, A, FEW)

    assert page.series == 0
    assert shown(page)[SERIES_REFUSED.name + "{}"] == 1


def test_a_target_that_vanished_leaves_no_series() -> None:
    page = a_page()
    for labels in (A, B):
        page.set(KV, labels, 0.5)
        page.observe_histogram(TTFT, labels, FEW)
        page.add(TRANSITIONS, {**labels, "reason": "open"})
    page.set(LOOP_LAG, {}, 0.01)

    page.forget(tier="chat", target="a")

    assert not [line for line in shown(page) if "target=a" in line]
    assert len([line for line in shown(page) if "target=b" in line]) == 7
    assert page.series == 8


def test_series_are_removed_by_what_their_labels_are() -> None:
    page = a_page()
    for tier in ("chat", "code"):
        for reason in ("ok", "failed"):
            page.add(SCRAPES, {"tier": tier, "target": "a", "reason": reason})

    page.remove(SCRAPES, reason="failed")
    page.remove(SCRAPES, tier="code", target="a")
    page.remove(SCRAPES, tier="none", target="a", reason="ok")

    assert [line for line in shown(page) if line.startswith(SCRAPES.name)] == [
        "fusewire_scrapes_total{reason=ok,target=a,tier=chat}"
    ]


@pytest.mark.parametrize("accept", ["", OPENMETRICS, "text/plain", "nonsense;version=x"])
def test_pieces_joined_are_the_page(accept: str) -> None:
    page = a_page(series_limit=10_000)
    for number in range(400):
        labels = {"tier": "chat", "target": f"t{number}"}
        page.set(KV, labels, number / 400)
        page.observe_histogram(TTFT, labels, FEW)
        page.add(SCRAPES, {**labels, "reason": "ok"})

    pieces = list(page.render_families(accept))

    assert b"".join(pieces) == page.render(accept)[0]
    assert len(pieces) > 20
    assert max(piece.count(b"\n") for piece in pieces) < 120


def test_openmetrics_is_what_its_parser_reads() -> None:
    page = a_page()
    page.observe_histogram(TTFT, A, FEW)
    page.add(SCRAPES, {**A, "reason": "ok"})

    text, content_type = page.render(OPENMETRICS)

    assert content_type.startswith("application/openmetrics-text; version=1.0.0")
    assert content_type == page.content_type(OPENMETRICS)
    read = list(read_openmetrics(text.decode()))  # type: ignore[no-untyped-call]  # not annotated
    names = {family.name for family in read}
    assert {"fusewire_ttft_seconds", "fusewire_scrapes"} <= names


def test_an_accept_header_nobody_can_read_gets_plain_text() -> None:
    page = a_page()

    text, content_type = page.render("application/openmetrics-text;version=x.y")

    assert content_type.startswith("text/plain")
    assert text.startswith(b"# HELP")


def test_the_page_may_change_between_pieces() -> None:
    page = a_page(series_limit=10_000)
    for number in range(300):
        page.set(KV, {"tier": "chat", "target": f"t{number}"}, 0.5)
    pieces = page.render_families()
    first = next(pieces)

    for number in range(200, 300):
        page.forget(tier="chat", target=f"t{number}")
    page.set(KV, {"tier": "chat", "target": "late"}, 0.5)

    text = (first + b"".join(pieces)).decode()
    families = {family.name: family for family in read_text(text)}
    assert len(families[KV.name].samples) == 200


@given(st.data())
def test_the_number_of_series_is_always_that_of_the_lines(data: st.DataObject) -> None:
    page = a_page(series_limit=12)
    rng = random.Random(data.draw(st.integers(0, 10_000)))
    histograms = (FEW, Histogram((), (), 1.0, 1.0), Histogram((1.0,), (1.0,), 1.0, 1.0))
    for _ in range(40):
        labels = {"tier": "chat", "target": rng.choice("abcde")}
        match rng.randrange(5):
            case 0:
                page.set(KV, labels, rng.choice([0.5, math.nan]))
            case 1:
                page.observe_histogram(TTFT, labels, rng.choice(histograms))
            case 2:
                page.set(BREAKER_STATE, labels, 1)
            case 3:
                page.remove(BREAKER_STATE, **labels)
            case _:
                page.forget(**labels)

    own = {SERIES_REFUSED.name + "{}", VALUES_REFUSED.name + "{}"}
    assert page.series == len(shown(page).keys() - own) <= 12


@pytest.mark.slow
def test_a_page_of_a_thousand_targets_comes_in_pieces_of_bounded_size() -> None:
    page = MetricsPage(monotonic=time.monotonic, series_limit=100_000)
    for number in range(1_000):
        labels = {"tier": "chat", "target": f"t{number}"}
        page.observe_histogram(TTFT, labels, Histogram(tuple(range(1, 41)), (1.0,) * 40, 2.0, 1.0))
        page.set(KV, labels, 0.5)

    pieces = list(page.render_families(OPENMETRICS))

    lines = [sum(not line.startswith(b"#") for line in piece.splitlines()) for piece in pieces]
    assert sum(lines) >= 44_000
    assert max(lines) <= 2 * CHUNK_SAMPLES  # a group may end a little over a chunk


def test_a_row_of_gauges_is_the_same_as_one_by_one() -> None:
    one_by_one, row = a_page(), a_page()
    labels = {**A, "segment": "", "signal": "requests_waiting", "detector": "limit\n"}
    for values in ((1.0, 2.0), (1.0, None), (math.nan, 3.0)):
        for metric, value in zip((VERDICT_LEVEL, STATISTIC), values, strict=True):
            if value is None:
                one_by_one.remove(metric, **labels)
            else:
                one_by_one.set(metric, labels, value)
        in_order = [labels[name] for name in VERDICT_LEVEL.labels]

        row.set_row((VERDICT_LEVEL, STATISTIC), in_order, values)

        assert row.render() == one_by_one.render()
        assert row.series == one_by_one.series


def test_a_row_with_a_label_too_few_or_of_another_kind_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="1 labels, expected 5"):
        a_page().set_row((VERDICT_LEVEL,), ("chat",), (1.0,))
    with pytest.raises(ValueError, match="is a counter, used as gauge"):
        a_page().set_row((SCRAPES,), ("chat", "a", "read"), (1.0,))
