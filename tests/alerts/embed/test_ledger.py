"""What a receiver remembers: the highest numbers in any order, documents, leases."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alerts.embed.receiver import Ledger
from tests.alerts.embed.door import Clock, a_document, message

EVENTS = st.tuples(
    st.integers(min_value=1, max_value=3),
    st.integers(min_value=1, max_value=20),
)


@settings(deadline=None)  # the machine may be busy
@given(st.lists(EVENTS, unique=True, min_size=1, max_size=12).flatmap(st.permutations), st.data())
def test_any_order_loss_or_repetition_leaves_the_highest_numbers(
    events: list[tuple[int, int]], data: st.DataObject
) -> None:
    """I4, and I2: silence for a lease lets everything in."""
    clock = Clock()
    ledger = Ledger(clock)
    lost = data.draw(st.sets(st.sampled_from(events), max_size=len(events) - 1))
    arrived = [event for event in events if event not in lost]
    repeated = arrived + data.draw(st.lists(st.sampled_from(arrived), max_size=6))

    for epoch, seq in repeated:
        ledger.apply(message(seq, (epoch * 20 + seq) / 100, epoch=epoch, lease_seconds=60))

    epoch, seq = max(arrived)
    held = ledger.of_tier()
    assert (held.epoch, held.seq, held.ratio) == (epoch, seq, (epoch * 20 + seq) / 100)
    clock.at += 60
    assert ledger.of_tier().ratio == 1.0


def test_a_document_replaces_all_that_its_controller_said() -> None:
    ledger = Ledger(Clock())
    ledger.apply(message(1, 0.0, target="gone"))

    assert ledger.take(a_document(3, 0.5), "chat")
    assert not ledger.take(a_document(2, 1.0), "chat")

    assert {name: held.ratio for name, held in ledger.strictest().items()} == {"": 0.5, "a": 0.5}


def test_a_document_that_is_not_renewed_lets_everything_in_after_its_ttl() -> None:
    clock = Clock()
    ledger = Ledger(clock)
    ledger.take(a_document(3, 0.5, ttl=40), "chat")

    clock.at += 40

    assert ledger.of_tier().ratio == 1.0


@pytest.mark.parametrize("document", [{}, {"epoch": 1, "rev": 2, "tiers": 7, "targets": [4]}])
def test_a_strange_document_withholds_nothing(document: dict[str, Any]) -> None:
    ledger = Ledger(Clock())

    ledger.take(document, "chat")

    assert ledger.of_tier().ratio == 1.0
