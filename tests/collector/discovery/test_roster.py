"""Who is a target: what was found, what blinked, and what was never ready."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from collector.discovery.found import Found
from collector.discovery.roster import Roster


def at(id_: str, *, ready: bool = True, url: str = "") -> Found:
    return Found(id_, url or f"http://{id_}:1", ready=ready)


def test_a_target_that_vanishes_stays_for_a_while() -> None:
    roster = Roster(vanish_after_seconds=60.0)
    roster.update([at("a"), at("b")], 0.0)

    blinked = roster.update([at("a")], 60.0)
    gone = roster.update([at("a")], 60.1)

    assert not blinked
    assert gone
    assert [it.id for it in roster.targets] == ["a"]


def test_a_target_enters_when_it_is_ready_and_stays_when_it_is_not() -> None:
    roster = Roster(vanish_after_seconds=60.0)

    starting = roster.update([at("a", ready=False)], 0.0)
    ready = roster.update([at("a")], 10.0)
    overloaded = roster.update([at("a", ready=False)], 100.0)

    assert (starting, ready, overloaded) == (False, True, False)
    assert [it.id for it in roster.targets] == ["a"]


def test_a_target_that_moved_is_a_change() -> None:
    roster = Roster(vanish_after_seconds=60.0)
    roster.update([at("a")], 0.0)

    assert roster.update([at("a", url="http://other:1")], 1.0)
    assert roster.targets[0].url == "http://other:1"


def test_a_target_whose_address_went_to_another_is_gone_at_once() -> None:
    roster = Roster(vanish_after_seconds=60.0)
    roster.update([at("pod-1", url="http://10.1.0.1:8000"), at("pod-2")], 0.0)

    roster.update([at("pod-3", url="http://10.1.0.1:8000")], 10.0)

    assert [it.id for it in roster.targets] == ["pod-2", "pod-3"]


def test_an_address_that_nobody_is_ready_at_takes_nothing_from_who_had_it() -> None:
    roster = Roster(vanish_after_seconds=60.0)
    roster.update([at("pod-1", url="http://10.1.0.1:8000")], 0.0)

    roster.update([at("pod-2", url="http://10.1.0.1:8000", ready=False)], 10.0)

    assert [it.id for it in roster.targets] == ["pod-1"]


def test_more_targets_than_the_bound_are_refused_and_counted() -> None:
    roster = Roster(vanish_after_seconds=60.0, most=2)

    roster.update([at("a"), at("b"), at("c"), at("d")], 0.0)

    assert [it.id for it in roster.targets] == ["a", "b"]
    assert roster.refused == 2


def test_targets_known_before_a_restart_are_there_at_once_and_vanish_like_others() -> None:
    roster = Roster(vanish_after_seconds=60.0)

    roster.restore([at("a")], 0.0)
    before = roster.targets
    roster.update([], 61.0)

    assert [it.id for it in before] == ["a"]
    assert roster.targets == ()


@given(st.lists(st.tuples(st.floats(0, 30), st.sets(st.sampled_from("abcde"))), max_size=20))
def test_whoever_was_listed_within_the_ttl_is_a_target(
    looks: list[tuple[float, set[str]]],
) -> None:
    roster, moment, last = Roster(vanish_after_seconds=60.0), 0.0, dict[str, float]()

    for wait, listed in looks:
        moment += wait
        roster.update([at(it) for it in listed], moment)
        last |= dict.fromkeys(listed, moment)

    expected = {it for it, seen in last.items() if moment - seen <= 60.0}
    assert {it.id for it in roster.targets} == expected
