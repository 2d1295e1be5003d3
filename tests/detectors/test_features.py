"""Text to numbers."""

from __future__ import annotations

import math
import string

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from detectors.features import (
    READ_BYTES,
    compression_of,
    distinct_gram_ratio,
    looping,
    read_bytes,
    text_features,
    token_ratios,
)


@given(st.text(min_size=1, max_size=300))
def test_every_ratio_is_a_count_over_the_bytes(text: str) -> None:
    data = text.encode("utf-8", "surrogatepass")

    found = text_features(text)

    n = len(data)
    assert found.chars == len(text)
    assert found.digit_ratio == pytest.approx(sum(b in b"0123456789" for b in data) / n)
    assert found.json_ratio == pytest.approx(sum(b in b'{}[]":,' for b in data) / n)
    assert found.whitespace_ratio == pytest.approx(sum(b in b" \t\n\r\v\f" for b in data) / n)
    punctuation = string.punctuation.encode()
    assert found.punctuation_ratio == pytest.approx(sum(b in punctuation for b in data) / n)
    assert found.nonascii_ratio == pytest.approx(sum(b >= 128 for b in data) / n)
    control = sum((b < 32 or b == 127) and b not in b"\t\n\r\v\f" for b in data)
    assert found.nonprintable_ratio == pytest.approx(control / n)
    assert found.compression_ratio == len(zstandard.compress(data, 1)) / n


def test_an_empty_text_has_a_length_and_no_ratios() -> None:
    found = text_features("")

    assert found.chars == 0
    assert math.isnan(found.json_ratio)
    assert math.isnan(found.compression_ratio)


@given(st.binary(min_size=4, max_size=600))
def test_distinct_grams_of_a_short_text_are_exact(data: bytes) -> None:
    grams = [data[i : i + 4] for i in range(len(data) - 3)]

    assert distinct_gram_ratio(data) == len(set(grams)) / len(grams)


@pytest.mark.parametrize("size", [2_000, 16_384, 40_000, 131_072])
@pytest.mark.parametrize("letters", [2, 6, 40])
def test_distinct_grams_of_a_long_text_are_right_within_two_percent(
    size: int, letters: int
) -> None:
    data = np.random.default_rng(size).integers(97, 97 + letters, size, np.uint8).tobytes()
    truth = len({data[i : i + 4] for i in range(size - 3)}) / (size - 3)

    assert distinct_gram_ratio(data) == pytest.approx(truth, rel=0.02)


def test_under_four_bytes_there_are_no_grams() -> None:
    assert math.isnan(distinct_gram_ratio(b"abc"))
    assert math.isnan(compression_of(b""))


@pytest.mark.parametrize(
    "size", [READ_BYTES, READ_BYTES + 1, 2 * READ_BYTES, 2 * READ_BYTES + 1, 500_000]
)
@pytest.mark.parametrize("letter", ["a", "ä", "語", "😀"])
def test_of_a_long_text_both_ends_are_read(size: int, letter: str) -> None:
    text = "<" + letter * (size - 2) + ">"
    whole = text.encode()

    data = read_bytes(text)

    assert data == (
        whole if len(whole) <= 2 * READ_BYTES else whole[:READ_BYTES] + whole[-READ_BYTES:]
    )


def test_a_lone_surrogate_is_no_reason_to_fail() -> None:
    assert text_features("\ud800").chars == 1


def test_json_stands_out_from_prose() -> None:
    prose = text_features("Return the number of items in the list if it is given. " * 5)
    blob = text_features('{"items": [{"id": 1, "name": "x"}, {"id": 2, "name": "y"}]}' * 5)

    assert blob.json_ratio > 0.3
    assert prose.json_ratio < 0.01


def test_a_loop_shows_in_its_last_tokens_only_when_it_is_long_enough() -> None:
    plain = [str(i) for i in range(300)]

    assert token_ratios(plain) == (1.0, 1.0)
    assert token_ratios(plain + ["a", "b"] * 200)[1] < 0.02
    assert token_ratios(["ha"] * 10) == (1 / 7, 1.0)
    assert token_ratios(["ha"] * 30)[1] == pytest.approx(1 / 27)
    assert all(map(math.isnan, token_ratios([])))


def test_looping_needs_repetition_or_a_text_that_vanishes_while_certain() -> None:
    nan = math.nan
    window = np.array([0.2, 0.9, 0.9, 0.9, nan, 0.9])
    compression = np.array([nan, 0.1, 0.1, 0.5, 0.1, nan])
    surprisal = np.array([2.0, 0.01, 0.5, 0.01, 0.01, nan])

    found = looping(window, compression, surprisal)

    np.testing.assert_array_equal(found, [1.0, 1.0, 0.0, 0.0, nan, 0.0])
