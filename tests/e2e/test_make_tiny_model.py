"""The tiny model is the same every time and shaped as its configuration says."""

from __future__ import annotations

import hashlib
import itertools
import json
import struct
from pathlib import Path

import numpy as np

from tests.e2e.make_tiny_model import VOCABULARY, bfloat16, byte_letters, make_tiny_model


def test_the_model_is_the_same_every_time(tmp_path: Path) -> None:
    for name in ("one", "two"):
        make_tiny_model(tmp_path / name)

    digests = {
        hashlib.sha256(b"".join(file.read_bytes() for file in sorted(folder.iterdir()))).hexdigest()
        for folder in tmp_path.iterdir()
    }

    assert len(digests) == 1


def test_the_weights_file_is_whole_and_small(tmp_path: Path) -> None:
    make_tiny_model(tmp_path)

    content = (tmp_path / "model.safetensors").read_bytes()
    (size,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + size])
    spans = sorted(one["data_offsets"] for name, one in header.items() if name != "__metadata__")
    assert spans[0][0] == 0
    assert all(left[1] == right[0] for left, right in itertools.pairwise(spans))
    assert 8 + size + spans[-1][1] == len(content) < 1_000_000
    assert header["model.embed_tokens.weight"]["shape"] == [VOCABULARY, 128]


def test_every_byte_has_a_letter_of_its_own() -> None:
    letters = byte_letters()

    assert len(set(letters)) == 256
    assert letters[ord("a")] == "a"
    assert letters[ord(" ")] == "Ġ"


def test_numbers_are_rounded_to_the_nearest_bfloat16() -> None:
    values = np.asarray([1.0, -2.5, 1.00390625, 3.14159265], dtype=np.float32)

    bits = np.frombuffer(bfloat16(values), dtype="<u2").astype("<u4") << 16

    assert bits.view("<f4").tolist() == [1.0, -2.5, 1.0, 3.140625]
