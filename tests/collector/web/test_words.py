"""Numbers and ages as people read them."""

from __future__ import annotations

import math

import pytest

from collector.web import words
from collector.web.view import BreakerView, SignalView, TierView, VerdictView


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (None, "-"),
        (math.inf, "-"),
        (-0.2, "0.0 s"),
        (0.84, "0.8 s"),
        (42.2, "42 s"),
        (150, "2 min"),
        (10_000, "3 h"),
        (400_000, "5 d"),
    ],
)
def test_ages_are_short(seconds: float | None, expected: str) -> None:
    assert words.age(seconds) == expected


@pytest.mark.parametrize(
    ("number", "unit", "expected"),
    [
        (None, "tokens", "-"),
        (math.nan, "tokens", "-"),
        (1234567.0, "tokens", "1,234,567 tokens"),
        (3.0, "x", "3"),
        (0.12345, "seconds", "0.1235 seconds"),
        (0.5, "ratio", "0.500"),
        (1.0, "", "1"),
        (2.0**30, "bytes", "1.00 GiB"),
    ],
)
def test_values_carry_their_unit(number: float | None, unit: str, expected: str) -> None:
    assert words.value(SignalView("x", number, unit, 1.0)) == expected


def test_a_reason_for_absence_does_not_repeat_the_name() -> None:
    assert words.absence(SignalView("x", None, "", None, "x: family absent")) == "family absent"
    assert words.absence(SignalView("x", None, "", None)) == "no reason given"


@pytest.mark.parametrize(
    ("number", "expected"),
    [(0.0, "0.00"), (0.001, "under 0.01"), (0.25, "0.25"), (0.999, "0.99"), (1.0, "1.00")],
)
def test_a_ratio_that_is_not_quite_all_or_nothing_does_not_look_like_it(
    number: float, expected: str
) -> None:
    assert words.ratio(number) == expected


def test_a_tier_that_sheds_is_critical_whatever_its_verdicts_say() -> None:
    fine = VerdictView("tier", "x", "limit", "ok", "", 1.0)
    tier = TierView(
        "chat", "enforce", verdicts=(fine,), breakers=(BreakerView("", "closed", 1, 1),)
    )
    shedding = TierView(
        "chat", "enforce", verdicts=(fine,), breakers=(BreakerView("", "closed", 0.5, 0.5),)
    )

    assert words.mood(tier) == "ok"
    assert words.mood(shedding) == "critical"


def a_verdict(level: str, cause: str = "") -> VerdictView:
    return VerdictView("tier", "x", "detector", level, "", 1.0, cause=cause)


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        ([], "unknown"),
        ([a_verdict("unknown")], "unknown"),
        ([a_verdict("ok"), a_verdict("unknown")], "ok"),
        ([a_verdict("ok"), a_verdict("unknown", "baseline_missing")], "collecting"),
        ([a_verdict("unknown", "baseline_missing"), a_verdict("unknown", "kl")], "unknown"),
        ([a_verdict("unknown", "kl"), a_verdict("warning", "kl")], "warning"),
        ([a_verdict("warning", "kl"), a_verdict("critical", "kl")], "critical"),
    ],
)
def test_the_worst_leaves_out_what_need_not_be_known(
    verdicts: list[VerdictView], expected: str
) -> None:
    assert words.worst(verdicts) == expected
    assert words.symbol(expected) != "?" or expected == "unknown"


def test_missing_moments_are_dashes() -> None:
    assert words.clock(None) == words.stamp(None) == "-"


@pytest.mark.parametrize(
    ("breaker", "expected"),
    [
        (BreakerView("", "open", 0.49, 0.49), "sheds"),
        (BreakerView("", "half_open", 0.6, 0.6), "half_open"),
        (BreakerView("", "closed", 1.0, 1.0), "closed"),
        (BreakerView("", "open", 0.0, 0.0), "open"),
        (BreakerView("c", "open", 0.0, 0.0), "open"),
    ],
)
def test_a_tier_that_lets_a_part_in_sheds(breaker: BreakerView, expected: str) -> None:
    assert words.state(breaker) == expected


@pytest.mark.parametrize(
    ("between", "expected"),
    [(None, ""), ((0.0, 0.025), "0 to 0.025"), ((60.0, None), "60 or more")],
)
def test_a_bucket_says_where_a_quantile_surely_lies(
    between: tuple[float, float | None] | None, expected: str
) -> None:
    signal = SignalView("ttft_p99_seconds", 0.02, "seconds", 1.0, between=between)

    assert words.bucket(signal) == expected
