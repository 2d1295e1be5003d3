"""Bets are certified, grow as fast as any, and have names."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detectors.sequential.band import Gate, make_band
from detectors.sequential.bets import certificate, log_bet, make_bets
from detectors.sequential.targets import Target, family, masses, smoothed
from detectors.sequential.tiers import TIERS, Tier
from tests.detectors.sequential.drawn import (
    NO_GATE,
    PAGE_GATE,
    a_band,
    bets_of,
    counted,
    known_band,
)


@pytest.mark.parametrize("tier", TIERS, ids=lambda tier: tier.name)
@pytest.mark.parametrize("m", [1000, 10_000, 100_000])
def test_the_greatest_mean_under_the_null_is_one(m: int, tier: Tier) -> None:
    rng = np.random.default_rng(m)
    bets = bets_of(a_band(rng, m, tier.gate))

    worst = certificate(bets.log_bets, bets.band)

    assert len(bets.targets) > 20
    np.testing.assert_allclose(worst, 1.0, rtol=0, atol=1e-9)


@given(
    counts=st.lists(st.integers(0, 10_000), min_size=2, max_size=12).filter(lambda c: sum(c) > 0),
    tau=st.floats(1, 50),
    distance=st.floats(0, 0.3),
    odds=st.floats(1, 5),
)
@settings(max_examples=60, deadline=None)
def test_bets_of_any_baseline_are_certified(
    counts: list[int], tau: float, distance: float, odds: float
) -> None:
    bets = bets_of(make_band(np.asarray(counts), gate=Gate(distance, odds), tau=tau))

    np.testing.assert_allclose(certificate(bets.log_bets, bets.band), 1.0, rtol=0, atol=1e-9)


def test_no_distribution_of_the_null_earns_on_average() -> None:
    rng = np.random.default_rng(5)
    bets = bets_of(a_band(rng, 5000))
    band = bets.band

    for _ in range(300):  # distributions inside: mixtures of the two borders, edge by edge
        shares = np.maximum.accumulate(
            band.low + (band.high - band.low) * np.round(rng.random(len(band.low)), 0)
        )
        inside = np.diff(shares, prepend=0.0, append=1.0)
        assert (inside @ np.exp(bets.log_bets)).max() <= 1 + 1e-9


def test_a_changed_bet_is_refused_in_words() -> None:
    bets = bets_of(a_band(np.random.default_rng(0), 1000))
    better = bets.log_bets.copy()
    better[-1, 3] += 0.01

    with pytest.raises(ValueError, match=r"greatest mean of .* expected 1 within 1e-9"):
        replace(bets, log_bets=better)


def test_a_bet_that_is_not_a_number_is_refused() -> None:
    bets = bets_of(a_band(np.random.default_rng(0), 1000))
    broken = bets.log_bets.copy()
    broken[0, 0] = np.nan

    with pytest.raises(ValueError, match="greatest mean of"):
        replace(bets, log_bets=broken)


def test_without_gate_and_doubt_the_bet_is_the_likelihood_ratio() -> None:
    band = known_band()
    target = masses(Target("shift", 0.5), band)

    ratio = np.log(target / np.diff(band.low, prepend=0.0, append=1.0))

    np.testing.assert_allclose(log_bet(target, band), ratio, atol=1e-9)


def test_growth_is_the_mean_of_the_log_under_the_target() -> None:
    bets = bets_of(a_band(np.random.default_rng(0), 100_000))

    for place, target in enumerate(bets.targets):
        mean = masses(target, bets.band) @ bets.log_bets[:, place]
        assert bets.growth[place] == pytest.approx(mean, rel=1e-9)
    assert 0.045 < bets.growth[bets.targets.index(Target("shift", 0.5))] < 0.055  # section 3.4


def test_the_number_of_targets_is_bounded_and_weights_add_to_one() -> None:
    bets = bets_of(a_band(np.random.default_rng(0), 100_000))

    assert 44 <= len(bets.targets) <= 66
    assert bets.weights.sum() == pytest.approx(1)


def test_a_null_of_everything_has_no_bets() -> None:
    bets = bets_of(make_band(np.asarray([3, 4]), gate=PAGE_GATE, tau=30.0))

    assert bets.targets == ()
    assert bets.log_bets.shape == (2, 0)


def test_strata_share_one_list_of_targets() -> None:
    rng = np.random.default_rng(2)
    hours = [counted(rng.normal(mean, 1, size)) for mean, size in ((0, 50_000), (1, 3000))]
    whole = make_band(hours[0] + hours[1], gate=PAGE_GATE, tau=1.0)
    bands = [
        make_band(hour, gate=PAGE_GATE, tau=1.0, thresholds=whole.thresholds) for hour in hours
    ]

    together = make_bets([whole, *bands])

    alone = {target for band in bands for target in bets_of(band).targets}
    assert len({bets.targets for bets in together}) == 1
    assert set(together[0].targets) >= alone & set(family(whole))


def test_strata_with_other_thresholds_are_refused() -> None:
    rng = np.random.default_rng(2)

    with pytest.raises(ValueError, match="strata with different thresholds"):
        make_bets([a_band(rng, 1000), a_band(rng, 50_000)])


def test_targets_are_distributions_over_all_bins() -> None:
    band = a_band(np.random.default_rng(1), 2000)

    for target in family(band):
        spread = masses(target, band)
        assert spread.shape == band.counts.shape
        assert spread.sum() == pytest.approx(1)
        assert (spread > 0).all()
    assert smoothed(band).sum() == pytest.approx(1)


def test_targets_have_names_in_words() -> None:
    band = make_band(np.asarray([0, 500, 300, 195, 5]), gate=NO_GATE, tau=1.0)
    edges = np.asarray([1.0, 100.0, 1000.0, 8192.0])
    upper = len(band.thresholds) - 1

    assert Target("shift", -0.5).words("prompt_tokens", band, edges) == (
        "prompt_tokens moved down by 0.5 standard deviations"
    )
    assert Target("spread", 2.5).words("prompt_tokens", band, edges) == (
        "prompt_tokens 1.6 times wider"
    )
    tail = Target("above", 3.0, upper).words("prompt_tokens", band, edges)
    assert tail.startswith("P(prompt_tokens > 8,192) = ")


def test_a_new_value_between_two_has_a_name_too() -> None:
    band = make_band(np.asarray([500, 0, 0, 500, 0]), gate=PAGE_GATE, tau=1.0)
    edges = np.asarray([0.0, 0.3, 0.6, 1.0])

    waiting = [target for target in bets_of(band).targets if target.kind == "between"]

    assert waiting[0].words("ratio", band, edges).startswith("P(0 < ratio ≤ 0.6) = ")
