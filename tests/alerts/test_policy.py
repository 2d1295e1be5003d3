"""From verdicts to alerts: holds, roll-up, not knowing, bounds."""

from __future__ import annotations

import numpy as np

from alerts.policy import (
    PolicyMemory,
    PolicySettings,
    counts,
)
from detectors.baseline import Stage
from detectors.ks import KsConfig
from detectors.records import Level
from tests.alerts.policy_scenes import KV, a_verdict, at, later, only, play
from tests.detectors.panels import SIGNAL, a_baseline, panels_of


def test_what_is_ok_is_not_even_remembered() -> None:
    memory, changes = play((0, [a_verdict(Level.OK), a_verdict(Level.OK, target="b")]))

    assert memory == PolicyMemory()
    assert changes == []


def test_a_reading_raises_when_its_hold_is_over_and_not_before() -> None:
    bad = [a_verdict(Level.CRITICAL, reason="0.97, trip at 0.95")]

    memory, early = play((0, bad), (9, bad))
    memory, (raised,) = later(memory, bad, 10)

    assert early == []
    assert raised.before is None
    assert raised.after is not None
    assert (raised.tier, raised.cause, raised.after.level) == ("chat", KV, Level.CRITICAL)
    assert only(memory).since == at(10)
    assert only(memory).findings[0].scope == "target:a"
    assert only(memory).findings[0].reason == "0.97, trip at 0.95"


def test_the_hold_ends_also_when_no_verdict_comes() -> None:
    _, changes = play((0, [a_verdict(Level.WARNING)]), (10, []))

    assert [change.after is not None for change in changes] == [True]


def test_a_short_bad_spell_raises_nothing() -> None:
    memory, changes = play(
        (0, [a_verdict(Level.CRITICAL)]),
        (5, [a_verdict(Level.OK)]),
        (8, [a_verdict(Level.CRITICAL)]),
        (17, [a_verdict(Level.CRITICAL)]),
        (17.5, [a_verdict(Level.OK)]),
    )

    assert changes == []
    assert memory == PolicyMemory()


def test_it_clears_only_after_its_own_hold_of_good_verdicts() -> None:
    bad, good = [a_verdict(Level.CRITICAL)], [a_verdict(Level.OK)]

    memory, changes = play((0, bad), (10, bad), (20, good), (70, good), (71, bad), (72, good))
    assert len(changes) == 1
    memory, (cleared,) = later(memory, good, 132)

    assert cleared.after is None
    assert cleared.before is not None
    assert cleared.before.since == at(10)
    assert memory == PolicyMemory()


def test_evidence_of_drift_is_not_held_again() -> None:
    drifted = a_verdict(Level.WARNING, target="", signal="prompt_tokens", cause="input_drift")
    calm = a_verdict(Level.OK, target="", signal="prompt_tokens", cause="input_drift")

    _, changes = play((0, [drifted]), (5, [calm]))

    assert [(change.at, change.after is None) for change in changes] == [
        (at(0), False),
        (at(5), True),
    ]


def test_one_tick_beyond_the_baseline_alerts_nobody_and_two_do() -> None:
    rng = np.random.default_rng(31)
    known = a_baseline(rng.beta(2, 5, 20_000), stage=Stage.CANDIDATE).signals[SIGNAL]
    usual, other = rng.beta(2, 5, (4, 300)), rng.beta(6, 3, (2, 300))
    detector = KsConfig().build()
    memory, policy = detector.start(), PolicyMemory()
    breached, raised = list[int](), list[int]()
    for panel in panels_of([[row] for row in (*usual, *other)], [known]):
        memory, verdicts = detector.step(memory, panel)
        policy, changes = later(policy, list(verdicts), 5.0 * panel.number)
        breached += [panel.number for verdict in verdicts if verdict.details.get("breached")]
        raised += [panel.number for change in changes if change.after is not None]

    assert breached == [4, 5]
    assert raised == [5]


def test_all_streams_of_a_cause_make_one_alert_with_the_worst_first() -> None:
    verdicts = [
        a_verdict(Level.WARNING, target="b"),
        a_verdict(Level.CRITICAL, target="c"),
        a_verdict(Level.WARNING, target="a"),
        a_verdict(Level.WARNING, target="a", signal="requests_waiting", cause="queue_growing"),
        a_verdict(Level.WARNING, target="a", tier="code"),
    ]

    memory, changes = play((0, verdicts), (10, verdicts))

    assert sorted(memory.alerts) == [("chat", KV), ("chat", "queue_growing"), ("code", KV)]
    assert len(changes) == 3
    alert = memory.alerts["chat", KV]
    assert alert.level is Level.CRITICAL
    assert [finding.scope for finding in alert.findings] == ["target:c", "target:a", "target:b"]
    assert sorted(counts(memory)) == [
        ("chat", KV, 2),
        ("chat", "queue_growing", 1),
        ("code", KV, 1),
    ]


def test_another_stream_joins_without_a_change_and_a_worse_one_changes_the_level() -> None:
    one, two = a_verdict(Level.WARNING), a_verdict(Level.WARNING, target="b")
    worse = a_verdict(Level.CRITICAL, target="b")

    memory, changes = play((0, [one]), (10, [one, two]), (20, [one, two]), (21, [worse]))
    assert len(changes) == 1
    assert len(only(memory).findings) == 2
    memory, (change,) = later(memory, [worse], 31)

    assert change.before is not None
    assert change.after is not None
    assert (change.before.level, change.after.level) == (Level.WARNING, Level.CRITICAL)
    assert only(memory).since == at(31)


def test_a_long_list_of_findings_is_cut_and_the_rest_counted() -> None:
    settings = PolicySettings(raise_hold_seconds=0, shown=3)
    verdicts = [a_verdict(Level.WARNING, target=f"t{number}") for number in range(8)]

    memory, _ = play((0, verdicts), settings=settings)

    assert len(only(memory).findings) == 3
    assert only(memory).more == 5


def test_not_knowing_holds_what_is_raised() -> None:
    bad, unknown = [a_verdict(Level.CRITICAL)], [a_verdict(Level.UNKNOWN)]

    memory, changes = play((0, bad), (10, bad), (20, unknown), (250, unknown))

    assert len(changes) == 1
    assert only(memory).level is Level.CRITICAL
    assert only(memory).findings[0].level is Level.CRITICAL


def test_not_knowing_starts_the_hold_of_a_clearing_anew() -> None:
    bad, good = [a_verdict(Level.CRITICAL)], [a_verdict(Level.OK)]

    memory, changes = play(
        *(
            (0, bad),
            (10, bad),
            (20, good),
            (70, [a_verdict(Level.UNKNOWN)]),
            (75, good),
            (130, good),
        )
    )

    assert len(changes) == 1
    _, (cleared,) = later(memory, good, 135)
    assert cleared.after is None


def test_not_knowing_that_lasts_is_an_alert_of_its_own_and_ends_with_knowledge() -> None:
    unknown = [a_verdict(Level.UNKNOWN, reason="family absent")]

    memory, changes = play((0, unknown), (299, unknown))
    assert changes == []
    memory, (raised,) = later(memory, unknown, 300)
    after, (ended,) = later(memory, [a_verdict(Level.OK)], 305)

    assert raised.cause == "signals_unknown"
    assert only(memory).level is Level.WARNING
    assert only(memory).findings[0].level is Level.UNKNOWN
    assert only(memory).findings[0].reason == "family absent"
    assert ended.after is None
    assert after == PolicyMemory()


def test_what_was_neither_told_nor_configured_raises_nothing() -> None:
    unknown = [a_verdict(Level.UNKNOWN, cause="")]

    _, changes = play((0, unknown), (100_000, unknown))

    assert changes == []


def test_a_baseline_that_is_being_collected_is_given_a_day() -> None:
    missing = a_verdict(Level.UNKNOWN, target="", signal="prompt_tokens", cause="baseline_missing")

    memory, early = play((0, [missing]), (3_000, [missing]), (6_000, [missing]))
    for hour in range(2, 24):
        memory, more = later(memory, [missing], 3_600 * hour)
        early.extend(more)
    _, (raised,) = later(memory, [missing], 86_400)

    assert early == []
    assert raised.cause == "baseline_missing"


def test_a_target_that_is_down_is_not_reported_as_unknown_as_well() -> None:
    down = a_verdict(Level.CRITICAL, signal="up", cause="target_down")
    unknown = a_verdict(Level.UNKNOWN)
    other = a_verdict(Level.UNKNOWN, target="b")

    memory, _ = play(*((second, [down, unknown, other]) for second in (0, 10, 310)))

    assert sorted(cause for _, cause in memory.alerts) == ["signals_unknown", "target_down"]
    lists = memory.alerts["chat", "signals_unknown"].findings
    assert [finding.scope for finding in lists] == ["target:b"]
