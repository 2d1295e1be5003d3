"""How the requests of a baseline came: what they are worth together, and at what hours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from detectors.records import IntArray
from detectors.sequential.band import coarse, seasons, thresholds_of
from detectors.sequential.design_effect import LEAST_TAU, DesignEffect, design_effect

HOURS = 24
LEAST_DAYS = 3  # on which each hour must have been seen, to tell a season from a mood


@dataclass(frozen=True)
class Traffic:
    """The design effect of a baseline's traffic, and its counts by hour.

    `hours` (24, B + 1) are counts between the thresholds of the whole (`band.thresholds_of`), by
    the hour of the day in UTC; None where they are no seasons, and the design effect is that around
    the whole.
    """

    dependence: DesignEffect
    hours: IntArray | None


def traffic_of(series: IntArray, hours: IntArray) -> Traffic:
    """Return how requests came.

    Where the hours of a day hold enough on `LEAST_DAYS` days, each group of hours is a season of
    its own: shares vary around those of their season, and the null is widened by what the seasons
    are. Else a daily wave is part of the design effect, which keeps the promise and costs power.

    Args:
        series: Counts on the grid of ticks in order of time, shape ``(ticks, bins)``, some > 0.
        hours: Hour since the epoch (UTC) of each tick, shape ``(ticks,)``.
    """
    narrow = coarse(series, thresholds_of(series.sum(axis=0)))
    by_hour = np.zeros((HOURS, narrow.shape[1]), dtype=np.int64)
    np.add.at(by_hour, hours % HOURS, narrow)
    if _days(hours, narrow.sum(axis=1)) >= LEAST_DAYS:
        seasonal = _seasonal(narrow, hours % HOURS, by_hour)
        if seasonal is not None:
            return Traffic(seasonal, by_hour)
    return Traffic(design_effect(narrow), None)


def _days(hours: IntArray, requests: IntArray) -> int:
    """Return on how many days the hour of the day that was seen least often was seen."""
    seen = np.unique(hours[requests > 0])
    return int(np.bincount(seen % HOURS, minlength=HOURS).min())


def _seasonal(narrow: IntArray, hours: IntArray, by_hour: IntArray) -> DesignEffect | None:
    """Return the design effect around seasons that hold enough by it; None if there is but one.

    Fewer seasons leave more to the design effect, by which each then needs more requests: the
    groups are joined until the two agree.
    """
    tau = LEAST_TAU
    for _ in range(HOURS):
        groups = seasons(by_hour, tau=tau)
        if len(groups) < 2:  # noqa: PLR2004  # one season is the whole
            return None
        numbers = np.zeros(HOURS, dtype=np.int64)
        for number, group in enumerate(groups):
            numbers[list(group)] = number
        found = design_effect(narrow, numbers[hours])
        if seasons(by_hour, tau=found.tau) == groups:
            return found
        tau = max(found.tau, tau)
    return None


def merged_traffic(left: Traffic | None, right: Traffic | None) -> Traffic | None:
    """Return the traffic of two baselines together: the larger design effect, hours not known."""
    if left is None or right is None:
        return None
    larger = max(left.dependence, right.dependence, key=lambda some: some.tau)
    return Traffic(larger, None)


def on_grid(coarse_counts: IntArray, thresholds: IntArray, bins: int) -> Sequence[IntArray]:
    """Return rows (R, B + 1) as counts on the grid (R, bins) that `coarse` brings back to them."""
    found = np.zeros((len(coarse_counts), bins), dtype=np.int64)
    found[:, np.concatenate([[0], thresholds + 1])] = coarse_counts
    return list(found)


class SavedTraffic(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Traffic as kept in a baseline's bytes."""

    tau: float
    ticks: int
    blocks: int
    tick_requests: float
    hours: bytes  # int64, little endian, `HOURS` rows; empty where not known


def saved_traffic(traffic: Traffic) -> SavedTraffic:
    """Return the traffic as it is kept."""
    found = traffic.dependence
    hours = b"" if traffic.hours is None else traffic.hours.astype("<i8").tobytes()
    return SavedTraffic(found.tau, found.ticks, found.blocks, found.tick_requests, hours)


def read_traffic(saved: SavedTraffic) -> Traffic:
    """Return what `saved_traffic` was given.

    Raises:
        ValueError: If the hours are cut off.
    """
    found = DesignEffect(saved.tau, saved.ticks, saved.blocks, saved.tick_requests)
    if not saved.hours:
        return Traffic(found, None)
    hours = np.frombuffer(saved.hours, dtype="<i8").astype(np.int64).reshape(HOURS, -1)
    return Traffic(found, hours)
