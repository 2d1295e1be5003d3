"""Counts of a tick as bytes: sparse, compressed, with the name of each signal's grid.

A full tick has about 25 signals of some 250 bins, nearly all zero. Layout: one byte of version,
then zstd over msgpack of ``{signal: [grid, indices as little-endian u2, counts as u4 or u8]}``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
import numpy as np
import zstandard

from collector.store.session import StoreError
from detectors.records import IntArray
from detectors.signals import SIGNALS, grid_of

_VERSION: Final = b"\x01"
_LARGEST: Final = 16 * 1024 * 1024  # unpacked bytes of one row; a full one has under 100 kB


def pack(counts: Mapping[str, IntArray]) -> bytes:
    """Return `counts` (signal -> integers of shape (bins,) on the signal's grid) as bytes."""
    sparse: dict[str, tuple[str, bytes, bytes]] = {}
    for signal, dense in counts.items():
        places = np.flatnonzero(dense)
        values = dense[places]
        width = "<u4" if values.max(initial=0) < 2**32 else "<u8"
        sparse[signal] = (
            grid_of(signal).name,
            places.astype("<u2").tobytes(),
            values.astype(width).tobytes(),
        )
    packed = zstandard.ZstdCompressor(level=3).compress(msgspec.msgpack.encode(sparse))
    return _VERSION + packed


def unpack(data: bytes) -> dict[str, IntArray]:
    """Read back what `pack` wrote.

    A signal that this build does not have, or counts on another grid, is left out: its counts
    could not be added to today's.

    Raises:
        StoreError: If the bytes are of another version or damaged.
    """
    if data[:1] != _VERSION:
        msg = f"counts of version {data[:1].hex() or 'none'}, this build reads {_VERSION.hex()}"
        raise StoreError(msg)
    try:
        plain = zstandard.ZstdDecompressor().decompress(data[1:], max_output_size=_LARGEST)
        sparse = msgspec.msgpack.decode(plain, type=dict[str, tuple[str, bytes, bytes]])
    except (zstandard.ZstdError, msgspec.MsgspecError) as error:
        msg = f"counts cannot be read back: {error}"
        raise StoreError(msg) from error
    return {
        signal: _dense(signal, places, values)
        for signal, (grid, places, values) in sparse.items()
        if signal in SIGNALS and SIGNALS[signal].grid is not None and grid_of(signal).name == grid
    }


def _dense(signal: str, places: bytes, values: bytes) -> IntArray:
    dense = np.zeros(grid_of(signal).bins, dtype=np.int64)
    where = np.frombuffer(places, dtype="<u2")
    wide = len(values) == 8 * len(where)
    dense[where] = np.frombuffer(values, dtype="<u8" if wide else "<u4")
    return dense
