"""Regular expressions of the configuration: what is taken, what is refused, what it may cost."""

from __future__ import annotations

from contextlib import suppress
from time import perf_counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.sources.bounded_patterns import MOST_LETTERS, bounded, compile_bounded


@pytest.mark.parametrize(
    ("text", "written"),
    [
        (r"failed .* after \d+", r"failed .{0,128} after \d{1,128}"),
        (r"(?i)quota (?:left|gone)?", r"(?i)quota (?:left|gone)?"),
        (r"(?P<code>\d{3}) error", r"(?P<code>\d{3,3}) error"),
        (r"a{2,}[\]*+]b\+", r"a{2,128}[\]*+]b\+"),
        (r"\(x\)\{2\}", r"\(x\)\{2\}"),
    ],
)
def test_repetitions_are_bounded_and_the_rest_stays(text: str, written: str) -> None:
    assert bounded(text) == written


@pytest.mark.parametrize(
    "text",
    [
        "(a+)+b",
        "(a|ab)*c",
        "((a?))*",
        "(?:a{1,3}){2}",
        ".*.*.*x",
        "a{1,500}",
        r"(x)\1",
        "(?=x)y",
        "(?<!x)y",
        "x+?",
        "x*+",
        "x**",
        "a{3,2}",
        "(",
        ")",
        "[a",
        "*",
        "x" * (MOST_LETTERS + 1),
        "(a|b)" * 13,
        "a?" * 15,
        "\\",
        "[[a]",
        "[a&&b]",
    ],
)
def test_what_could_take_for_ever_or_is_not_understood_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w+ \w+"):
        compile_bounded(text)


@pytest.mark.parametrize("text", [".*.*x", r"\w+ \w+$", r"(\d+|x) y*z", "a?a?a?a?a?aaaaaab"])
def test_the_worst_line_costs_a_fraction_of_a_second(text: str) -> None:
    pattern = compile_bounded(text)

    before = perf_counter()
    for letter in ("a", "1", " ", "y"):
        pattern.search(letter * 2048)

    assert perf_counter() - before < 2.0


@given(st.text(alphabet="ab.*+?{}()[]|\\^$1,:<P=!x-&", max_size=20))
def test_any_text_is_taken_or_refused_with_words(text: str) -> None:
    with suppress(ValueError):
        compile_bounded(text).search("a" * 100)
