"""Recorded bodies with the request that belongs to them: what is taken, and what it is worth.

`test_decode_recorded.py` compares every body with an oracle; the table (`table.py`) says what an
operator may count on for each engine and shape.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from collector.ingest.decode import decode
from collector.ingest.records import Limits, Reason
from detectors.entropy import entropy_bounds
from tests.collector.ingest.recorded import Recorded, recorded, replayed, the
from tests.collector.ingest.table import REFUSED, TABLE, Row, chat, decoded, value


@pytest.mark.parametrize(
    "row", TABLE, ids=[f"{place}-{row.name}" for place, row in enumerate(TABLE)]
)
def test_a_body_with_its_request_gives_what_was_added_up_by_hand(row: Row) -> None:
    found = decoded(row.request, the(row.name).response)

    assert (found.accepted, found.rejected) == (1, ())
    assert {str(reason) for reason in found.partial} == row.lacks
    for signal, expected in row.expected.items():
        assert value(found, signal) == pytest.approx(expected, rel=1e-7, nan_ok=True), signal


@pytest.mark.parametrize(("name", "reason"), REFUSED)
def test_what_is_no_answer_is_told_with_its_reason(name: str, reason: Reason) -> None:
    one = Recorded(name, {"prompt": "Hi"}, the(name).body)

    found = decode(one.line(), replayed(), Limits())

    assert (found.accepted, found.batches) == (0, ())
    assert [problem.reason for problem in found.rejected] == [reason]


@pytest.mark.parametrize("name", [name for name, _ in REFUSED if name.endswith("repr.txt")])
def test_python_reprs_in_place_of_lines_are_malformed(name: str) -> None:
    found = decode(the(name).body.encode(), replayed(), Limits())

    assert found.accepted == 0
    assert {str(reason) for reason in found.refused} == {"malformed"}


def test_the_table_and_the_refused_name_every_body_that_people_posted() -> None:
    posted = {one.name for one in recorded_elsewhere()}

    assert posted == {row.name for row in TABLE if row.name in posted} | {
        name for name, _ in REFUSED
    }
    assert len(posted) >= 30


def recorded_elsewhere() -> list[Recorded]:
    return [one for one in recorded() if not one.name.startswith("0.")]


def lists_of(response: Any) -> list[list[float]]:
    chunks = response if isinstance(response, list) else [response]
    found = []
    for logprobs in (choice["logprobs"] for chunk in chunks for choice in chunk["choices"]):
        if "content" in logprobs:
            entries = logprobs["content"]
            found += [[top["logprob"] for top in entry["top_logprobs"]] for entry in entries]
        else:
            found += [list(one.values()) for one in logprobs["top_logprobs"]]
    return found


@pytest.mark.parametrize(
    ("name", "k"),
    [
        ("vllm-0.32.0-rust-chat-logprobs-top3.json", 2),  # the third may be the sampled token
        ("0.32.0-chat-logprobs-top5", 4),
        ("0.32.0-chat-logprobs-top20", 19),
        ("0.8.5.post2-chat-logprobs-top5", 4),
    ],
)
def test_the_entropy_of_chat_is_within_its_bounds_on_average(name: str, k: int) -> None:
    one = the(name)
    found = decoded(chat("Hi", top_logprobs=k + 1), one.response)
    known = np.asarray([sorted(row, reverse=True)[:k] for row in lists_of(one.response)])

    lower, upper = entropy_bounds(known, 3072)

    # an estimate is right on average only: one position may lie outside by what chance gives
    assert float(lower.mean()) - 1.5 <= value(found, "output_entropy_nats")
    assert value(found, "output_entropy_nats") <= float(upper.mean()) + 1.5
