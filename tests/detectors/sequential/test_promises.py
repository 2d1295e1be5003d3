"""Monte Carlo: false alarms within their bound, delays as tabulated, and controls that must fail.

Seeds are fixed; tolerances are stated where they are used. ARL is the mean exposure between
alarms in requests; its guarantee is alarms <= exposure / A.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pytest
from scipy.signal import lfilter
from scipy.stats import norm

from detectors.records import FloatArray, IntArray
from detectors.sequential.band import Band, Gate, make_band
from detectors.sequential.bets import Bets, make_bets
from detectors.sequential.design_effect import design_effect
from tests.detectors.sequential.drawn import (
    EDGES,
    LONGER,
    PAGE_GATE,
    a_band,
    a_run,
    bets_of,
    by_tick,
    counted,
    known_band,
    masses_at,
    quiet,
    told,
)

Drawing: TypeAlias = Callable[[np.random.Generator, tuple[int, int]], FloatArray]
Arrivals: TypeAlias = Callable[[np.random.Generator, int, int], IntArray]
A = 10_000.0  # requests


# --- false alarms against T / A, reference exactly known (family 3)


def constant(rng: np.random.Generator, tick: int, streams: int) -> IntArray:
    return np.full(streams, 20)


def swinging(rng: np.random.Generator, tick: int, streams: int) -> IntArray:
    return rng.poisson(0.2 * 1000 ** (0.5 + 0.5 * np.sin(tick / 40)), streams)


def bursty(rng: np.random.Generator, tick: int, streams: int) -> IntArray:
    return np.where(rng.random(streams) < 0.01, rng.integers(1, 2000, streams), 5)


@pytest.mark.slow
@pytest.mark.parametrize("arrivals", [constant, swinging, bursty])
def test_false_alarms_are_between_a_fifth_and_all_of_their_bound(arrivals: Arrivals) -> None:
    rng = np.random.default_rng(11)
    bets = bets_of(known_band())
    masses = np.diff(bets.band.low, prepend=0.0, append=1.0)
    streams, ticks, level = 80, 10_000, 500.0
    run = a_run([bets], np.zeros(streams, dtype=np.int64), level=level)

    for tick in range(ticks):
        run.feed(rng.multinomial(arrivals(rng, tick, streams), masses))

    ratio = run.alarms.sum() / (streams * ticks / level)
    told(f"alarms / (T/A), {arrivals.__name__}: {ratio:.2f}")
    assert 0.2 <= ratio <= 1.0  # 1,600 allowed: three sigma are 0.05


# --- estimated baselines, inside and at the edge of the gate (family 4)


def alarms_of_baselines(m: int, *, at_edge: bool, gate: Gate, ticks: int, size: int) -> IntArray:
    """Return the alarms of 20 baselines of m requests, 10 streams each."""
    rng = np.random.default_rng(m)
    bets = [bets_of(a_band(rng, m, gate)) for _ in range(20)]
    bins = max(len(some.band.counts) for some in bets)
    which = np.arange(20).repeat(10)
    masses = np.stack([_null_masses(bets[place].band, bins, at_edge) for place in which])
    run = a_run(bets, which, level=A)
    for _ in range(ticks):
        run.feed(rng.multinomial(np.full(200, size), masses), seconds=size)
    found: IntArray = run.alarms.reshape(20, 10).sum(axis=1)
    return found


def _null_masses(band: Band, bins: int, at_edge: bool) -> FloatArray:
    """Return the truth, or the distribution that is as far from it as the gate allows."""
    shares = norm.cdf(EDGES[band.thresholds])
    if at_edge:
        odds = band.gate.odds
        shares = np.minimum(odds * shares / (1 - shares + odds * shares), shares + 0.05)
    return masses_at(band, shares, bins)


@pytest.mark.slow
@pytest.mark.parametrize("at_edge", [False, True], ids=["same", "gate edge"])
@pytest.mark.parametrize("m", [1000, 10_000, 100_000])
def test_no_estimated_baseline_has_more_alarms_than_allowed(m: int, at_edge: bool) -> None:
    ticks, size = 400, 50

    alarms = alarms_of_baselines(m, at_edge=at_edge, gate=PAGE_GATE, ticks=ticks, size=size)

    allowed = 10 * ticks * size / A  # 20 a baseline
    told(f"m={m:,} {'gate edge' if at_edge else 'same'}: worst {alarms.max()} of {allowed:.0f}")
    assert alarms.max() <= allowed


# --- dependence (family 5)


def autoregressive(rho: float) -> Drawing:
    def draw(rng: np.random.Generator, shape: tuple[int, int]) -> FloatArray:
        noise = rng.normal(size=(shape[0], shape[1] + 2000)) * np.sqrt(1 - rho**2)
        return lfilter([1.0], [1.0, -rho], noise, axis=1)[:, 2000:]

    return draw


def sessions(rng: np.random.Generator, shape: tuple[int, int]) -> FloatArray:
    """Return users of 20 requests in a row on average, half of the variance theirs."""
    rows = []
    for _ in range(shape[0]):
        lengths = rng.geometric(1 / 20, size=shape[1] // 10)
        users = np.repeat(rng.normal(size=len(lengths)), lengths)[: shape[1]]
        rows.append(np.sqrt(0.5) * users + np.sqrt(0.5) * rng.normal(size=shape[1]))
    return np.stack(rows)


@dataclass
class Watched:
    alarms: int
    exposure: float
    tau: float

    @property
    def ratio(self) -> float:
        """ARL over A, as if half an alarm more had come (none is not infinitely good)."""
        return self.exposure / (self.alarms + 0.5) / A


def watched(draw: Drawing, *, tau: float | None, seed: int = 5) -> Watched:
    """Return alarms of 50 streams of 20,000 requests; tau None is estimated from the baseline."""
    rng = np.random.default_rng(seed)
    reference = draw(rng, (1, 100_000))
    plain = make_band(counted(reference[0]), gate=PAGE_GATE, tau=1.0)
    found = design_effect(by_tick(reference, plain, 10)[:, 0]).tau if tau is None else tau
    band = make_band(counted(reference[0]), gate=PAGE_GATE, tau=found)
    run = a_run([bets_of(band)], np.zeros(50, dtype=np.int64), level=A, tau=found)
    for counts in by_tick(draw(rng, (50, 20_000)), band, 10):
        run.feed(counts, seconds=10.0)
    return Watched(int(run.alarms.sum()), 50 * 20_000, found)


@pytest.mark.slow
@pytest.mark.parametrize(
    "draw",
    [autoregressive(0.5), autoregressive(0.9), autoregressive(0.98), sessions],
    ids=["AR .5", "AR .9", "AR .98", "sessions"],
)
def test_dependent_traffic_keeps_the_bound_with_its_design_effect(draw: Drawing) -> None:
    found = watched(draw, tau=None)

    told(f"tau {found.tau:.1f}: {found.alarms} alarms, ARL / A over {found.ratio:.1f}")
    assert found.alarms <= found.exposure / A


@pytest.mark.slow
@pytest.mark.parametrize("rho", [0.9, 0.98])
def test_control_without_the_design_effect_the_bound_is_broken_tenfold(rho: float) -> None:
    found = watched(autoregressive(rho), tau=1.0)

    told(f"AR {rho}, tau 1: {found.alarms} alarms, ARL / A = {found.ratio:.3f}")
    assert found.ratio < 1 / 10


# --- a daily cycle (family 5)

PHASES, PHASE = 24, 1000


def daily(rng: np.random.Generator, days: int, streams: int) -> FloatArray:
    """Return normal values whose mean goes up and down by 0.6 standard deviations."""
    moment = np.arange(days * PHASES * PHASE)
    return rng.normal(size=(streams, len(moment))) + 0.6 * np.sin(
        2 * np.pi * moment / (PHASES * PHASE)
    )


def phases_of(reference: FloatArray) -> list[IntArray]:
    by_phase = reference.reshape(-1, PHASES, PHASE).transpose(1, 0, 2).reshape(PHASES, -1)
    return [counted(values) for values in by_phase]


def daily_alarms(bets: Sequence[Bets], which: Callable[[int], int], live: FloatArray) -> int:
    """Return the alarms when tick t is judged by the bets ``which(t)``."""
    streams = len(live)
    runs = [a_run(bets, np.full(streams, place), level=A) for place in range(len(bets))]
    run = runs[0]
    for tick, counts in enumerate(by_tick(live, bets[0].band, 10)):
        run.placed = runs[which(tick)].placed
        run.feed(counts, seconds=10.0)
    return int(run.alarms.sum())


@pytest.mark.slow
def test_a_daily_cycle_is_normal_with_an_envelope_or_strata_and_not_without() -> None:
    rng = np.random.default_rng(6)
    reference, live = daily(rng, 3, 1)[0], daily(rng, 2, 10)
    whole, phases = counted(reference), phases_of(reference)
    plain = make_band(whole, gate=PAGE_GATE, tau=1.0)
    wide = make_band(whole, gate=PAGE_GATE, tau=1.0, strata=phases)
    strata = [
        make_band(phase, gate=PAGE_GATE, tau=1.0, thresholds=plain.thresholds) for phase in phases
    ]
    allowed = 10 * live.shape[1] / A

    envelope = daily_alarms([bets_of(wide)], lambda _: 0, live)
    each = daily_alarms(
        make_bets([plain, *strata])[1:], lambda tick: tick * 10 // PHASE % PHASES, live
    )
    without = daily_alarms([bets_of(plain)], lambda _: 0, live)

    told(f"alarms of {allowed:.0f}: envelope {envelope}, strata {each}, neither {without}")
    assert envelope <= allowed
    assert each <= allowed
    assert without >= 10 * allowed


# --- delays (family 6)


def shifted(by: float) -> Drawing:
    return lambda rng, shape: rng.normal(by, 1, size=shape)


def scaled(by: float) -> Drawing:
    return lambda rng, shape: rng.normal(0, by, size=shape)


def longer(share: float) -> Drawing:
    return lambda rng, shape: rng.normal(size=shape) + LONGER * (rng.random(shape) < share)


def delays(draw: Drawing, *, gate: Gate, level: float, most: int = 3000) -> FloatArray:
    """Return requests to the alarm of 200 streams on 20 baselines of 1e5, in tens."""
    rng = np.random.default_rng(7)
    found: list[FloatArray] = []
    for _ in range(20):
        band = a_band(rng, 100_000, gate)
        run = a_run([bets_of(band)], np.zeros(10, dtype=np.int64), level=level)
        for counts in by_tick(rng.normal(size=(10, 2000)), band, 10):
            run.feed(counts, seconds=10.0)
        quiet(run)
        start = run.number
        for counts in by_tick(draw(rng, (10, most)), band, 10):
            run.feed(counts, seconds=10.0)
            if (run.evidence.raised >= 0).all():
                break
        took = (run.evidence.raised - start + 1) * 10.0
        found.append(np.where(run.evidence.raised < 0, np.inf, took))
    return np.concatenate(found)


NARROW = Gate(0.02, 1.5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "draw", "gate", "level", "median", "p95"),
    [
        ("+0.5 sd", shifted(0.5), PAGE_GATE, 1e6, 260, 440),
        ("+1 sd", shifted(1.0), PAGE_GATE, 1e9, 80, 110),
        ("x1.5", scaled(1.5), PAGE_GATE, 1e6, 190, 410),
        ("x0.67", scaled(0.67), PAGE_GATE, 1e9, 750, 1270),
        ("5% x30", longer(0.05), PAGE_GATE, 1e6, 220, 480),
        ("5% x30", longer(0.05), NARROW, 1e6, 190, 430),
        ("+0.5 sd", shifted(0.5), NARROW, 1e9, 250, 380),
    ],
)
def test_delays_are_those_of_the_table(
    name: str, draw: Drawing, gate: Gate, level: float, median: float, p95: float
) -> None:
    found = delays(draw, gate=gate, level=level)

    got, late = np.median(found), np.quantile(found, 0.95)
    told(f"{name} A={level:.0e} gate {gate.distance}: {got:.0f}/{late:.0f}, table {median}/{p95}")
    assert abs(got - median) <= max(0.25 * median, 15)
    assert late <= 1.35 * p95


@pytest.mark.slow
def test_the_incident_is_found_in_four_hundred_requests() -> None:
    found = delays(longer(0.05), gate=PAGE_GATE, level=1e9)

    told(f"5% x30, m=1e5, A=1e9: {np.median(found):.0f}/{np.quantile(found, 0.95):.0f}")
    assert np.median(found) <= 400
    assert np.quantile(found, 0.95) <= 800


# --- ties (family 8)


@pytest.mark.slow
@pytest.mark.parametrize(
    "draw",
    [
        lambda rng, shape: rng.poisson(1.0, shape),
        lambda rng, shape: rng.random(shape) < 0.03,
        lambda rng, shape: np.full(shape, 4.0),
    ],
    ids=["Poisson(1)", "flag", "constant"],
)
def test_ties_raise_no_alarm(draw: Callable[..., np.ndarray]) -> None:
    rng = np.random.default_rng(8)
    reference = draw(rng, (20_000,)).astype(float)
    band = make_band(counted(reference), gate=Gate(0.0, 1.0), tau=1.0)
    run = a_run([bets_of(band)], np.zeros(20, dtype=np.int64), level=A)

    for counts in by_tick(draw(rng, (20, 20_000)).astype(float), band, 10):
        run.feed(counts, seconds=10.0)

    assert run.alarms.sum() <= 20 * 20_000 / A


@pytest.mark.parametrize("moved", [3.0, 5.0, 3.975])
def test_a_constant_that_moves_to_either_side_is_found_at_once(moved: float) -> None:
    band = make_band(counted(np.full(20_000, 4.0)), gate=PAGE_GATE, tau=1.0)
    run = a_run([bets_of(band)], np.zeros(1, dtype=np.int64), level=1e9)

    fired = [
        bool(run.feed(counts, seconds=10.0)[0])
        for counts in by_tick(np.full((1, 50), moved), band, 10)
    ]

    assert fired.index(True) <= 2


def test_a_value_between_two_values_is_found() -> None:
    rng = np.random.default_rng(9)
    band = make_band(counted(rng.integers(0, 2, 20_000).astype(float)), gate=PAGE_GATE, tau=1.0)
    run = a_run([bets_of(band)], np.zeros(1, dtype=np.int64), level=1e9)
    ones = rng.integers(0, 2, (1, 400))
    live = np.where(rng.random((1, 400)) < 0.5, 0.5 * ones, ones)  # as many zeros as before

    fired = [bool(run.feed(counts, seconds=10.0)[0]) for counts in by_tick(live, band, 10)]

    assert any(fired)
