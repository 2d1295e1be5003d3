"""Loops that a real model fell into, by the shrinking of their text."""

from __future__ import annotations

import numpy as np

from collector.ingest.decode import decode
from collector.ingest.records import Limits
from detectors.features import LOOP_COMPRESSION_RATIO
from detectors.records import FloatArray
from tests.collector.ingest.recorded import DEFAULTS, corpus


def column(name: str, signal: str) -> FloatArray:
    (batch,) = decode(corpus(name), DEFAULTS, Limits()).batches
    return batch.columns[signal]


def test_real_loops_shrink_to_almost_nothing_and_other_answers_do_not() -> None:
    loops = column("e-loops", "output_looping") == 1.0
    shrunk = column("e-loops", "output_compression_ratio") < LOOP_COMPRESSION_RATIO
    plain = [
        column(name, "output_compression_ratio") for name in ("a-baseline", "b-json", "c-temp1.5")
    ]

    assert np.count_nonzero(loops & shrunk) == 31  # of 36, as zlib found at 0.15
    assert np.count_nonzero(~loops & shrunk) == 0
    assert min(np.nanmin(ratios) for ratios in plain) > 2 * LOOP_COMPRESSION_RATIO
