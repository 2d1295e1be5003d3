"""Lines meet by the strongest key both files share, in any order, within bounds."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from collector.shadow.joining import Join, KeyKind, Pair
from collector.shadow.records import RawLine, ReadLimits, Refusal
from tests.collector.shadow.lines import completion, scored, to_line


def join(
    reference: Sequence[bytes], candidate: Sequence[bytes], limits: ReadLimits | None = None
) -> tuple[Join, list[Pair]]:
    sides = (
        [RawLine(n, line) for n, line in enumerate(side, 1)] for side in (reference, candidate)
    )
    left, right = (iter(side) for side in sides)
    made = Join(left, right, limits or ReadLimits())
    return made, list(made.pairs())


def numbers(pairs: list[Pair]) -> list[tuple[int, int]]:
    return sorted((pair.reference.number, pair.candidate.number) for pair in pairs)


def line(prompt: str = "p", **members: object) -> bytes:
    return completion(["a"], [-1], prompt=prompt, **members)  # type: ignore[arg-type]  # members


def test_ids_join_lines_in_any_order_and_i_is_an_id() -> None:
    made, pairs = join(
        [line(id="a"), line(id=7), line(id="c")], [line(id="c"), line(id="x"), line(i=7)]
    )

    assert made.kind is KeyKind.ID
    assert numbers(pairs) == [(2, 3), (3, 1)]
    assert [side.left_over for side in made.counts] == [1, 1]
    assert [side.joined for side in made.counts] == [2, 2]


@pytest.mark.parametrize("name", ["x-request-id", "x_request_id", "request_id", "custom_id"])
def test_the_gateway_s_id_joins_where_the_logger_s_ids_are_its_own(name: str) -> None:
    left = [line(id=f"l{n}", **{name: f"r{n}"}) for n in range(3)]
    right = [line(id=f"other{n}", **{"x-request-id": f"r{n}"}) for n in (2, 0, 1)]
    made, pairs = join(left, right)

    assert made.kind is KeyKind.REQUEST_ID
    assert numbers(pairs) == [(1, 2), (2, 3), (3, 1)]


def test_the_text_joins_where_nothing_else_does_and_equal_texts_in_their_order() -> None:
    left = [line("one", id="a"), line("two", id="b"), line("two", id="c")]
    right = [line("two", id="d"), line("two", id="e"), line("one", id="f")]
    made, pairs = join(left, right)

    assert made.kind is KeyKind.TEXT
    assert numbers(pairs) == [(1, 3), (2, 1), (3, 2)]
    assert all(pair.same_request for pair in pairs)


def test_chance_meetings_of_a_stronger_key_do_not_win() -> None:
    left = [line(f"p{n}", id=n) for n in range(20)]
    right = [line(f"p{n}", id=n + 19) for n in range(20)]
    made, pairs = join(left, right)

    assert made.kind is KeyKind.TEXT
    assert len(pairs) == 20


def test_lines_joined_by_id_tell_whether_the_request_is_the_same() -> None:
    _, pairs = join(
        [line("p", id=1), line("p", id=2), line("q", id=3)],
        [line("p", id=1), line("z", id=2), scored(["a"], [-1], id=3)],
    )

    assert {pair.reference.number: pair.same_request for pair in pairs} == {
        1: True,
        2: False,
        3: None,
    }


def test_the_form_of_the_same_request_does_not_matter() -> None:
    left = to_line({"request": {"messages": [{"role": "user", "content": "é"}]}})
    right = b'{"request": {"messages":[{"content":"\\u00e9",  "role":"user"}]}}'
    made, pairs = join([left], [right])

    assert made.kind is KeyKind.TEXT
    assert numbers(pairs) == [(1, 1)]


def test_an_id_that_comes_twice_is_counted_and_not_joined_again() -> None:
    made, pairs = join([line(id=1), line(id=1), line(id=2)], [line(id=2), line(id=1)])

    assert len(pairs) == 2
    assert made.counts[0].refused == {Refusal.TWICE: 1}


def test_files_without_any_meeting_join_by_what_most_lines_have() -> None:
    made, pairs = join(
        [line("a", request_id="1")], [line("b", request_id="2"), line("c"), scored(["a"], [-1])]
    )

    assert made.kind is KeyKind.TEXT
    assert pairs == []
    assert made.counts[1].refused == {Refusal.NO_KEY: 1}


def test_lines_that_wait_too_long_are_dropped_and_counted() -> None:
    left = [line(f"p{n}", id=n) for n in range(40)]
    right = list(reversed(left))
    limits = ReadLimits(waiting_lines=10, sample_lines=4)
    made, pairs = join(left, right, limits)

    dropped = sum(side.dropped for side in made.counts)
    assert dropped > 0
    assert 2 * len(pairs) + dropped + sum(side.left_over for side in made.counts) == 80
    assert sum(side.left_over for side in made.counts) <= 10


def test_bytes_that_wait_are_bounded_too() -> None:
    left = [line("x" * 1000, id=n) for n in range(30)]
    made, pairs = join(left, [line(id=99)], ReadLimits(waiting_bytes=5_000, sample_bytes=2_000))

    assert pairs == []
    assert made.counts[0].left_over < 5
    assert made.counts[0].dropped + made.counts[0].left_over == 30


def test_files_in_one_order_hold_next_to_nothing() -> None:
    lines = [line(id=n) for n in range(500)]
    made, pairs = join(lines, lines, ReadLimits(waiting_lines=2, sample_lines=5))

    assert len(pairs) == 500
    assert [side.dropped for side in made.counts] == [0, 0]


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b"nothing",
        b"[1]",
        b'{"id": {}}',
        b'{"prompt": "\xff"}',
        b"[" * 100_000,
        b'{"id":"\\ud800"}',
    ],
)
def test_a_broken_line_is_counted_by_its_number(data: bytes) -> None:
    made, pairs = join([data, line(id=1)], [line(id=1)])

    assert numbers(pairs) == [(2, 1)]
    assert made.counts[0].refused == {Refusal.MALFORMED: 1}
    assert made.counts[0].examples == [(1, "not a JSON object with members as expected")]


def test_a_large_line_of_brackets_is_refused_unread() -> None:
    dense = b'{"id":1,"prompt":[' + b"[]," * 400_000 + b"1]}"
    made, pairs = join([dense], [line(id=1)])

    assert pairs == []
    assert made.counts[0].refused == {Refusal.OVERSIZED: 1}


def test_only_the_first_broken_lines_are_told() -> None:
    made, _ = join([b"{"] * 50, [line(id=1)])

    assert [number for number, _ in made.counts[0].examples] == [1, 2, 3, 4, 5]
    assert made.counts[0].refused.total() == 50
