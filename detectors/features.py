r"""Text to numbers: what is kept of a prompt or an answer when the text itself is dropped.

All ratios are over the UTF-8 bytes that were read (`READ_BYTES` from each end of a long text), so
they cost the same for a prompt of 128 kB and of 16 MB. Nothing here keeps or returns text.

>>> found = text_features('{"a": 1}')
>>> found.chars, round(found.json_ratio, 3), found.digit_ratio
(8, 0.625, 0.125)
"""

from __future__ import annotations

import math
import string
from collections.abc import Sequence
from functools import lru_cache
from threading import get_ident
from typing import NamedTuple, TypeAlias

import numpy as np
import zstandard
from numpy.typing import NDArray

from detectors.records import FloatArray

READ_BYTES = 65_536  # from the beginning, and as many from the end
GRAM = 4
_EXACT_GRAMS = 1024  # up to here sorting is faster than a table
_SMALL_TABLE_BITS = 15
_SMALL_TABLE_GRAMS = 8192
_LARGE_TABLE_BITS = 20
_MULTIPLIER = np.uint32(2_654_435_761)  # Knuth, multiplicative hashing

# Starting values of research on loops; to be tuned on real traffic (docs/statistics.md).
LOOP_WINDOW_TOKENS = 256
LOOP_DISTINCT_RATIO = 0.35
LOOP_COMPRESSION_RATIO = 0.17  # of zstd level 1, which packs loops a tenth worse than zlib
LOOP_SURPRISAL_NATS = 0.05
LOOP_FEWEST_TOKENS = 24

GramKey: TypeAlias = NDArray[np.uint32]
_GRAM_KEY = np.dtype("<u4")

_JSON = b'{}[]":,'
_WHITE = b" \t\n\r\v\f"


def _class_table() -> FloatArray:
    """Return which bytes belong to which ratio, shape (6, 256), in the order of `TextFeatures`."""
    members = (
        bytes(code for code in (*range(32), 127) if code not in _WHITE),
        _WHITE,
        string.digits.encode(),
        string.punctuation.encode(),
        bytes(range(128, 256)),
        _JSON,
    )
    table = np.zeros((len(members), 256))
    for row, codes in enumerate(members):
        table[row, list(codes)] = 1.0
    return table


_CLASSES = _class_table()


class TextFeatures(NamedTuple):  # a tuple: intake takes it into its rows as it is
    """What is known of one text. Ratios are 0 to 1 of the bytes read, NaN where undefined.

    `chars` counts the whole text. `compression_ratio` (zstd level 1, compressed over plain) may
    pass 1 for very short texts. `distinct_ratio` is distinct over all byte 4-grams.
    """

    chars: int
    nonprintable_ratio: float
    whitespace_ratio: float
    digit_ratio: float
    punctuation_ratio: float
    nonascii_ratio: float
    json_ratio: float
    compression_ratio: float
    distinct_ratio: float


def text_features(text: str) -> TextFeatures:
    """Return the features of `text`; of an empty one only the length is defined."""
    data = read_bytes(text)
    if not data:
        nothing = (math.nan,) * 8
        return TextFeatures(0, *nothing)
    values = (len(text), *_shares(data), compression_of(data), distinct_gram_ratio(data))
    return TextFeatures._make(values)


def _shares(data: bytes) -> list[float]:
    """Return the shares of the classes of bytes, in the order of `TextFeatures`."""
    counts = np.bincount(np.frombuffer(data, np.uint8), minlength=256)
    size = len(data)
    return [count / size for count in _CLASSES.dot(counts).tolist()]


def read_bytes(text: str) -> bytes:
    """Return the UTF-8 bytes of `text` that are looked at: all, or the first and last 64 kB."""
    if len(text) <= 2 * READ_BYTES:
        data = text.encode("utf-8", "surrogatepass")
        return data if len(data) <= 2 * READ_BYTES else data[:READ_BYTES] + data[-READ_BYTES:]
    head = text[:READ_BYTES].encode("utf-8", "surrogatepass")
    tail = text[-READ_BYTES:].encode("utf-8", "surrogatepass")
    return head[:READ_BYTES] + tail[-READ_BYTES:]


def compression_of(data: bytes) -> float:
    """Return compressed over plain size under zstd level 1; NaN for no bytes."""
    return len(_packer(get_ident()).compress(data)) / len(data) if data else math.nan


@lru_cache(maxsize=64)
def _packer(_thread: int) -> zstandard.ZstdCompressor:
    """Return a thread's own compressor: making one is slow, and sharing one is not safe."""
    return zstandard.ZstdCompressor(level=1)


def distinct_gram_ratio(data: bytes) -> float:
    """Return distinct over all byte 4-grams, in (0, 1]; NaN under 4 bytes.

    Short texts are counted exactly; longer ones in a hash table corrected for collisions, good to
    about a percent.

    References:
        Whang, Vander-Zanden and Taylor, "A linear-time probabilistic counting algorithm" (1990).
    """
    grams = len(data) - GRAM + 1
    if grams < 1:
        return math.nan
    keys: GramKey = np.ndarray((grams,), _GRAM_KEY, data, strides=(1,))
    if grams <= _EXACT_GRAMS:
        ordered = np.sort(keys)
        return (1 + int(np.count_nonzero(ordered[1:] != ordered[:-1]))) / grams
    bits = _SMALL_TABLE_BITS if grams <= _SMALL_TABLE_GRAMS else _LARGE_TABLE_BITS
    places = keys * _MULTIPLIER
    places >>= np.uint32(32 - bits)
    table = np.zeros(1 << bits, dtype=np.bool_)
    table[places.astype(np.intp)] = True  # numpy's own cast of an index costs twice this
    full = int(np.count_nonzero(table)) / len(table)
    return min(1.0, -len(table) * math.log1p(-full) / grams)


def distinct_token_ratio(tokens: Sequence[str]) -> float:
    """Return distinct over all 4-grams of `tokens`, in (0, 1]; NaN under 4 tokens."""
    grams = len(tokens) - GRAM + 1
    if grams < 1:
        return math.nan
    return len(set(zip(tokens, tokens[1:], tokens[2:], tokens[3:], strict=False))) / grams


def token_ratios(tokens: Sequence[str]) -> tuple[float, float]:
    """Return `distinct_token_ratio` of all tokens, and of the last `LOOP_WINDOW_TOKENS` of them.

    The second is 1 for answers of under `LOOP_FEWEST_TOKENS`, where an honest one ("ha ha ha ha")
    looks like a loop; NaN without tokens.
    """
    whole = distinct_token_ratio(tokens)
    if len(tokens) < LOOP_FEWEST_TOKENS:
        return whole, 1.0 if tokens else math.nan
    if len(tokens) <= LOOP_WINDOW_TOKENS:
        return whole, whole
    return whole, distinct_token_ratio(tokens[-LOOP_WINDOW_TOKENS:])


def looping(
    window_ratio: FloatArray, compression_ratio: FloatArray, tail_surprisal: FloatArray
) -> FloatArray:
    """Return 1.0 for answers that surely repeat themselves, 0.0 for others, NaN where unknown.

    Either few distinct 4-grams among the last tokens, or a text that shrinks to almost nothing
    while every one of them was nearly certain (loops are low-entropy).

    Args:
        window_ratio: Second of `token_ratios` of each answer, shape ``(n,)``; NaN without tokens.
        compression_ratio: Of each answer's text, shape ``(n,)``; NaN without text.
        tail_surprisal: Mean -ln p over the last `LOOP_WINDOW_TOKENS` tokens, nats, shape ``(n,)``.
    """
    repeats = window_ratio < LOOP_DISTINCT_RATIO
    shrinks = compression_ratio < LOOP_COMPRESSION_RATIO
    shrinks &= tail_surprisal < LOOP_SURPRISAL_NATS
    return np.where(np.isnan(window_ratio), np.nan, (repeats | shrinks).astype(np.float64))
