"""Parameters that contradict one another are refused with both numbers."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from alerts.breaker.parameters import BreakerParameters


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"breach_n": 6}, "breach_n 6 must not be above breach_m 5"),
        ({"lease_seconds": 50}, "at least 3 times renew_seconds 20"),
        ({"open_cap_seconds": 10}, "must not be below open_base_seconds 30"),
        ({"ramp": (0.5, 0.25)}, "must rise strictly"),
        ({"ramp": (0.5, 1.0)}, "must rise strictly"),
        ({"trips": 1}, "trips"),
    ],
)
def test_contradictions_are_refused(changes: dict[str, object], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        BreakerParameters.model_validate(changes)


def test_the_defaults_agree() -> None:
    assert BreakerParameters().ramp == (0.05, 0.25, 0.5)
