"""What one evaluation counts as: breaches scrape by scrape, holds that do not stack."""

from __future__ import annotations

from dataclasses import replace

import pytest

from alerts.breaker.evidence import find
from detectors import default_detectors, reading_detectors
from detectors.records import Level, Verdict
from tests.alerts.breaker.scene import a_verdict
from tests.builders import a_reading


def found(*verdicts: Verdict) -> str:
    """Return what an evaluation of target `a` counts as."""
    finding = find(verdicts, target="a", reading_ok=True)
    if finding.ejects is not None:
        return "breach"
    return "clean" if finding.clean else "neither"


@pytest.mark.parametrize(
    ("cause", "level", "breached", "expected"),
    [
        ("kv_cache_saturated", Level.WARNING, 1.0, "breach"),  # the first scrape above the limit
        ("kv_cache_saturated", Level.CRITICAL, 1.0, "breach"),
        ("kv_cache_saturated", Level.CRITICAL, 0.0, "neither"),  # below the limit, not cleared yet
        ("kv_cache_saturated", Level.OK, 0.0, "clean"),
        ("kv_cache_saturated", Level.UNKNOWN, 1.0, "neither"),
        ("engine_stalled", Level.WARNING, 1.0, "neither"),  # hard causes count by their level
        ("engine_stalled", Level.CRITICAL, 0.0, "breach"),
        ("input_drift", Level.CRITICAL, 1.0, "clean"),  # may only alert
    ],
)
def test_soft_causes_count_scrape_by_scrape_and_others_by_level(
    cause: str, level: Level, breached: float, expected: str
) -> None:
    verdict = replace(a_verdict(cause, level), details={"breached": breached})

    assert found(verdict) == expected


def test_the_shipped_limit_breaches_from_its_first_scrape_and_is_clean_once_cleared() -> None:
    kv = next(d for d in reading_detectors(default_detectors()) if d.name == "kv_cache")
    usage = [0.5, 0.99, 0.99, 0.99, 0.9, 0.5, 0.5, 0.5, 0.5]
    memory = kv.start()
    seen = []

    for number, ratio in enumerate(usage):
        values = {"kv_cache_usage_ratio": ratio, "requests_waiting": 5.0}
        memory, verdicts = kv.step(memory, a_reading(values, seconds=5.0 * number))
        seen.append(found(*verdicts))

    assert seen[:4] == ["clean", "breach", "breach", "breach"]
    assert seen[4] == "neither"
    assert seen[-1] == "clean"
    assert "breach" not in seen[4:]
