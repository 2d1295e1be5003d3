"""How bets add up over time: the Shiryaev-Roberts mixture of all streams of a layout.

For target j a tick multiplies R_j by its bets: R_j <- L_j (R_j + w), with w the seconds of the
tick and ln L_j = (counts / tau) . ln e_j. Evidence is the weighted sum of R_j over A; at 1 it is an
alarm, and R starts again from 0. Under the null R + A (alarms) - (seconds) can only fall in
expectation, so the expected alarms in a time T are at most T / A, whenever and however often one
looks. This holds for independent requests given the past; for dependent ones tau pays (large-
sample, not exact).

References:
    Shin, Ramdas and Rinaldo (2023), e-detectors; docs/statistics.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from detectors.records import BoolArray, FloatArray, IntArray
from detectors.sequential.bets import Bets

RealArray: TypeAlias = NDArray[np.floating[Any]]
Rows: TypeAlias = slice | IntArray
# A product of so many rows, 21 bins and 60 targets is under the size at which BLAS starts threads,
# whose handover takes longer than the product; and its result stays in the cache of one core.
ROWS_AT_ONCE = 192
# ln L of a tick is held between these, and A over the least weight under the third: then nothing
# overflows. Holding it from below adds at most e^-80 to a mean of 1.
_LIMITS = {np.dtype(np.float32): (-80.0, 50.0, 1e16), np.dtype(np.float64): (-700.0, 600.0, 1e40)}


@dataclass(frozen=True)
class Table:
    """The bets of K nulls side by side, for one tier.

    `log_bets` (K, W, J) and `weights` (K, J) are padded with zeros to the widest; `level` is A, in
    seconds.
    """

    log_bets: RealArray
    weights: RealArray
    level: float


def make_table(bets: Sequence[Bets], *, level: float, dtype: type[np.floating[Any]]) -> Table:
    """Lay bets side by side.

    Args:
        bets: K >= 1 of them.
        level: A in seconds, > 0.
        dtype: `np.float32` (half the time and memory) or `np.float64`.

    Raises:
        ValueError: If the level is not over 0, or too large for the type.
    """
    _, _, most = _LIMITS[np.dtype(dtype)]
    targets = max(1, *(len(some.targets) for some in bets))
    if not 0 < level * targets <= most:
        msg = (
            f"evidence: level {level:g} s with {targets} targets, expected over 0 and at most "
            f"{most / targets:g} s in {np.dtype(dtype)}; use float64 or a larger budget"
        )
        raise ValueError(msg)
    bins = max(len(some.log_bets) for some in bets)
    log_bets = np.zeros((len(bets), bins, targets), dtype=dtype)
    weights = np.zeros((len(bets), targets), dtype=dtype)
    for place, some in enumerate(bets):
        rows, columns = some.log_bets.shape
        log_bets[place, :rows, :columns] = some.log_bets
        weights[place, :columns] = some.weights
    return Table(log_bets, weights, level)


@dataclass(frozen=True)
class Placement:
    """Which null each stream is judged by: `which` (S,) places in a table, and rows by place."""

    which: IntArray
    parts: tuple[tuple[int, Rows], ...]


def placement(which: IntArray) -> Placement:
    """Return the streams grouped by null, at most `ROWS_AT_ONCE` in a part."""
    order = np.argsort(which, kind="stable")
    cuts = np.flatnonzero(np.diff(which[order])) + 1
    parts: list[tuple[int, Rows]] = []
    for rows in np.split(order, cuts):
        for start in range(0, len(rows), ROWS_AT_ONCE):
            some = rows[start : start + ROWS_AT_ONCE]
            parts.append((int(which[some[0]]), _sliced(some)))
    return Placement(which, tuple(parts))


def _sliced(rows: IntArray) -> Rows:
    """Return neighbouring rows as a slice, which copies nothing."""
    first, last = int(rows[0]), int(rows[-1])
    return slice(first, last + 1) if last - first + 1 == len(rows) else rows


@dataclass(frozen=True)
class Evidence:
    """The evidence of S streams in one tier.

    `growth` (S, J) is R. Of the alarm that a stream stands in: `raised` (S,) its tick number (-1:
    none), `peak` (S,) its evidence, `target` (S,) the target that won. `again` (S,) counts the
    alarms of the R that runs since then (the change is still there, or grows), `latest` (S,) is
    the tick number of the newest; `alarms` (S,) counts all.
    """

    growth: RealArray
    raised: IntArray
    peak: FloatArray
    target: IntArray
    again: IntArray
    latest: IntArray
    alarms: IntArray

    @property
    def streams(self) -> int:
        return len(self.growth)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a tick brought: `evidence` (S,), an alarm from 1, and `fired` (S,): an alarm now."""

    evidence: FloatArray
    fired: BoolArray


def no_evidence(streams: int, targets: int, dtype: type[np.floating[Any]]) -> Evidence:
    """Return the evidence of streams that have not been looked at."""
    zeros = np.zeros(streams, dtype=np.int64)
    growth = np.zeros((streams, targets), dtype=dtype)
    return Evidence(growth, zeros - 1, np.zeros(streams), zeros, zeros, zeros - 1, zeros)


@dataclass(frozen=True, slots=True)
class Tick:
    """A closed tick: its number, w in seconds, and counts (S, W) as independent requests."""

    number: int
    seconds: float
    counts: RealArray


def tempered(counts: IntArray, tau: FloatArray, dtype: np.dtype[Any]) -> RealArray:
    """Return counts (S, W) as so many independent requests: over tau (S,).

    Raises:
        ValueError: If a count is negative or not whole, or a tau is not a number from 1.
    """
    if counts.dtype.kind not in "iu" or counts.min(initial=0) < 0:
        found = f"counts of type {counts.dtype} with minimum {counts.min(initial=0)}"
        msg = f"evidence: {found}; expected whole numbers from 0"
        raise ValueError(msg)
    if not (np.isfinite(tau) & (tau >= 1)).all():
        msg = f"evidence: a design effect of {tau.min(initial=1)}, expected numbers from 1"
        raise ValueError(msg)
    spread = counts.astype(dtype)
    spread /= tau.astype(dtype)[:, None]
    return spread


def advance(
    evidence: Evidence, tick: Tick, table: Table, placed: Placement
) -> tuple[Evidence, Outcome]:
    """Take in a tick of all streams; alarms start R anew.

    Args:
        evidence: Before the tick.
        tick: With counts of `tempered` and a length that was known before they were.
        table: The bets of the tier, on W bins and J targets.
        placed: Which of them is for which stream.

    Raises:
        ValueError: If its length is negative or not finite: then a clock has jumped.
    """
    if not 0 <= tick.seconds < math.inf:
        msg = f"evidence: a tick of {tick.seconds} s; expected 0 or more, of the monotonic clock"
        raise ValueError(msg)
    lowest, highest, _ = _LIMITS[evidence.growth.dtype]
    growth = np.empty_like(evidence.growth)
    found = np.empty(evidence.streams)
    weight = growth.dtype.type(tick.seconds)
    for place, rows in placed.parts:
        ratios = tick.counts[rows] @ table.log_bets[place]
        np.clip(ratios, lowest, highest, out=ratios)
        np.exp(ratios, out=ratios)
        ratios *= evidence.growth[rows] + weight
        growth[rows] = ratios
        found[rows] = ratios @ table.weights[place]
    found /= table.level
    fired = found >= 1
    outcome = Outcome(found, fired)
    moved = replace(evidence, growth=growth)
    if not fired.any():
        return moved, outcome
    rows = np.flatnonzero(fired)
    stakes = growth[rows] * table.weights[placed.which[rows]]
    growth[rows] = 0
    return _alarmed(moved, outcome, stakes.argmax(axis=1), tick.number), outcome


def _alarmed(evidence: Evidence, outcome: Outcome, targets: IntArray, number: int) -> Evidence:
    """Return the evidence with the facts of rows that fired; a row keeps those of its first."""
    rows = np.flatnonzero(outcome.fired)
    quiet = evidence.raised[rows] < 0
    first = rows[quiet]
    peak, target, again = evidence.peak.copy(), evidence.target.copy(), evidence.again.copy()
    raised, latest, alarms = (
        some.copy() for some in (evidence.raised, evidence.latest, evidence.alarms)
    )
    peak[first], target[first] = outcome.evidence[first], targets[quiet]
    again[rows] += 1
    again[first] = 0
    alarms[rows] += 1
    raised[first], latest[rows] = number, number
    return replace(
        evidence, raised=raised, peak=peak, target=target, again=again, latest=latest, alarms=alarms
    )


def released(evidence: Evidence, rows: IntArray) -> Evidence:
    """Return the evidence with some rows quiet: what was raised there is over or accepted."""
    raised, again = evidence.raised.copy(), evidence.again.copy()
    raised[rows], again[rows] = -1, 0
    return replace(evidence, raised=raised, again=again)


def leading(evidence: Evidence, table: Table, placed: Placement, row: int) -> int:
    """Return the target that a row's evidence rests on most, also after an alarm."""
    if evidence.raised[row] >= 0:
        return int(evidence.target[row])
    return int((evidence.growth[row] * table.weights[placed.which[row]]).argmax())


def picked(evidence: Evidence, rows: IntArray, targets: int) -> Evidence:
    """Return the evidence of other rows: row i is old row ``rows[i]``, or new where that is -1."""
    blank = no_evidence(len(rows), targets, evidence.growth.dtype.type)
    growth = blank.growth.copy()
    known, both = rows >= 0, min(targets, evidence.growth.shape[1])
    growth[known, :both] = evidence.growth[rows[known], :both]
    return Evidence(growth, *_picked_facts(evidence, blank, rows))


def _picked_facts(evidence: Evidence, blank: Evidence, rows: IntArray) -> Iterator[Any]:
    known = rows >= 0
    for name in ("raised", "peak", "target", "again", "latest", "alarms"):
        facts = getattr(blank, name).copy()
        facts[known] = getattr(evidence, name)[rows[known]]
        yield facts
