"""What is told of a stream whose evidence is of interest: in words, and as numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import rel_entr

from detectors.proportions import clopper_pearson
from detectors.records import FloatArray, IntArray
from detectors.sequential.band import Band
from detectors.sequential.bets import Bets
from detectors.sequential.distance import Distance, QuantileShift, distance, quantile_shifts
from detectors.sequential.history import Onset
from detectors.sequential.visible import Pace, Visible, smallest_visible
from detectors.sequential.words import (
    bare_share,
    evidence_words,
    number_words,
    share_words,
    time_words,
)

LIVE_ALPHA = 0.05  # of the interval of a live share
WAIT_REQUESTS = 1000.0  # within which the smallest visible change is told


@dataclass(frozen=True)
class Subject:
    """Whose evidence it is.

    `edges` are of the signal's grid; `bets` those of the tier and stratum it was judged by; `tau`
    the design effect; `level` is A in seconds; `tick_seconds` the usual length of a tick.
    """

    signal: str
    edges: FloatArray
    bets: Bets
    tau: float
    level: float
    tick_seconds: float


@dataclass(frozen=True, slots=True)
class Deviation:
    """The share that is farthest outside its gate: P(X > edge) if `above`, else P(X <= edge).

    Each of `baseline` and `live` is a share with the lower and upper bound of its interval; `gate`
    is the largest share that is still inside.
    """

    signal: str
    edge: float
    above: bool
    baseline: tuple[float, float, float]
    gate: float
    live: tuple[float, float, float]

    @property
    def words(self) -> str:
        sign = ">" if self.above else "≤"
        return (
            f"P({self.signal} {sign} {number_words(self.edge)}): "
            f"baseline {_interval(self.baseline)}, gate {share_words(self.gate)}, "
            f"live {_interval(self.live)}"
        )


@dataclass(frozen=True)
class Report:
    """Everything about one stream in one tier at one moment.

    `evidence` is an alarm from 1. `onset` is the number of the tick where the change seems to
    begin (`older`: or before), `requests` came since. `target` names what it looks like most.
    """

    evidence: float
    evidence_words: str
    target: str
    onset: int
    older: bool
    seconds: float
    requests: int
    deviation: Deviation
    distance: Distance
    quantiles: tuple[QuantileShift, ...]
    visible: tuple[Visible, ...]

    @property
    def words(self) -> str:
        """The report as a line."""
        since = f"{self.requests:,} requests in {time_words(self.seconds)}"
        since = f"over {since}" if self.older else since
        gap = self.distance
        return (
            f"{self.deviation.words}; KS distance {gap.value:.2g} "
            f"[{gap.lower:.2g}, {gap.upper:.2g}]; {since}; {self.evidence_words}"
        )


def report(subject: Subject, *, evidence: float, target: int, since: Onset, now: int) -> Report:
    """Tell of a stream.

    Args:
        subject: Whose evidence it is.
        evidence: That of the tick, or the peak of the alarm that it stands in, >= 0.
        target: Place of the target that the evidence rests on (`evidence.leading`).
        since: Start of the change and the counts since then (`history.onset`); only the first
            B + 1 counts are of this stream.
        now: Number of the newest tick.

    Raises:
        ValueError: If nothing was counted since the start, so there is nothing to tell.
    """
    band = subject.bets.band
    live = since.counts[: len(band.counts)]
    if live.sum() == 0:
        msg = f"report on {subject.signal}: no request since tick {since.number}; wait for some"
        raise ValueError(msg)
    seconds = (now - since.number + 1) * subject.tick_seconds
    pace = Pace(subject.level, float(live.sum()) / seconds, subject.tau)
    known = target < len(subject.bets.targets)
    return Report(
        evidence=evidence,
        evidence_words=odds_words(evidence, subject.level),
        target=subject.bets.targets[target].words(subject.signal, band, subject.edges)
        if known
        else "",
        onset=since.number,
        older=since.whole,
        seconds=seconds,
        requests=int(live.sum()),
        deviation=deviation(subject.signal, subject.edges, band, live, subject.tau),
        distance=distance(band, live, subject.tau),
        quantiles=quantile_shifts(subject.edges[band.thresholds], band.counts, live),
        visible=smallest_visible(
            subject.signal, subject.edges, subject.bets, pace, within=WAIT_REQUESTS
        ),
    )


def odds_words(evidence: float, level: float) -> str:
    """Say what evidence means.

    >>> odds_words(1.3, 86400 * 90.0)
    'evidence 1.3: inside its gate a stream comes so far at most once in 90 days'
    >>> odds_words(0.02, 86400 * 90.0)
    'evidence 0.02 of 1: inside its gate a stream comes so far at most once in 1.8 days'
    """
    head = f"evidence {evidence_words(evidence)}"
    head = head if evidence >= 1 else f"{head} of 1"
    often = time_words(level * min(evidence, 1.0))
    return f"{head}: inside its gate a stream comes so far at most once in {often}"


def deviation(signal: str, edges: FloatArray, band: Band, live: IntArray, tau: float) -> Deviation:
    """Return the share that is most surely outside its gate; inside, the one that moved most.

    Args:
        signal: Its name.
        edges: Of its grid.
        band: The null.
        live: Counts between the thresholds, shape ``(B + 1,)``, some > 0.
        tau: Design effect: n requests tell as much as n / tau.
    """
    requests = float(live.sum())
    below = np.cumsum(live)[:-1].astype(np.float64)
    shares = below / requests
    outside = _divergence(shares, np.clip(shares, band.low, band.high))
    inside = _divergence(shares, np.clip(band.shares, 1e-12, 1 - 1e-12))
    place = int((outside if outside.max() > 0 else inside).argmax())
    lower, upper = clopper_pearson(below / tau, requests / tau, LIVE_ALPHA)
    rows = (band.shares, band.lower, band.upper), (shares, lower, upper)
    before, now = (
        (float(row[0][place]), float(row[1][place]), float(row[2][place])) for row in rows
    )
    above = now[0] < before[0]
    return Deviation(
        signal=signal,
        edge=float(edges[band.thresholds[place]]),
        above=above,
        baseline=_turned(before) if above else before,
        gate=1 - float(band.low[place]) if above else float(band.high[place]),
        live=_turned(now) if above else now,
    )


def _divergence(shares: FloatArray, against: FloatArray) -> FloatArray:
    """Return KL in nats of Bernoulli shares, entry by entry."""
    total: FloatArray = rel_entr(shares, against) + rel_entr(1 - shares, 1 - against)
    return total


def _turned(share: tuple[float, float, float]) -> tuple[float, float, float]:
    """Return the share of the other side."""
    return 1 - share[0], 1 - share[2], 1 - share[1]


def _interval(share: tuple[float, float, float]) -> str:
    return f"{share_words(share[0])} [{bare_share(share[1])}, {bare_share(share[2])}]"
