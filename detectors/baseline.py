"""Frozen, versioned references that drift is measured against.

A baseline is made from ticks (live or from a file), belongs to one (tier, scope, variant), and
holds per request signal the exact counts on the signal's grid, the thresholds (grid edges at
fixed levels) with their Clopper-Pearson bands, and the design effect. It is never changed: its id
is the hash of its content, and accepting a shift means promoting another one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

import msgspec
import numpy as np

from detectors import proportions
from detectors.proportions import clopper_pearson, design_effect
from detectors.records import FloatArray, IntArray, Scope, Tick
from detectors.sequential.traffic import (
    SavedTraffic,
    Traffic,
    merged_traffic,
    read_traffic,
    saved_traffic,
    traffic_of,
)
from detectors.signals import REQUEST_SIGNALS, grid_of

FORMAT = 1  # of `to_bytes`
LEVELS = proportions.LEVELS
BAND_ALPHA = proportions.BAND_ALPHA


class Stage(StrEnum):
    """What a baseline is used for."""

    CANDIDATE = "candidate"  # serves the inform tier at once
    ACTIVE = "active"  # may page and trip
    RETIRED = "retired"


@dataclass(frozen=True)
class SignalBaseline:
    """The reference of one request signal.

    `counts` has shape (bins,) on `grid`; `thresholds` are indices of grid edges, ascending;
    `lower` and `upper` bound P(X <= edge) at each threshold, simultaneously with confidence
    1 - BAND_ALPHA; `design_effect` >= 1 is the variance inflation of time-ordered traffic.
    `traffic` says for the sequential detector how the requests came; None in baselines of builds
    that did not keep it.
    """

    baseline: str
    signal: str
    grid: str
    counts: IntArray
    thresholds: IntArray
    lower: FloatArray
    upper: FloatArray
    design_effect: float
    stage: Stage = Stage.CANDIDATE
    traffic: Traffic | None = None
    made_at: datetime | None = None

    @property
    def requests(self) -> int:
        return int(self.counts.sum())


@dataclass(frozen=True)
class Baseline:
    """All signals of one (tier, scope, variant), with where they came from."""

    id: str
    tier: str
    scope: Scope
    variant: str
    made_at: datetime
    stage: Stage
    requests: int
    provenance: str  # "ticks 2026-11-01T00:00Z to …" or "file NAME"
    signals: Mapping[str, SignalBaseline]
    author: str = ""
    reason: str = ""


def make_baseline(
    ticks: Sequence[Tick], *, made_at: datetime, provenance: str, stage: Stage = Stage.CANDIDATE
) -> Baseline:
    """Return the baseline of `ticks`, which must be of one (tier, scope, variant).

    Signals without a single count are left out.

    Raises:
        ValueError: If there are no ticks, they mix streams, or nothing was counted.
    """
    identities = {(tick.tier, tick.scope, tick.variant) for tick in ticks}
    if len(identities) != 1:
        found = sorted(str(identity) for identity in identities)
        msg = f"a baseline needs ticks of exactly one (tier, scope, variant), got {found}"
        raise ValueError(msg)
    ordered = _joined(ticks)
    frozen = {row.name: _of_ticks(row.name, ordered) for row in REQUEST_SIGNALS}
    signals = {name: row for name, row in frozen.items() if row is not None}
    some = ordered[0]
    if not signals:
        msg = (
            f"a baseline of tier {some.tier!r}, {some.scope} needs counted requests; "
            "the ticks hold none"
        )
        raise ValueError(msg)
    unnamed = Baseline(
        id="",
        tier=some.tier,
        scope=some.scope,
        variant=some.variant,
        made_at=made_at,
        stage=Stage.CANDIDATE,
        requests=sum(tick.requests for tick in ordered),
        provenance=provenance,
        signals=signals,
    )
    return _named(unnamed, stage)


def merged(left: Baseline, right: Baseline, *, made_at: datetime, provenance: str) -> Baseline:
    """Return the candidate that counted what `left` and `right` counted, of one stream.

    The design effect of each signal is the larger of the two: what both saw together in time
    order is not known any more.

    Raises:
        ValueError: If the two are of different (tier, scope, variant).
    """
    mine = (left.tier, str(left.scope), left.variant)
    theirs = (right.tier, str(right.scope), right.variant)
    if mine != theirs:
        msg = f"baselines {left.id} of {mine} and {right.id} of {theirs} do not merge"
        raise ValueError(msg)
    signals = dict(left.signals)
    for name, more in right.signals.items():
        had = left.signals.get(name)
        if had is not None:
            effect = max(had.design_effect, more.design_effect)
            traffic = merged_traffic(had.traffic, more.traffic)
            signals[name] = _frozen(name, had.counts + more.counts, effect, traffic)
        else:
            signals[name] = more
    unnamed = replace(
        left,
        made_at=made_at,
        requests=left.requests + right.requests,
        provenance=provenance,
        signals=signals,
        author="",
        reason="",
    )
    return _named(unnamed, Stage.CANDIDATE)


def promoted(
    baseline: Baseline, *, author: str, reason: str, stage: Stage = Stage.ACTIVE
) -> Baseline:
    """Return `baseline` at another stage; its content and id stay.

    Raises:
        ValueError: If author or reason are empty, or the stage is `candidate`.
    """
    if not author.strip() or not reason.strip():
        msg = f"baseline {baseline.id}: a promotion needs an author and a reason, both in words"
        raise ValueError(msg)
    if stage is Stage.CANDIDATE:
        msg = f"baseline {baseline.id}: becomes active or retired, never a candidate again"
        raise ValueError(msg)
    signals = {name: replace(row, stage=stage) for name, row in baseline.signals.items()}
    return replace(baseline, stage=stage, signals=signals, author=author, reason=reason)


def sufficient(requests: int, needed: int) -> bool:
    """Whether a span of so many requests is enough to make a baseline of."""
    return requests >= needed > 0


def collecting(requests: int, needed: int) -> str:
    """Say how far collection is: "collecting, 1,234 of 20,000 requests"."""
    return f"collecting, {requests:,} of {needed:,} requests"


def _joined(ticks: Sequence[Tick]) -> list[Tick]:
    """Return the ticks in order, those of one number added (several workers counted them)."""
    by_number: dict[int, Tick] = {}
    for tick in ticks:
        same = by_number.get(tick.number)
        by_number[tick.number] = tick if same is None else same.plus(tick)
    return [by_number[number] for number in sorted(by_number)]


def _of_ticks(signal: str, ordered: Sequence[Tick]) -> SignalBaseline | None:
    """Return what ticks in order say of a signal; None if it was never counted."""
    ticks = [tick for tick in ordered if signal in tick.counts]
    if not ticks:
        return None
    series = np.stack([tick.counts[signal] for tick in ticks])
    counts = series.sum(axis=0)
    if counts.sum() == 0:
        return None
    hours = np.asarray([int(tick.start.timestamp() // 3600) for tick in ticks])
    return _frozen(signal, counts, design_effect(series), traffic_of(series, hours))


def _frozen(
    signal: str, counts: IntArray, effect: float, traffic: Traffic | None
) -> SignalBaseline:
    """Choose thresholds and bands; the id is set by `_named`."""
    requests = int(counts.sum())
    cumulative = np.cumsum(counts)[:-1]
    places = np.searchsorted(cumulative, np.asarray(LEVELS) * requests, side="left")
    thresholds = np.unique(np.minimum(places, len(cumulative) - 1)).astype(np.int64)
    lower, upper = clopper_pearson(
        cumulative[thresholds] / effect, requests / effect, BAND_ALPHA / len(thresholds)
    )
    return SignalBaseline(
        baseline="",
        signal=signal,
        grid=grid_of(signal).name,
        counts=counts,
        thresholds=thresholds,
        lower=lower,
        upper=upper,
        design_effect=effect,
        traffic=traffic,
    )


def _named(baseline: Baseline, stage: Stage) -> Baseline:
    """Return `baseline` with the id of its content, in it and in its signals."""
    identity = content_id(baseline)
    signals = {
        name: replace(row, baseline=identity, stage=stage, made_at=baseline.made_at)
        for name, row in baseline.signals.items()
    }
    return replace(baseline, id=identity, stage=stage, signals=signals)


def content_id(baseline: Baseline) -> str:
    """Return the hash of everything that decides verdicts: identity, counts, bands, effects.

    Stage, author, reason, provenance and date are not part of it: they may change or differ.
    """
    head = [baseline.tier, str(baseline.scope), baseline.variant, baseline.requests]
    digest = hashlib.sha256(json.dumps(head).encode())
    for name in sorted(baseline.signals):
        row = baseline.signals[name]
        digest.update(json.dumps([name, row.grid, row.design_effect.hex()]).encode())
        for array in (row.counts, row.thresholds, row.lower, row.upper):
            digest.update(len(array).to_bytes(4, "little") + _little(array))
        if row.traffic is not None:  # baselines of older builds keep their id
            digest.update(msgspec.msgpack.encode(saved_traffic(row.traffic)))
    return "bl_" + digest.hexdigest()[:16]


def _little(array: IntArray | FloatArray) -> bytes:
    """Return the array's bytes in one order on every machine."""
    return array.astype(array.dtype.newbyteorder("<")).tobytes()


class _SavedSignal(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    grid: str
    counts: bytes  # int64, little endian, as are thresholds; bands are float64
    thresholds: bytes
    lower: bytes
    upper: bytes
    design_effect: float
    traffic: SavedTraffic | None = None


class _Saved(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: int
    id: str
    tier: str
    scope: str
    variant: str
    made_at: datetime
    stage: str
    requests: int
    provenance: str
    author: str
    reason: str
    signals: dict[str, _SavedSignal]


def to_bytes(baseline: Baseline) -> bytes:
    """Return the whole baseline as bytes, the same for the same baseline."""
    saved = _Saved(
        format=FORMAT,
        id=baseline.id,
        tier=baseline.tier,
        scope=str(baseline.scope),
        variant=baseline.variant,
        made_at=baseline.made_at,
        stage=str(baseline.stage),
        requests=baseline.requests,
        provenance=baseline.provenance,
        author=baseline.author,
        reason=baseline.reason,
        signals={
            name: _SavedSignal(
                grid=row.grid,
                counts=_little(row.counts),
                thresholds=_little(row.thresholds),
                lower=_little(row.lower),
                upper=_little(row.upper),
                design_effect=row.design_effect,
                traffic=None if row.traffic is None else saved_traffic(row.traffic),
            )
            for name, row in sorted(baseline.signals.items())
        },
    )
    return msgspec.msgpack.encode(saved)


def from_bytes(data: bytes) -> Baseline:
    """Return what `to_bytes` was given.

    Raises:
        ValueError: If the bytes are damaged, of another format, or not what their id says.
    """
    try:
        saved = msgspec.msgpack.decode(data, type=_Saved)
        baseline = _read(saved)
    except (msgspec.DecodeError, ValueError) as error:
        msg = f"baseline of {len(data)} bytes cannot be read: {error}"
        raise ValueError(msg) from error
    found = content_id(baseline)
    if found != saved.id:
        msg = (
            f"baseline {saved.id}: its content has the id {found}; it was changed after it was "
            "made: restore it from a backup, or make a new one with 'fusewire baseline create'"
        )
        raise ValueError(msg)
    return baseline


def _read(saved: _Saved) -> Baseline:
    if saved.format != FORMAT:
        msg = f"format {saved.format}, this build reads {FORMAT}"
        raise ValueError(msg)
    stage = Stage(saved.stage)
    signals = {
        name: SignalBaseline(
            baseline=saved.id,
            signal=name,
            grid=row.grid,
            counts=np.frombuffer(row.counts, dtype="<i8").astype(np.int64),
            thresholds=np.frombuffer(row.thresholds, dtype="<i8").astype(np.int64),
            lower=np.frombuffer(row.lower, dtype="<f8").astype(np.float64),
            upper=np.frombuffer(row.upper, dtype="<f8").astype(np.float64),
            design_effect=row.design_effect,
            stage=stage,
            traffic=None if row.traffic is None else read_traffic(row.traffic),
            made_at=saved.made_at,
        )
        for name, row in saved.signals.items()
    }
    return Baseline(
        id=saved.id,
        tier=saved.tier,
        scope=Scope.parse(saved.scope),
        variant=saved.variant,
        made_at=saved.made_at,
        stage=stage,
        requests=saved.requests,
        provenance=saved.provenance,
        signals=signals,
        author=saved.author,
        reason=saved.reason,
    )
