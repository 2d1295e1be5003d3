"""Changes that began together are one event."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from detectors.sequential.grouping import NAMED, TOGETHER, Change, event_words, grouped

changes = st.lists(st.tuples(st.integers(0, 40), st.floats(0, 100)), max_size=30).map(
    lambda rows: [Change(n, f"s{n}", onset, nats) for n, (onset, nats) in enumerate(rows)]
)


@given(changes)
def test_every_change_is_in_one_event_that_spans_two_ticks_at_most(some: list[Change]) -> None:
    events = grouped(some)

    assert sorted(c.row for event in events for c in event) == [c.row for c in some]
    for event in events:
        onsets = [change.onset for change in event]
        assert max(onsets) - min(onsets) <= TOGETHER
        assert event[0].nats == max(change.nats for change in event)
    assert events == grouped(some[::-1])


def test_a_long_event_names_the_strongest_and_counts_the_rest() -> None:
    event = tuple(Change(row, f"s{row}", 3, 100.0 - row) for row in range(NAMED + 3))

    words = event_words(event, 0)

    assert words == "leads 7 others since then: s1, s2, s3, s4, s5 and 2 more"
    assert event_words(event, 6) == "follows s0"
    assert event_words(event[:1], 0) == ""


def test_of_two_that_earned_as_much_the_whole_leads_its_part() -> None:
    part = Change(0, "prompt_tokens of segment:a", 3, 9.0)
    whole = Change(1, "prompt_tokens", 4, 9.0, wide=True)

    ((first, second),) = grouped([part, whole])

    assert (first, second) == (whole, part)
