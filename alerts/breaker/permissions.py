"""What each cause may do to traffic: one table, the only place where that is decided."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from alerts.breaker.records import CauseKind


@dataclass(frozen=True, slots=True)
class Permission:
    """What a cause is and may do.

    `may_eject_target` opens a target's breaker; `may_shed_tier` lowers the tier's admit ratio;
    `may_shed_with_harm` does so only where the tier is configured with `drift_may_shed` and a
    saturation verdict of the tier is critical too; `latched` holds a target open until a person
    releases it or `latch_max_seconds` have passed.
    """

    kind: CauseKind
    may_eject_target: bool = False
    may_shed_tier: bool = False
    may_shed_with_harm: bool = False
    latched: bool = False


ALERT_ONLY = Permission("quality")

PERMISSIONS: Mapping[str, Permission] = MappingProxyType(
    {
        "kv_cache_saturated": Permission("soft", may_eject_target=True, may_shed_tier=True),
        "queue_growing": Permission("soft", may_eject_target=True, may_shed_tier=True),
        # full slots are the normal state of a busy replica: ejecting it would move the load only
        "slots_saturated": Permission("soft", may_shed_tier=True),
        "engine_stalled": Permission("hard", may_eject_target=True, may_shed_tier=True),
        # fewer wrong answers are still wrong answers: shedding does not help, a person must look
        "logits_corrupted": Permission("hard", may_eject_target=True, latched=True),
        "input_drift": Permission("quality", may_shed_with_harm=True),
        "output_drift": ALERT_ONLY,
        # a target that does not answer is out already, and a failed scrape is missing data
        "target_down": ALERT_ONLY,
        "baseline_missing": ALERT_ONLY,
    }
)


def permission(code: str) -> Permission:
    """Return what the cause `code` may do; a cause that nobody listed may only alert.

    >>> permission("kv_cache_saturated").may_eject_target
    True
    >>> permission("made_up_yesterday") == ALERT_ONLY
    True
    """
    return PERMISSIONS.get(code, ALERT_ONLY)
