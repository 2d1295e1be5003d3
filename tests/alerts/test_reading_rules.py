"""Every cause that detectors of readings find has an alert with a runbook, and only alerts."""

from __future__ import annotations

from alerts.breaker.permissions import ALERT_ONLY, permission
from alerts.reading_rules import ALERT_OF_READING_CAUSE, CAUSE_ALERTS
from alerts.rules import ALERT_OF_CAUSE, RuleSettings, alert_rules
from detectors import OfferedConfig, default_detectors, reading_detectors
from tests.detectors.histories import CYCLE, pressed

OLDER = {"target_down", "logits_corrupted"}  # of detectors that every target has


def found_causes() -> set[str]:
    """Return the causes that a tier under pressure shows."""
    offered = [it for it in default_detectors() if isinstance(it, OfferedConfig)]
    causes, readings = set(), list(pressed(CYCLE))
    for detector in reading_detectors(offered):
        memory = detector.start()
        for reading in readings:
            memory, verdicts = detector.step(memory, reading)
            causes |= {verdict.cause for verdict in verdicts} - {""}
    return causes


def test_each_cause_that_is_found_has_its_alert_and_none_is_left_over() -> None:
    assert found_causes() | OLDER == set(ALERT_OF_READING_CAUSE)


def test_their_alerts_are_rules_and_name_the_pushed_alerts_too() -> None:
    rules = {rule.name for rule in alert_rules(RuleSettings())}

    assert {alert.name for alert in CAUSE_ALERTS} <= rules
    assert ALERT_OF_READING_CAUSE.items() <= ALERT_OF_CAUSE.items()


def test_none_of_them_may_eject_or_shed() -> None:
    news = set(ALERT_OF_READING_CAUSE) - OLDER

    assert {permission(cause) for cause in news} == {ALERT_ONLY}
