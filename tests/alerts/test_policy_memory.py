"""What the policy remembers: over restarts and clock jumps, bounded, and forgotten in time."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.policy import (
    PolicyMemory,
    PolicySettings,
    forget,
    forget_detector,
    forget_tier,
    load,
    save,
    step,
)
from detectors.records import Level
from tests.alerts.policy_scenes import KV, SETTINGS, a_verdict, at, later, only, play


def test_a_target_that_vanished_takes_its_findings_along() -> None:
    verdicts = [a_verdict(Level.WARNING), a_verdict(Level.WARNING, target="b")]
    memory, _ = play((0, verdicts), (10, verdicts))

    memory = forget(memory, tier="chat", target="a")
    memory, changes = later(memory, [], 11)

    assert changes == ()
    assert [finding.scope for finding in only(memory).findings] == ["target:b"]


def test_a_tier_that_is_gone_takes_its_findings_along() -> None:
    verdicts = [a_verdict(Level.WARNING), a_verdict(Level.WARNING, tier="code", target="")]
    memory, _ = play((0, verdicts), (10, verdicts))

    memory = forget_tier(memory, tier="code")
    memory, (cleared,) = later(memory, [], 11)

    assert (cleared.tier, cleared.after) == ("code", None)
    assert [tier for tier, _ in memory.alerts] == ["chat"]


def test_a_detector_that_is_gone_takes_its_findings_along_in_its_tier_only() -> None:
    other = replace(a_verdict(Level.WARNING, target="b"), detector="another")
    verdicts = [a_verdict(Level.WARNING), a_verdict(Level.WARNING, tier="code"), other]
    memory, _ = play((0, verdicts), (10, verdicts))

    memory = forget_detector(memory, tier="chat", detector="detector")
    memory, changes = later(memory, [], 11)

    assert changes == ()
    assert [(tier, alert.findings[0].detector) for (tier, _), alert in memory.alerts.items()] == [
        ("chat", "another"),
        ("code", "detector"),
    ]


def test_a_stream_that_nobody_speaks_of_any_more_is_forgotten() -> None:
    bad = [a_verdict(Level.WARNING)]
    memory, _ = play((0, bad), (10, bad), (3_610, []))
    assert memory.alerts

    memory, (cleared,) = later(memory, [], 3_611)

    assert cleared.after is None
    assert memory == PolicyMemory()


def test_streams_beyond_the_bound_are_dropped_and_counted() -> None:
    settings = PolicySettings(raise_hold_seconds=0, streams=3)

    memory, _ = play(
        (0, [a_verdict(Level.WARNING, target=f"t{number}") for number in range(5)]),
        settings=settings,
    )

    assert len(memory.watched) == 3
    assert memory.dropped == 2


def test_memory_survives_save_and_load() -> None:
    verdicts = [a_verdict(Level.CRITICAL), a_verdict(Level.UNKNOWN, target="b")]
    memory, _ = play((0, verdicts), (10, verdicts))

    back = load(save(memory))
    assert back == memory
    assert back.stepped_seconds is None


def test_time_in_which_fusewire_did_not_run_raises_nothing() -> None:
    memory, _ = play((0, [a_verdict(Level.UNKNOWN), a_verdict(Level.CRITICAL, target="b")]))

    memory = load(save(memory))
    memory, at_once = later(memory, [], 3_000)
    memory, (held,) = later(memory, [], 3_010)
    memory, (unknown,) = later(memory, [], 3_300)

    assert at_once == ()
    assert (held.cause, unknown.cause) == (KV, "signals_unknown")


def test_time_in_which_fusewire_did_not_run_clears_nothing() -> None:
    bad = [a_verdict(Level.CRITICAL)]
    memory, _ = play((0, bad), (10, bad), (20, [a_verdict(Level.OK)]))

    memory = load(save(memory))
    memory, early = later(memory, [], 90_000)
    memory, (cleared,) = later(memory, [], 90_060)

    assert early == ()
    assert cleared.after is None


@pytest.mark.parametrize("jump", [timedelta(hours=2), timedelta(hours=-1)], ids=["on", "back"])
def test_a_clock_that_is_set_neither_delays_an_alert_nor_clears_one(jump: timedelta) -> None:
    bad, unknown = [a_verdict(Level.CRITICAL)], [a_verdict(Level.UNKNOWN, target="b")]
    memory = PolicyMemory()
    changes: list[tuple[float, str, bool]] = []
    for tick in range(80):
        shown = at(5.0 * tick) + (jump if tick >= 1 else timedelta())
        seconds = 1000.0 + 5.0 * tick
        memory, found = step(memory, [*bad, *unknown], shown, seconds, SETTINGS)
        changes += [(5.0 * tick, change.cause, change.after is None) for change in found]

    assert changes == [(10.0, KV, False), (300.0, "signals_unknown", False)]
    assert memory.alerts["chat", KV].since == at(10) + jump


def test_a_clock_set_forward_does_not_clear_in_the_midst_of_a_hold() -> None:
    bad, good = [a_verdict(Level.CRITICAL)], [a_verdict(Level.OK)]
    memory, _ = play((0, bad), (10, bad), (20, good))

    memory, early = step(memory, [], at(20 + 7_200), 1_025.0, SETTINGS)
    _, (cleared,) = step(memory, [], at(20 + 7_260), 1_080.0, SETTINGS)

    assert early == ()
    assert cleared.after is None


@pytest.mark.parametrize("data", [b"", b"{}", b"[[],[],0,1]", b"[[],[{}],0]", b"\xff"])
def test_bytes_that_are_no_memory_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="memory of the alert policy"):
        load(data)


@given(
    st.lists(
        st.tuples(
            st.floats(0.5, 120),
            st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(list(Level))), max_size=4),
        ),
        max_size=30,
    )
)
def test_changes_are_exactly_the_differences_of_the_alerts(
    moments: list[tuple[float, list[tuple[str, Level]]]],
) -> None:
    memory, now, known = PolicyMemory(), 0.0, dict[tuple[str, str], Level]()
    for passed, rows in moments:
        now += passed
        verdicts = [a_verdict(level, target=target) for target, level in rows]
        memory, changes = later(memory, verdicts, now)
        for change in changes:
            if change.after is None:
                del known[change.tier, change.cause]
            else:
                known[change.tier, change.cause] = change.after.level
        assert known == {title: alert.level for title, alert in memory.alerts.items()}
        assert all(
            alert.level in (Level.WARNING, Level.CRITICAL) for alert in memory.alerts.values()
        )
