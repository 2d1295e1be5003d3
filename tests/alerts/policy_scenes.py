"""Verdicts played to the policy, and what it remembers then."""

from __future__ import annotations

from datetime import datetime, timedelta

from alerts.policy import (
    AlertState,
    Change,
    PolicyMemory,
    PolicySettings,
    step,
)
from detectors.records import TIER_SCOPE, Level, Scope, Stream, Verdict
from tests.builders import START

SETTINGS = PolicySettings(raise_hold_seconds=10, clear_hold_seconds=60, unknown_after_seconds=300)
KV = "kv_cache_saturated"


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def later(
    memory: PolicyMemory,
    verdicts: list[Verdict],
    seconds: float,
    settings: PolicySettings = SETTINGS,
) -> tuple[PolicyMemory, tuple[Change, ...]]:
    """Step at `seconds` after START by either clock."""
    return step(memory, verdicts, at(seconds), 1000.0 + seconds, settings)


def a_verdict(
    level: Level,
    *,
    target: str = "a",
    signal: str = "kv_cache_usage_ratio",
    cause: str = KV,
    reason: str = "",
    tier: str = "chat",
) -> Verdict:
    scope = Scope("target", target) if target else TIER_SCOPE
    stream = Stream(tier, scope, signal)
    return Verdict("detector", stream, level, START, cause=cause, reason=reason)


def play(
    *moments: tuple[float, list[Verdict]], settings: PolicySettings = SETTINGS
) -> tuple[PolicyMemory, list[Change]]:
    memory = PolicyMemory()
    changes: list[Change] = []
    for seconds, verdicts in moments:
        memory, found = later(memory, verdicts, seconds, settings)
        changes.extend(found)
    return memory, changes


def only(memory: PolicyMemory) -> AlertState:
    (alert,) = memory.alerts.values()
    return alert
