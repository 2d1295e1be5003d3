"""How many requests the generations stand for, and what share of them came with logprobs."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from collector.ingest.records import Sent
from detectors.records import Batch, FloatArray

WINDOW_SECONDS = 60.0
_SLOT_SECONDS = 5.0
SCORED = "output_scored"


@dataclass(slots=True)
class _Slot:
    """What a few seconds brought, in requests that the rows stand for."""

    number: int
    requests: float = 0.0
    scored: float = 0.0


@dataclass(slots=True)
class _Tier:
    slots: deque[_Slot] = field(default_factory=deque)
    tick: int = -1
    ratio: float = 1.0  # the first one of that tick


@dataclass(frozen=True, slots=True)
class Represented:
    """Of one batch: the `requests` that it stands for, and rows `mixed` in with another ratio."""

    requests: float
    mixed: int


class Coverage:
    """Adds up batches by tier; a row that was sampled with ratio r stands for 1 / r requests."""

    def __init__(self, *, monotonic: Callable[[], float], tick_seconds: float) -> None:
        self._monotonic = monotonic
        self._tick_seconds = tick_seconds
        self._tiers: dict[str, _Tier] = {}

    def take(self, batch: Batch, sent: Sent) -> Represented:
        """Add a batch."""
        moment = self._monotonic()
        tier = self._tiers.setdefault(batch.tier, _Tier())
        ratios = sent.ratios if len(sent.ratios) else np.ones(batch.size)
        weights: FloatArray = 1 / ratios
        slot = _slot(tier, int(moment // _SLOT_SECONDS))
        scored = batch.columns.get(SCORED)
        if scored is not None:  # answers without tokens have nothing to score
            told = ~np.isnan(scored)
            slot.requests += float(weights[told].sum())
            slot.scored += float((weights[told] * scored[told]).sum())
        tick = int(moment // self._tick_seconds)
        if tier.tick != tick and batch.size:
            tier.tick, tier.ratio = tick, float(ratios[0])
        mixed = int(np.count_nonzero(ratios != tier.ratio))
        return Represented(float(weights.sum()), mixed)

    def ratios(self) -> Mapping[str, float]:
        """Return by tier the share with logprobs over the last minute; NaN without requests."""
        oldest = self._monotonic() - WINDOW_SECONDS
        return {name: _ratio(tier, oldest) for name, tier in self._tiers.items()}

    def forget(self, tier: str) -> None:
        """Let go of a tier that is no longer configured."""
        self._tiers.pop(tier, None)


def _slot(tier: _Tier, number: int) -> _Slot:
    if not tier.slots or tier.slots[-1].number != number:
        tier.slots.append(_Slot(number))
        while len(tier.slots) > WINDOW_SECONDS / _SLOT_SECONDS:
            tier.slots.popleft()
    return tier.slots[-1]


def _ratio(tier: _Tier, oldest: float) -> float:
    recent = [slot for slot in tier.slots if slot.number * _SLOT_SECONDS >= oldest]
    requests = sum(slot.requests for slot in recent)
    return sum(slot.scored for slot in recent) / requests if requests else math.nan
