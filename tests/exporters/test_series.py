"""What readings, verdicts and breakers look like on the page."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families as read_text

from detectors.records import Absence, Histogram, Level, Scope, Stream, Verdict
from detectors.remarks import Finding, Noticed
from exporters.catalog import SCRAPES
from exporters.prometheus import MetricsPage
from exporters.series import (
    BreakerNumbers,
    export_breaker,
    export_reading,
    export_verdicts,
    export_verdicts_in_pieces,
)
from tests.builders import START, a_reading

A = "target=a,tier=chat"


def a_page() -> MetricsPage:
    return MetricsPage(monotonic=lambda: 1_010.0)


def shown(page: MetricsPage) -> dict[str, float]:
    return {
        f"{sample.name}{{"
        + ",".join(f"{k}={v}" for k, v in sorted(sample.labels.items()) if v)
        + "}": sample.value
        for family in read_text(page.render()[0].decode())
        for sample in family.samples
    }


A_TARGET = Scope("target", "a")


def a_verdict(level: Level, scope: Scope = A_TARGET, **facts: float) -> Verdict:
    stream = Stream("chat", scope, "kv_cache_usage_ratio")
    return replace(Verdict("limit", stream, level, START), **facts)  # type: ignore[arg-type]


def test_a_reading_shows_its_signals_parts_histograms_and_ages() -> None:
    reading = replace(
        a_reading({"kv_cache_usage_ratio": 0.5, "generation_tokens_total": 9.0}),
        parts={"requests_finished_total": {"stop": 3.0, "length": 1.0}},
        histograms={"ttft_seconds": Histogram((1.0,), (2.0,), 2.0, 0.5)},
        age_seconds=2.0,
    )
    page = a_page()

    export_reading(page, reading)

    lines = shown(page)
    assert lines[f"fusewire_kv_cache_usage_ratio{{{A}}}"] == 0.5
    assert lines[f"fusewire_generation_tokens_total{{{A}}}"] == 9
    assert lines[f"fusewire_requests_finished_total{{reason=stop,{A}}}"] == 3
    assert lines[f"fusewire_ttft_seconds_count{{{A}}}"] == 2
    assert lines[f"fusewire_signal_age_seconds{{signal=kv_cache_usage_ratio,{A}}}"] == 12
    assert lines[f"fusewire_up{{{A}}}"] == 1
    assert lines[f"fusewire_scrape_seconds{{{A}}}"] == 0.01
    assert lines[f"fusewire_resets_seen_total{{{A}}}"] == 0


def test_a_sum_is_not_shown_beside_its_parts() -> None:
    reading = replace(
        a_reading({"requests_finished_total": 4.0}),
        parts={"requests_finished_total": {"stop": 3.0, "length": 1.0}},
    )
    page = a_page()

    export_reading(page, reading)

    counts = [value for line, value in shown(page).items() if "requests_finished_total{" in line]
    assert counts == [3, 1]


def test_a_failed_scrape_takes_values_away_and_says_why_while_ages_grow() -> None:
    page = a_page()
    export_reading(page, a_reading({"kv_cache_usage_ratio": 0.5}))

    failed = a_reading(
        absent={"kv_cache_usage_ratio": Absence.SCRAPE_FAILED}, problem="refused", seconds=5
    )
    export_reading(page, failed)

    lines = shown(page)
    assert f"fusewire_kv_cache_usage_ratio{{{A}}}" not in lines
    absent = f"fusewire_signal_absent{{reason=scrape failed,signal=kv_cache_usage_ratio,{A}}}"
    assert lines[absent] == 1
    assert lines[f"fusewire_signal_age_seconds{{signal=kv_cache_usage_ratio,{A}}}"] == 10
    assert lines[f"fusewire_up{{{A}}}"] == 0


def test_outcomes_of_scrapes_are_left_to_the_counts_of_the_source() -> None:
    page = a_page()
    page.set(SCRAPES, {"tier": "chat", "target": "a", "reason": "timeout"}, 3)

    export_reading(page, a_reading())
    export_reading(page, a_reading(problem="no whole answer within 4 s"))

    assert [line for line in shown(page).items() if "scrapes" in line[0]] == [
        (f"fusewire_scrapes_total{{reason=timeout,{A}}}", 3)
    ]


def test_an_absence_ends_when_the_value_is_back_or_its_reason_changes() -> None:
    page = a_page()
    export_reading(page, a_reading(absent={"kv_cache_usage_ratio": Absence.SCRAPE_FAILED}))
    export_reading(page, a_reading(absent={"kv_cache_usage_ratio": Absence.NO_FAMILY}))

    between = [line for line in shown(page) if "signal_absent" in line]
    export_reading(page, a_reading({"kv_cache_usage_ratio": 0.1}))

    assert between == [
        f"fusewire_signal_absent{{reason=family absent,signal=kv_cache_usage_ratio,{A}}}"
    ]
    assert not [line for line in shown(page) if "signal_absent" in line]


SEEN = ("kv_cache_usage_ratio", "requests_running", "requests_waiting")
ABSENCES = (Absence.NO_FAMILY, Absence.STALE, Absence.SCRAPE_FAILED)


@given(st.lists(st.lists(st.integers(-1, len(ABSENCES)), min_size=3, max_size=3), max_size=8))
def test_whatever_was_shown_before_the_page_says_what_the_last_readings_said(
    steps: list[list[int]],
) -> None:
    """Of each signal: not spoken of, a value, or one of the reasons to be absent."""
    page = a_page()
    expected: dict[str, float] = {}

    for number, step in enumerate(steps):
        said = {signal: it for signal, it in zip(SEEN, step, strict=True) if it >= 0}
        values = {signal: float(number) for signal, it in said.items() if it == 0}
        absent = {signal: ABSENCES[it - 1] for signal, it in said.items() if it > 0}
        export_reading(page, a_reading(values, absent=absent))
        expected = {name: value for name, value in expected.items() if "_absent" not in name}
        for signal, why in absent.items():
            expected.pop(f"fusewire_{signal}{{{A}}}", None)
            expected[f"fusewire_signal_absent{{reason={why},signal={signal},{A}}}"] = 1
        expected |= {f"fusewire_{signal}{{{A}}}": value for signal, value in values.items()}

    names = (*(f"fusewire_{signal}{{" for signal in SEEN), "fusewire_signal_absent{")
    assert {n: v for n, v in shown(page).items() if n.startswith(names)} == expected


def test_a_finding_is_shown_while_it_holds_and_a_failed_scrape_takes_none_back() -> None:
    def findings(*codes: str) -> tuple[Finding, ...]:
        return tuple(Finding(code, "up", "see to it") for code in codes)

    page = a_page()
    export_reading(page, replace(a_reading(), findings=findings("a", "b")))
    export_reading(page, replace(a_reading(problem="no answer"), findings=findings("c")))
    after_failure = {name for name in shown(page) if "fusewire_finding" in name}
    export_reading(page, replace(a_reading(), findings=findings("b")))

    assert after_failure == {f"fusewire_finding{{cause={code},{A}}}" for code in "abc"}
    assert [name for name in shown(page) if "fusewire_finding" in name] == [
        f"fusewire_finding{{cause=b,{A}}}"
    ]


def test_a_restart_is_counted() -> None:
    page = a_page()

    export_reading(page, replace(a_reading(), restarted=True))

    assert shown(page)[f"fusewire_resets_seen_total{{{A}}}"] == 1


@pytest.mark.parametrize("signal", ["prompt_tokens", "made_up"])
def test_a_signal_that_no_reading_can_have_is_a_mistake(signal: str) -> None:
    with pytest.raises(ValueError, match=f"chat/a by scrape: '{signal}' is not a reading signal"):
        export_reading(a_page(), a_reading({signal: 1.0}))


@pytest.mark.parametrize(
    ("scope", "labels"),
    [
        (Scope("tier"), "tier=chat"),
        (Scope("target", "a"), "target=a,tier=chat"),
        (Scope("segment", "web"), "tier=chat"),
    ],
)
def test_a_verdict_shows_its_level_under_its_scope(scope: Scope, labels: str) -> None:
    page = a_page()

    export_verdicts(page, [a_verdict(Level.WARNING, scope, statistic=0.9, threshold=0.8)])

    segment = "segment=web," if scope.kind == "segment" else ""
    where = f"detector=limit,{segment}signal=kv_cache_usage_ratio,{labels}"
    assert shown(page)[f"fusewire_verdict_level{{{where}}}"] == 1
    assert shown(page)[f"fusewire_statistic{{{where}}}"] == 0.9
    assert shown(page)[f"fusewire_threshold{{{where}}}"] == 0.8
    assert shown(page)["fusewire_last_evaluation_timestamp_seconds{tier=chat}"] == START.timestamp()


def test_an_unknown_verdict_is_minus_one_and_has_no_statistic() -> None:
    page = a_page()
    export_verdicts(page, [a_verdict(Level.OK, statistic=0.5, effect=0.1)])

    export_verdicts(page, [a_verdict(Level.UNKNOWN)])

    assert [value for line, value in shown(page).items() if "verdict_level" in line] == [-1]
    assert not [line for line in shown(page) if "statistic" in line or "effect" in line]


def many_verdicts(count: int) -> list[Verdict]:
    scopes = (Scope("tier"), Scope("target", "a\n" * 100), Scope("segment", "web"))
    verdicts = [
        a_verdict(Level.WARNING, scopes[place % 3], statistic=float(place), threshold=1.0)
        for place in range(count)
    ]
    return [replace(it, detector=f"limit-{place // 3}") for place, it in enumerate(verdicts)]


@pytest.mark.parametrize("size", [1, 4, 10, 1000])
def test_verdicts_in_pieces_end_as_the_same_page(size: int) -> None:
    whole, pieces = a_page(), a_page()
    verdicts = many_verdicts(10)
    export_verdicts(whole, verdicts)

    sizes = list(export_verdicts_in_pieces(pieces, iter(verdicts), size))

    assert pieces.render() == whole.render()
    assert (sum(sizes), max(sizes)) == (10, min(size, 10))


def test_between_two_pieces_the_page_is_whole() -> None:
    page = a_page()
    steps = export_verdicts_in_pieces(page, many_verdicts(6), 2)
    seen = []

    for _ in steps:
        lines = list(shown(page))
        seen.append([sum(word in line for line in lines) for word in ("level", "statistic")])

    assert seen == [[2, 2], [4, 4], [6, 6]]
    assert any("evaluation" in line for line in shown(page))


def test_no_verdicts_are_no_piece() -> None:
    assert list(export_verdicts_in_pieces(a_page(), [], 10)) == []


def test_a_breaker_shows_state_ratio_override_and_lease() -> None:
    page = a_page()

    export_breaker(page, BreakerNumbers("chat", "a", 2, 0.0, lease_expires=1e9))
    export_breaker(page, BreakerNumbers("chat", "", 0, 0.7, override_active=True))

    lines = shown(page)
    assert lines[f"fusewire_breaker_state{{{A}}}"] == 2
    assert lines[f"fusewire_breaker_lease_expires_timestamp_seconds{{{A}}}"] == 1e9
    assert lines["fusewire_admit_ratio{tier=chat}"] == 0.7
    assert lines["fusewire_override_active{tier=chat}"] == 1

    export_breaker(page, BreakerNumbers("chat", "a", 0, 1.0))
    assert not [line for line in shown(page) if "lease" in line]


def test_changes_are_counted_and_a_first_sight_is_none() -> None:
    page = a_page()
    restart, seen = Noticed("restart"), Noticed("version", "", "0.32.0", first=True)

    export_reading(page, replace(a_reading(), noticed=(restart, seen)))
    export_reading(page, replace(a_reading(), noticed=(restart,)))

    found = {name: it for name, it in shown(page).items() if "changes_seen" in name}
    assert found == {f"fusewire_changes_seen_total{{reason=restart,{A}}}": 2.0}
