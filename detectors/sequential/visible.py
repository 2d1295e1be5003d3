"""The smallest change that is seen, and after how many requests.

A bet that earns g nats a request when its target is true needs about tau ln(A) / g requests, A in
requests. Both the change and the number are printed beside every verdict: a gate that keeps a
detector quiet also keeps it blind, and the reader must be able to see how blind.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from detectors.records import FloatArray
from detectors.sequential.band import Band
from detectors.sequential.bets import Bets
from detectors.sequential.words import number_words, share_words

_TAIL = 0.99  # the level of the tail that is told


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast evidence must grow: A in seconds, requests a second, and the design effect."""

    level: float
    rate: float
    tau: float

    @property
    def nats(self) -> float:
        """Nats from nothing to an alarm, as if requests were independent."""
        return math.log(max(self.level * self.rate, math.e))

    def requests(self, growth: float) -> float:
        """Return about how many requests a change of so many nats a request takes."""
        return self.tau * self.nats / growth if growth > 0 else math.inf


@dataclass(frozen=True, slots=True)
class Visible:
    """A change in words, and about how many requests it takes to be raised."""

    words: str
    requests: float


def smallest_visible(
    signal: str, edges: FloatArray, bets: Bets, pace: Pace, *, within: float
) -> tuple[Visible, ...]:
    """Return the smallest changes that are raised within so many requests.

    Args:
        signal: Its name.
        edges: Of its grid.
        bets: Against its null.
        pace: How much evidence is needed.
        within: Requests that one is ready to wait, > 0.

    Returns:
        The smallest shift up and down among the targets, and the smallest share beyond the
        threshold nearest to the 99 % one; nothing where nothing is small enough.
    """
    found = [_shift(signal, edges, bets, pace, within=within, sign=sign) for sign in (1, -1)]
    tail = _tail(signal, edges, bets.band, pace.tau * pace.nats / within, within)
    return tuple(some for some in (*found, tail) if some is not None)


def _shift(
    signal: str, edges: FloatArray, bets: Bets, pace: Pace, *, within: float, sign: int
) -> Visible | None:
    fit = [
        (abs(target.size), pace.requests(float(growth)), target)
        for target, growth in zip(bets.targets, bets.growth, strict=True)
        if target.kind == "shift" and target.size * sign > 0
    ]
    seen = [some for some in fit if some[1] <= within]
    if not seen:
        return None
    _, requests, target = min(seen, key=lambda some: some[0])
    return Visible(target.words(signal, bets.band, edges), requests)


def _tail(signal: str, edges: FloatArray, band: Band, nats: float, within: float) -> Visible | None:
    """Return the share beyond a high threshold that earns so many nats a request."""
    place = int(np.abs(band.shares - _TAIL).argmin())
    gate = 1 - float(band.low[place])
    share = share_that_earns(gate, nats)
    if share is None:
        return None
    before = share_words(1 - float(band.shares[place]))
    edge = number_words(float(edges[band.thresholds[place]]))
    return Visible(f"P({signal} > {edge}) from {before} to {share_words(share)}", within)


def share_that_earns(gate: float, nats: float) -> float | None:
    """Return the share q over a gate edge with KL(q || gate) of so many nats; None if none has.

    >>> share_that_earns(0.5, 1.0) is None
    True
    >>> round(share_that_earns(0.01, 0.05), 3)
    0.055
    """
    if not 0 < gate < 1 or nats > -math.log(gate):
        return None
    under, over = gate, 1.0
    for _ in range(60):
        middle = (under + over) / 2
        if bernoulli_kl(middle, gate) < nats:
            under = middle
        else:
            over = middle
    return over


def bernoulli_kl(q: float, p: float) -> float:
    """Return KL in nats of shares q against p, 0 < p < 1."""
    first = q * math.log(q / p) if q > 0 else 0.0
    second = (1 - q) * math.log((1 - q) / (1 - p)) if q < 1 else 0.0
    return first + second
