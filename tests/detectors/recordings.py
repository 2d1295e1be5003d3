"""Recorded vLLM runs as readings: see `tests/fixtures/readings/README.md`."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from detectors.protocols import ReadingDetector
from detectors.records import Histogram, Reading, Verdict
from tests.builders import START


def recorded(path: Path) -> list[Reading]:
    """Return the readings of a derived recording, the first at second 0."""
    found = json.loads(path.read_text(encoding="utf-8"))
    readings = []
    for seconds, *row in found["rows"]:
        values = dict(zip(found["columns"], row, strict=True))
        queued = values.pop("queue_seconds_sum"), values.pop("queue_seconds_count")
        readings.append(
            Reading(
                tier="chat",
                target="a",
                source="scrape",
                at=START + timedelta(seconds=seconds),
                monotonic_seconds=seconds,
                scrape_seconds=0.01,
                values=values,
                histograms={"queue_seconds": Histogram((), (), queued[1], queued[0])},
            )
        )
    return readings


def judged(detector: ReadingDetector[Any], readings: Sequence[Reading]) -> list[Verdict]:
    """Return the verdict after each reading; the detector must give one a reading."""
    memory = detector.start()
    verdicts = []
    for reading in readings:
        memory, (verdict,) = detector.step(memory, reading)
        verdicts.append(verdict)
    return verdicts


def seconds_when(verdicts: Sequence[Verdict], holds: Callable[[Verdict], bool]) -> list[float]:
    """Return the seconds since START of the verdicts for which `holds`."""
    return [(verdict.at - START).total_seconds() for verdict in verdicts if holds(verdict)]
