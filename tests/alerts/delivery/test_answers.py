"""What gateways may answer, and what is made of it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alerts.delivery.answers import Answer, Outcome, meaning


def said(**members: object) -> bytes:
    return json.dumps(members).encode()


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (Answer(200, said(applied=True, epoch=7, seq=5)), Outcome.CONFIRMED),
        (Answer(200, said(applied=True)), Outcome.CONFIRMED),
        (Answer(200, said(applied=True, epoch=7, seq=4)), Outcome.DELIVERED),
        (Answer(200, said(applied=False)), Outcome.DELIVERED),
        (Answer(200), Outcome.DELIVERED),
        (Answer(200, b"OK"), Outcome.DELIVERED),
        (Answer(202, said(applied=True, epoch=7, seq=5)), Outcome.DELIVERED),
        (Answer(204), Outcome.DELIVERED),
        (Answer(409, said(current={"epoch": 7, "seq": 9})), Outcome.SUPERSEDED),
        (Answer(409), Outcome.SUPERSEDED),
        (Answer(409, said(current={"epoch": 8, "seq": 1})), Outcome.DEPOSED),
        (Answer(408), Outcome.RETRY),
        (Answer(425), Outcome.RETRY),
        (Answer(429), Outcome.RETRY),
        (Answer(500), Outcome.RETRY),
        (Answer(503), Outcome.RETRY),
        (Answer(301), Outcome.MISCONFIGURED),
        (Answer(401), Outcome.MISCONFIGURED),
        (Answer(404), Outcome.MISCONFIGURED),
        (Answer(410), Outcome.MISCONFIGURED),
    ],
)
def test_each_answer_has_its_meaning(answer: Answer, outcome: Outcome) -> None:
    assert meaning(answer, epoch=7, seq=5).outcome is outcome


def test_a_gateway_that_asks_to_wait_is_heard() -> None:
    assert meaning(Answer(503, retry_after="7"), epoch=1, seq=1).wait_seconds == 7
    assert meaning(Answer(503, retry_after="soon"), epoch=1, seq=1).wait_seconds is None


@settings(deadline=None)  # the machine may be busy
@given(st.integers(min_value=200, max_value=599), st.binary(), st.text())
def test_no_answer_makes_us_raise(status: int, body: bytes, retry_after: str) -> None:
    assert meaning(Answer(status, body, retry_after), epoch=1, seq=1).outcome in Outcome
