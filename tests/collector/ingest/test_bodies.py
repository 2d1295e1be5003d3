"""Opening bodies: what is read, and what is stopped."""

from __future__ import annotations

import gzip
import pickle
from contextlib import suppress
from dataclasses import replace

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from collector.ingest.bodies import open_body
from collector.ingest.records import BodyError, Limits, Reason

LIMITS = Limits()
LINES = b'{"request": {}, "response": {}}\n' * 1000
PACKED = {
    "": LINES,
    "identity": LINES,
    "gzip": gzip.compress(LINES),
    "GZIP": gzip.compress(LINES[:5000]) + gzip.compress(LINES[5000:]),
    "x-gzip": gzip.compress(LINES),
    "zstd": zstandard.ZstdCompressor().compress(LINES),
    " zstd": zstandard.compress(LINES[:7000]) + zstandard.compress(LINES[7000:]),
}


@pytest.mark.parametrize("encoding", PACKED)
@pytest.mark.parametrize("size", [1, 7, 4096, 10**9])
def test_a_body_is_the_same_in_any_encoding_and_any_pieces(encoding: str, size: int) -> None:
    packed = PACKED[encoding]
    pieces = [packed[i : i + size] for i in range(0, min(len(packed), 40 * size), size)]
    pieces.append(packed[sum(map(len, pieces)) :])

    assert open_body(pieces, encoding, LIMITS) == LINES
    assert open_body(packed, encoding, LIMITS) == LINES


@pytest.mark.parametrize("encoding", ["", "gzip", "zstd"])
def test_an_empty_body_is_empty(encoding: str) -> None:
    assert open_body(b"", encoding, LIMITS) == b""


@pytest.mark.parametrize("encoding", ["", "gzip", "zstd"])
def test_a_body_over_the_limit_is_stopped(encoding: str) -> None:
    limits = replace(LIMITS, max_batch_bytes=len(LINES) - 1)

    with pytest.raises(BodyError, match="smaller batches") as caught:
        open_body(PACKED[encoding], encoding, limits)

    assert caught.value.reason is Reason.TOO_LARGE


@pytest.mark.parametrize(
    ("encoding", "bomb"),
    [
        ("gzip", gzip.compress(bytes(40 << 20))),
        ("zstd", zstandard.ZstdCompressor(level=3).compress(bytes(40 << 20))),
    ],
)
def test_a_bomb_is_stopped_by_its_ratio(encoding: str, bomb: bytes) -> None:
    assert len(bomb) < 50_000

    with pytest.raises(BodyError, match="expands more than 200 times") as caught:
        open_body(bomb, encoding, LIMITS)

    assert caught.value.reason is Reason.BOMB


def test_a_zstd_window_over_the_limit_is_refused() -> None:
    parameters = zstandard.ZstdCompressionParameters.from_level(3, window_log=24)
    packed = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    body = packed.compress(LINES) + packed.flush()  # its head asks for 16 MiB

    with pytest.raises(BodyError, match="window of more than 8388608 bytes"):
        open_body(body, "zstd", LIMITS)


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
@pytest.mark.parametrize("damage", ["cut", "other", "tail"])
def test_a_damaged_body_is_refused_with_what_to_check(encoding: str, damage: str) -> None:
    packed = PACKED[encoding]
    body = {"cut": packed[:-6], "other": b"plain text", "tail": packed + b"garbage"}[damage]

    with pytest.raises(BodyError) as caught:
        open_body(body, encoding, LIMITS)

    assert caught.value.reason is Reason.BAD_COMPRESSION


def test_an_unknown_encoding_is_refused_with_the_known_ones() -> None:
    with pytest.raises(BodyError, match="'br': expected identity, gzip or zstd"):
        open_body(b"", "br", LIMITS)


def test_the_error_survives_the_way_from_a_worker() -> None:
    error = BodyError(Reason.BOMB, "too much")

    copy = pickle.loads(pickle.dumps(error))

    assert (copy.reason, str(copy)) == (Reason.BOMB, "too much")


@given(
    encoding=st.sampled_from(["gzip", "zstd"]),
    place=st.integers(0, 200),
    change=st.binary(max_size=3),
)
def test_no_damage_raises_anything_else(encoding: str, place: int, change: bytes) -> None:
    body = bytearray(PACKED[encoding])
    body[place : place + 2] = change

    with suppress(BodyError):
        assert len(open_body(bytes(body), encoding, LIMITS)) <= LIMITS.max_batch_bytes
