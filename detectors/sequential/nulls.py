"""One baseline as all tiers see it: bands, certified bets, and what can be seen with them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from detectors.records import FloatArray, IntArray
from detectors.sequential.band import Band, make_band, seasons, thresholds_of
from detectors.sequential.bets import Bets, make_bets
from detectors.sequential.design_effect import LEAST_TAU
from detectors.sequential.tiers import Tier
from detectors.sequential.traffic import Traffic, on_grid

LEAST_HELD = 20.0  # requests of a block that its correlation was seen with, to be extrapolated


@dataclass(frozen=True)
class Null:
    """The null of one baseline in every tier.

    `bets` by name of tier, all over the same thresholds; `tau` >= 1 the design effect;
    `dependence` the (ticks, correlation) from which that of a busier tick follows, (1, 0) where
    not known; `known` whether tau was measured.
    """

    bets: Mapping[str, Bets]
    tau: float
    dependence: tuple[int, float]
    known: bool

    @property
    def band(self) -> Band:
        """The band of some tier: thresholds and counts are those of all."""
        return next(iter(self.bets.values())).band

    @property
    def effective(self) -> float:
        """Independent requests that the baseline is worth."""
        return self.band.requests / self.tau

    def needed(self, tier: str, level: float) -> float:
        """Return after how many requests a complete change is raised; infinite if never.

        As for one request a second; `level` is A in seconds.
        """
        growth = self.bets[tier].growth
        if not len(growth):
            return math.inf
        return self.tau * math.log(max(level, math.e)) / float(growth.max())


def make_null(
    counts: IntArray, *, traffic: Traffic | None, design_effect: float, tiers: Sequence[Tier]
) -> Null:
    """Return the null of a baseline.

    Args:
        counts: On its grid, shape ``(bins,)``, some > 0.
        traffic: How they came, if that is known.
        design_effect: What is taken where it is not, at least `LEAST_TAU`.
        tiers: Whose gates to widen the baseline's bands by.

    Raises:
        ValueError: If nothing was counted, or the hours do not fit the thresholds.
    """
    known = traffic is not None and traffic.dependence.known
    tau = max(traffic.dependence.tau if known and traffic else design_effect, LEAST_TAU)
    thresholds = thresholds_of(counts)
    strata = _strata(traffic, tau, thresholds, len(counts))
    bands = {
        tier.name: make_band(counts, gate=tier.gate, tau=tau, thresholds=thresholds, strata=strata)
        for tier in tiers
    }
    bets = {name: make_bets([band])[0] for name, band in bands.items()}
    return Null(bets, tau, _dependence(traffic), known)


def _strata(
    traffic: Traffic | None, tau: float, thresholds: IntArray, bins: int
) -> Sequence[IntArray]:
    """Return the seasons of the envelope, each a baseline of its own; none where there is one."""
    if traffic is None or traffic.hours is None:
        return ()
    if traffic.hours.shape[1] != len(thresholds) + 1:
        msg = (
            f"baseline with hours of {traffic.hours.shape[1]} bins for {len(thresholds) + 1}; "
            "it is damaged or of another release, make it anew"
        )
        raise ValueError(msg)
    groups = seasons(traffic.hours, tau=tau)
    if len(groups) < 2:  # noqa: PLR2004  # one season is the whole
        return ()
    sums = np.stack([traffic.hours[list(group)].sum(axis=0) for group in groups])
    return on_grid(sums, thresholds, bins)


def _dependence(traffic: Traffic | None) -> tuple[int, float]:
    if traffic is None or not traffic.dependence.known:
        return 1, 0.0
    found = traffic.dependence
    seen = found.ticks * found.tick_requests >= LEAST_HELD
    return (found.ticks, found.correlation) if seen else (1, 0.0)


@dataclass(frozen=True)
class Dependences:
    """The design effects of S streams: the `least` (S,), block `ticks` (S,), `correlation` (S,)."""

    least: FloatArray
    ticks: FloatArray
    correlation: FloatArray

    def at(self, requests: IntArray) -> FloatArray:
        """Return those of a tick with so many requests (S,).

        Never less than that of the baseline; more where a tick holds so many more requests that
        they cannot be as independent (`DesignEffect.at`).
        """
        return np.maximum(1 + (self.ticks * requests - 1) * self.correlation, self.least)


def dependences(nulls: Sequence[Null]) -> Dependences:
    """Return the design effects of streams that are judged by these nulls."""
    return Dependences(
        np.asarray([null.tau for null in nulls]),
        np.asarray([null.dependence[0] for null in nulls], dtype=np.float64),
        np.asarray([null.dependence[1] for null in nulls]),
    )
