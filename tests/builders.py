"""Small builders of records for tests: everything has a default, a test names what matters."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import numpy as np

from detectors.records import TIER_SCOPE, Absence, Batch, FloatArray, Reading, Scope, Tick
from detectors.signals import grid_of

START = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)


def a_reading(
    values: Mapping[str, float] | None = None,
    *,
    absent: Mapping[str, Absence] | None = None,
    target: str = "a",
    seconds: float = 0.0,
    problem: str = "",
) -> Reading:
    """Return a reading of tier `chat`, `seconds` after START."""
    return Reading(
        tier="chat",
        target=target,
        source="scrape",
        at=START + timedelta(seconds=seconds),
        monotonic_seconds=1000.0 + seconds,
        scrape_seconds=0.01,
        values=values or {},
        absent=absent or {},
        problem=problem,
    )


def a_batch(
    columns: Mapping[str, list[float]],
    *,
    segment: str = "other",
    variant: str = "v1",
    seconds: float = 0.0,
) -> Batch:
    """Return a batch of tier `chat`; its size is that of the longest column."""
    arrays: dict[str, FloatArray] = {
        signal: np.asarray(values, dtype=np.float64) for signal, values in columns.items()
    }
    return Batch(
        tier="chat",
        target="a",
        segment=segment,
        variant=variant,
        newest_at=START + timedelta(seconds=seconds),
        size=max((len(values) for values in arrays.values()), default=0),
        columns=arrays,
    )


def a_tick(
    values: Mapping[str, FloatArray],
    *,
    number: int = 0,
    scope: Scope = TIER_SCOPE,
    variant: str = "v1",
) -> Tick:
    """Return a tick of tier `chat` that counted `values` (signal -> shape (n,))."""
    return Tick(
        tier="chat",
        scope=scope,
        variant=variant,
        number=number,
        start=START + timedelta(seconds=5 * number),
        duration_seconds=5.0,
        age_seconds=0.5,
        requests=max((len(found) for found in values.values()), default=0),
        counts={signal: grid_of(signal).count(found) for signal, found in values.items()},
    )
