"""A gauge of a month: a daily cycle, noise with a memory, bursts, and leaks if wanted.

With these numbers a plain limit at 0.90 is crossed 3.5 times a day, and held for a minute once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.signal import lfilter

from detectors.protocols import ReadingDetector
from detectors.records import FloatArray, Level
from tests.builders import a_reading

DAY = 17_280  # scrapes, 5 s apart
MEMORY = 0.98  # of the noise from scrape to scrape


def a_gauge(scrapes: int, *, seed: int, phase: float = 0.0) -> tuple[FloatArray, FloatArray]:
    """Return a share at each scrape, with its 40 bursts a day and without them."""
    rng = np.random.default_rng(seed)
    moments = np.arange(scrapes)
    calm = 0.45 + 0.15 * np.sin(2 * np.pi * (moments / DAY + phase))
    calm += lfilter([1], [1, -MEMORY], rng.normal(0, 0.03 * np.sqrt(1 - MEMORY**2), scrapes))
    busy = calm.copy()
    for _ in range(rng.poisson(40 * scrapes / DAY)):
        begin, length = rng.integers(scrapes), int(rng.exponential(12))
        busy[begin : begin + length] += rng.uniform(0.1, 0.35)
    return busy, calm


def raised(detector: ReadingDetector[Any], shares: Sequence[float], signal: str) -> FloatArray:
    """Return 1.0 for each scrape at which the detector says critical, else 0.0."""
    memory, found = detector.start(), np.zeros(len(shares))
    for number, share in enumerate(shares):
        reading = a_reading({signal: float(share)}, seconds=5.0 * number)
        memory, verdicts = detector.step(memory, reading)
        found[number] = verdicts[0].level is Level.CRITICAL
    return found


def episodes(found: FloatArray) -> int:
    """Return how often it was raised anew."""
    return int(np.sum(np.diff(found, prepend=0.0) > 0))
