"""Streams drawn from a given generator, on a fine grid, for the tests of the sequential core."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import norm

from detectors.records import BoolArray, FloatArray, IntArray
from detectors.sequential.band import Band, Gate, make_band
from detectors.sequential.bets import Bets, make_bets
from detectors.sequential.evidence import (
    Evidence,
    Placement,
    Table,
    Tick,
    advance,
    make_table,
    no_evidence,
    placement,
    released,
    tempered,
)

EDGES: FloatArray = np.round(np.linspace(-6, 9, 601), 6)
PAGE_GATE = Gate(0.05, 2.0)
NO_GATE = Gate(0.0, 1.0)
LONGER = float(np.log(30))  # 30 times more tokens, in standard deviations of their logarithm


def counted(values: FloatArray) -> IntArray:
    """Count values into the bins of the fine grid."""
    places = np.searchsorted(EDGES, values, side="left")
    return np.bincount(places, minlength=len(EDGES) + 1).astype(np.int64)


def a_band(rng: np.random.Generator, m: int, gate: Gate = PAGE_GATE, tau: float = 1.0) -> Band:
    """Return the null around m normal values."""
    return make_band(counted(rng.normal(size=m)), gate=gate, tau=tau)


def known_band(gate: Gate = NO_GATE) -> Band:
    """Return the null around the normal distribution itself, exactly known."""
    shape = a_band(np.random.default_rng(0), 100_000, gate=Gate(0.0, 1.0))
    shares = norm.cdf(EDGES[shape.thresholds])
    counts = np.rint(np.diff(shares, prepend=0, append=1) * 1e9).astype(np.int64)
    up = gate.odds * shares / (1 - shares + gate.odds * shares)
    down = shares / (shares + gate.odds * (1 - shares))
    return Band(
        thresholds=shape.thresholds,
        counts=counts,
        tau=1.0,
        gate=gate,
        lower=shares,
        upper=shares,
        low=np.maximum(down, shares - gate.distance),
        high=np.minimum(up, shares + gate.distance),
    )


def bets_of(band: Band) -> Bets:
    return make_bets([band])[0]


def masses_at(band: Band, shares: FloatArray, bins: int) -> FloatArray:
    """Return the masses between thresholds of cumulative `shares`, padded to `bins`."""
    masses = np.diff(shares, prepend=0.0, append=1.0)
    return np.pad(masses, (0, bins - len(masses)))


def by_tick(values: FloatArray, band: Band, size: int) -> IntArray:
    """Count ordered values (S, n) between thresholds, `size` a tick: (n // size, S, B + 1)."""
    streams, many = values.shape
    ticks, bins = many // size, len(band.thresholds) + 1
    places = np.searchsorted(EDGES[band.thresholds], values[:, : ticks * size], side="left")
    cells = np.arange(streams * ticks).repeat(size) * bins + places.ravel()
    table = np.bincount(cells, minlength=streams * ticks * bins)
    return table.reshape(streams, ticks, bins).transpose(1, 0, 2).astype(np.int64)


@dataclass
class Run:
    """Evidence of S streams, fed tick by tick; A in the unit of `seconds` of a tick."""

    table: Table
    placed: Placement
    evidence: Evidence
    tau: FloatArray
    alarms: IntArray
    number: int = 0

    def feed(self, counts: IntArray, seconds: float = 1.0) -> BoolArray:
        tick = Tick(self.number, seconds, tempered(counts, self.tau, self.table.log_bets.dtype))
        self.evidence, outcome = advance(self.evidence, tick, self.table, self.placed)
        self.number += 1
        self.alarms = self.evidence.alarms
        return outcome.fired


def a_run(
    bets: Sequence[Bets], which: IntArray, *, level: float, tau: float = 1.0, single: bool = False
) -> Run:
    dtype = np.float32 if single else np.float64
    table = make_table(bets, level=level, dtype=dtype)
    streams = len(which)
    start = no_evidence(streams, table.weights.shape[1], dtype)
    zeros = np.zeros(streams, dtype=np.int64)
    return Run(table, placement(which), start, np.full(streams, tau), zeros)


def quiet(run: Run) -> None:
    """Forget what was raised so far."""
    run.evidence = released(run.evidence, np.arange(run.evidence.streams))


def told(text: str) -> None:
    """Show a measured number to who runs the tests with -s."""
    sys.stdout.write(text + "\n")
