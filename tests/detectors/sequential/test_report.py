"""What is told: sentences with the right numbers, and how little would have been seen."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import beta

from detectors.records import FloatArray
from detectors.sequential.band import coarse, make_band
from detectors.sequential.evidence import leading
from detectors.sequential.history import History, Onset, onset, remembered
from detectors.sequential.report import Subject, deviation, report
from detectors.sequential.tiers import QUARTER, TIERS, Budget
from detectors.sequential.visible import (
    Pace,
    bernoulli_kl,
    share_that_earns,
    smallest_visible,
)
from detectors.signals import grid_of
from tests.detectors.sequential.drawn import LONGER, PAGE_GATE, a_run, bets_of

SIGNAL = "prompt_tokens"
GRID = grid_of(SIGNAL)


def lengths(rng: np.random.Generator, size: int, *, longer: float = 0.0) -> FloatArray:
    """Return prompt lengths, a share of them 30 times longer."""
    score = rng.normal(size=size) + LONGER * (rng.random(size) < longer)
    return np.rint(np.exp(6.0 + score))


def a_subject(rng: np.random.Generator, *, tau: float = 1.0) -> Subject:
    band = make_band(GRID.count(lengths(rng, 100_000)), gate=PAGE_GATE, tau=tau)
    return Subject(SIGNAL, GRID.array, bets_of(band), tau, 1e9, 5.0)


def test_the_incident_is_told_in_words_and_numbers() -> None:
    rng = np.random.default_rng(1)
    subject = a_subject(rng)
    bets, band = subject.bets, subject.bets.band
    run = a_run([bets], np.zeros(1, dtype=np.int64), level=subject.level)
    seen, fired = History(), -1
    for number in range(60):
        values = lengths(rng, 100, longer=0.05 if number >= 40 else 0.0)
        counts = coarse(GRID.count(values), band.thresholds)[None]
        seen = remembered(seen, number, counts)
        if run.feed(counts, seconds=5.0)[0] and fired < 0:
            fired = number
            break
    target = leading(run.evidence, run.table, run.placed, 0)
    since = onset(seen, 0, bets.log_bets[:, target])
    assert since is not None

    told = report(
        subject, evidence=float(run.evidence.peak[0]), target=target, since=since, now=fired
    )

    assert 40 < fired <= 50  # p95 800 requests at A = 2e10 of them
    assert abs(told.onset - 40) <= 2
    assert told.requests == (fired - told.onset + 1) * 100
    assert told.seconds == 5.0 * (fired - told.onset + 1)
    assert told.target.startswith("P(prompt_tokens > ")
    assert told.deviation.above
    assert told.deviation.live[0] > told.deviation.gate > told.deviation.baseline[0]
    assert told.deviation.live[1] > told.deviation.gate  # surely outside
    assert told.distance.lower <= told.distance.value < 0.1
    assert [shift.level for shift in told.quantiles] == [0.5, 0.95, 0.99]
    assert told.quantiles[2].live > 2 * told.quantiles[2].baseline
    assert told.words.startswith(told.deviation.words)
    assert f"{told.requests:,} requests in " in told.words
    assert "inside its gate a stream comes so far at most once in 32 years" in told.words


def test_the_deviation_is_the_sentence_that_was_promised() -> None:
    thresholds = np.asarray([0, 1])
    band = make_band(
        np.asarray([50_000, 49_500, 500]), gate=PAGE_GATE, tau=1.0, thresholds=thresholds
    )
    live = np.asarray([900, 848, 96])

    found = deviation(SIGNAL, np.asarray([512.0, 8192.0]), band, live, 1.0)

    baseline = [float(beta.ppf(q, 500 + i, 99_501 - i)) for i, q in enumerate((0.0025, 0.9975))]
    interval = [float(beta.ppf(q, 96 + i, 1749 - i)) for i, q in enumerate((0.025, 0.975))]
    assert found.baseline == pytest.approx((0.005, *baseline))
    assert found.live == pytest.approx((96 / 1844, *interval))
    assert found.gate == pytest.approx(2 * baseline[1] / (1 + baseline[1]))
    assert found.words == (
        "P(prompt_tokens > 8,192): baseline 0.50 % [0.44, 0.57], gate 1.1 %, live 5.2 % [4.2, 6.3]"
    )


def test_dependence_widens_the_live_interval() -> None:
    subject = a_subject(np.random.default_rng(0))
    live = subject.bets.band.counts // 50

    plain = deviation(SIGNAL, GRID.array, subject.bets.band, live, 1.0)
    dependent = deviation(SIGNAL, GRID.array, subject.bets.band, live, 10.0)

    assert dependent.live[2] - dependent.live[1] > 2.5 * (plain.live[2] - plain.live[1])


def test_a_drop_is_told_from_below() -> None:
    subject = a_subject(np.random.default_rng(0))
    band = subject.bets.band
    live = np.zeros_like(band.counts)
    live[:3] = 100

    found = deviation(SIGNAL, GRID.array, band, live, 1.0)

    assert not found.above
    assert " ≤ " in found.words
    assert found.live[0] > found.gate


def test_a_report_on_nothing_is_refused() -> None:
    subject = a_subject(np.random.default_rng(0))
    nothing = Onset(3, np.zeros_like(subject.bets.band.counts), whole=False)

    with pytest.raises(ValueError, match="no request since tick 3"):
        report(subject, evidence=0.0, target=0, since=nothing, now=5)


def test_a_change_older_than_what_is_remembered_is_told_so() -> None:
    subject = a_subject(np.random.default_rng(0))
    since = Onset(3, subject.bets.band.counts, whole=True)

    told = report(subject, evidence=0.02, target=10_000, since=since, now=12)

    assert told.older
    assert "over 100,000 requests in 50 s" in told.words
    assert "evidence 0.02 of 1: " in told.words
    assert told.target == ""


def test_the_smallest_visible_change_is_told_with_its_requests() -> None:
    subject = a_subject(np.random.default_rng(0))
    pace = Pace(level=1e9, rate=1.0, tau=1.0)

    seen = smallest_visible(SIGNAL, GRID.array, subject.bets, pace, within=1000.0)

    up, down, tail = seen
    assert up.words == "prompt_tokens moved up by 0.5 standard deviations"
    assert 380 <= up.requests <= 450  # measured median 390: table 4.4
    assert down.words == "prompt_tokens moved down by 0.5 standard deviations"
    assert tail.words.startswith("P(prompt_tokens > 4,")
    assert " from 0.90 % to " in tail.words


def test_patience_shows_smaller_changes_and_dependence_hides_them() -> None:
    subject = a_subject(np.random.default_rng(0))

    def smallest(tau: float, within: float) -> str:
        pace = Pace(level=1e9, rate=1.0, tau=tau)
        return smallest_visible(SIGNAL, GRID.array, subject.bets, pace, within=within)[0].words

    assert "0.25" in smallest(1.0, 10_000.0)
    assert "0.5" in smallest(1.0, 1000.0)
    assert "1 standard" in smallest(10.0, 1000.0)


def test_nothing_is_visible_at_once() -> None:
    subject = a_subject(np.random.default_rng(0))
    pace = Pace(level=1e9, rate=1.0, tau=1.0)

    assert smallest_visible(SIGNAL, GRID.array, subject.bets, pace, within=1.0) == ()
    assert pace.requests(0.0) == math.inf


@pytest.mark.parametrize("gate", [1e-4, 0.01, 0.3])
def test_the_share_that_earns_so_much_is_the_smallest(gate: float) -> None:
    share = share_that_earns(gate, 0.05)

    assert share is not None
    assert bernoulli_kl(share, gate) == pytest.approx(0.05, abs=1e-9)
    assert share > gate
    assert share_that_earns(1.0, 0.05) is None


def test_budgets_of_a_fleet_add_up() -> None:
    assert Budget(1, QUARTER).level(2000) == 2000 * QUARTER
    assert Budget(2, QUARTER).level(2000) == 1000 * QUARTER
    assert Budget(1, QUARTER, of_fleet=False).level(2000) == QUARTER
    assert Budget(1, QUARTER).level(0) == QUARTER
    assert replace(TIERS[0].budget).words(5) == "at most 1 false alarm in 30 days for each stream"


@pytest.mark.parametrize("alarms", [0.0, -1.0, math.inf, math.nan])
def test_a_budget_of_nothing_is_refused(alarms: float) -> None:
    with pytest.raises(ValueError, match="expected both over 0"):
        Budget(alarms, QUARTER)
