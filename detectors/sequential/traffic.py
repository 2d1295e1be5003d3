"""How the requests of a baseline came: what they are worth together, and at what hours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from detectors.records import IntArray
from detectors.sequential.band import coarse, thresholds_of
from detectors.sequential.design_effect import DesignEffect, design_effect

HOURS = 24


@dataclass(frozen=True)
class Traffic:
    """The design effect of a baseline's traffic, and its counts by hour.

    `hours` (24, B + 1) are counts between the thresholds of the whole (`band.thresholds_of`), by
    the hour of the day in UTC; None where that is not known any more.
    """

    dependence: DesignEffect
    hours: IntArray | None


def traffic_of(series: IntArray, hours: IntArray) -> Traffic:
    """Return how requests came.

    Args:
        series: Counts on the grid of ticks in order of time, shape ``(ticks, bins)``, some > 0.
        hours: Hour of the day of each tick, shape ``(ticks,)``, 0 to 23.
    """
    narrow = coarse(series, thresholds_of(series.sum(axis=0)))
    by_hour = np.zeros((HOURS, narrow.shape[1]), dtype=np.int64)
    np.add.at(by_hour, hours, narrow)
    return Traffic(design_effect(narrow), by_hour)


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
