"""Nulls of stored baselines: how requests came, seasons, design effects of busy ticks."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest

from detectors.baseline import (
    Baseline,
    SignalBaseline,
    content_id,
    from_bytes,
    make_baseline,
    merged,
    to_bytes,
)
from detectors.sequential.band import coarse, thresholds_of
from detectors.sequential.design_effect import LEAST_TAU, design_effect
from detectors.sequential.nulls import Null, dependences, make_null
from detectors.sequential.tiers import TIERS
from detectors.sequential.traffic import on_grid
from tests.builders import START, a_tick
from tests.detectors.panels import SIGNAL, a_baseline


def hourly(*, hours: int, each: int, swing: float, seed: int = 1) -> Baseline:
    """Return a baseline of ticks of two minutes whose values rise and fall over the day."""
    rng = np.random.default_rng(seed)
    ticks = [
        replace(
            a_tick(
                {SIGNAL: rng.beta(2 + swing * np.sin(2 * np.pi * number / 720), 5, each)},
                number=number,
            ),
            start=START + timedelta(minutes=2 * number),
        )
        for number in range(30 * hours)
    ]
    return make_baseline(ticks, made_at=START, provenance="ticks")


def null_of(row: SignalBaseline) -> Null:
    return make_null(row.counts, traffic=row.traffic, design_effect=row.design_effect, tiers=TIERS)


def test_a_baseline_of_three_days_keeps_its_hours_and_one_of_two_does_not() -> None:
    two, three = (hourly(hours=hours, each=400, swing=0.3) for hours in (48, 72))
    row = three.signals[SIGNAL]

    shorter = two.signals[SIGNAL].traffic
    assert shorter is not None
    assert shorter.hours is None
    assert row.traffic is not None
    assert row.traffic.hours is not None
    assert row.traffic.hours.sum() == row.requests
    assert row.traffic.hours[12].sum() == 3 * 30 * 400
    assert row.traffic.dependence.blocks >= 20
    assert row.made_at == three.made_at


def test_the_design_effect_is_that_of_the_counts_between_thresholds() -> None:
    rng = np.random.default_rng(3)
    level = np.repeat(rng.normal(size=60), 10)  # ten ticks in a row are alike
    ticks = [
        a_tick({SIGNAL: rng.beta(2 + 0.5 * abs(high), 5, 40)}, number=number)
        for number, high in enumerate(level)
    ]
    row = make_baseline(ticks, made_at=START, provenance="ticks").signals[SIGNAL]
    series = np.stack([tick.counts[SIGNAL] for tick in ticks])

    expected = design_effect(coarse(series, thresholds_of(series.sum(axis=0))))

    assert row.traffic is not None
    assert row.traffic.dependence == expected
    assert expected.tau > 2


def test_how_requests_came_is_kept_in_bytes_and_decides_the_id() -> None:
    made = hourly(hours=72, each=400, swing=0.3)
    row = made.signals[SIGNAL]
    assert row.traffic is not None

    back = from_bytes(to_bytes(made)).signals[SIGNAL].traffic
    without = replace(made, signals={SIGNAL: replace(row, traffic=None)})
    no_hours = replace(row, traffic=replace(row.traffic, hours=None))

    assert back is not None
    assert back.dependence == row.traffic.dependence
    np.testing.assert_array_equal(back.hours, row.traffic.hours)
    ids = {content_id(some) for some in (made, without, replace(made, signals={SIGNAL: no_hours}))}
    assert len(ids) == 3


def test_a_baseline_of_an_older_build_keeps_its_id_and_is_read() -> None:
    made = hourly(hours=72, each=400, swing=0.3)
    row = replace(made.signals[SIGNAL], traffic=None)
    old = replace(made, signals={SIGNAL: row})
    old = replace(old, id=content_id(old))

    back = from_bytes(to_bytes(old))

    assert b"traffic" not in to_bytes(old)
    assert back.id == old.id
    assert back.signals[SIGNAL].traffic is None
    null = null_of(back.signals[SIGNAL])
    assert not null.known
    assert null.tau == max(row.design_effect, LEAST_TAU)


def test_merged_baselines_keep_the_larger_design_effect_and_no_hours() -> None:
    one, other = (hourly(hours=30, each=10, swing=swing, seed=4) for swing in (0.0, 1.5))

    row = merged(one, other, made_at=START, provenance="both").signals[SIGNAL]

    larger = other.signals[SIGNAL].traffic
    assert larger is not None
    assert row.traffic is not None
    assert row.traffic.dependence == larger.dependence
    assert row.traffic.hours is None


def test_a_daily_wave_is_a_season_where_days_show_it_and_dependence_where_they_do_not() -> None:
    few, many = (hourly(hours=72, each=each, swing=0.3).signals[SIGNAL] for each in (10, 600))

    as_a_whole, by_season = null_of(few), null_of(many)

    assert as_a_whole.tau > 5
    assert by_season.tau < 1.5
    plain = make_null(
        many.counts,
        traffic=replace(many.traffic, hours=None) if many.traffic else None,
        design_effect=1.0,
        tiers=TIERS,
    )
    wide, narrow = (
        float((some.bets["page"].band.high - some.bets["page"].band.low).max())
        for some in (by_season, plain)
    )
    assert wide > narrow + 0.1
    assert by_season.effective > 100_000


def test_counts_between_thresholds_go_to_the_grid_and_back() -> None:
    row = a_baseline(np.random.default_rng(5).beta(2, 5, 3000)).signals[SIGNAL]
    thresholds = thresholds_of(row.counts)
    narrow = np.stack([coarse(row.counts, thresholds), coarse(2 * row.counts, thresholds)])

    wide = np.stack(list(on_grid(narrow, thresholds, len(row.counts))))

    np.testing.assert_array_equal(coarse(wide, thresholds), narrow)


def test_busy_ticks_count_for_less_and_quiet_ones_for_no_more_than_in_the_baseline() -> None:
    rng = np.random.default_rng(6)
    level = np.repeat(rng.normal(size=60), 10)
    ticks = [
        a_tick({SIGNAL: rng.beta(2 + abs(high), 5, 40)}, number=number)
        for number, high in enumerate(level)
    ]
    null = null_of(make_baseline(ticks, made_at=START, provenance="ticks").signals[SIGNAL])
    spread = dependences([null] * 3)

    tau = spread.at(np.asarray([0, 40, 40_000]))

    assert tau[0] == tau[1] == pytest.approx(null.tau)
    assert tau[2] == pytest.approx(1000 * null.tau, rel=0.1)


def test_a_design_effect_that_was_not_measured_is_no_reason_to_trust_busy_ticks_less() -> None:
    row = a_baseline(np.random.default_rng(7).beta(2, 5, 3000), ticks=10).signals[SIGNAL]
    null = null_of(row)

    assert not null.known
    assert dependences([null]).at(np.asarray([10**6]))[0] == null.tau


def test_what_a_verdict_needs_grows_with_the_design_effect_and_the_promise() -> None:
    row = a_baseline(np.random.default_rng(8).beta(2, 5, 3000)).signals[SIGNAL]
    null = null_of(row)

    assert null.needed("page", 1e6) < null.needed("page", 1e9) < 100
    assert replace(null, tau=2 * null.tau).needed("page", 1e6) == pytest.approx(
        2 * null.needed("page", 1e6)
    )
