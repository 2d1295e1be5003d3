"""Opens a request body: gzip or zstd, streamed, and stopped before it costs memory."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator

import zstandard

from collector.ingest.records import BodyError, Limits, Reason

_PIECE = 256 * 1024
_SIP = 1024
_RATIO_FROM = 1 << 20  # tiny bodies may shrink any amount
_GZIP = 16 + zlib.MAX_WBITS


def open_body(chunks: bytes | Iterable[bytes], encoding: str, limits: Limits) -> bytes:
    """Return the plain bytes of a body.

    Args:
        chunks: The body as it came, whole or in pieces.
        encoding: The content-encoding: empty or `identity`, `gzip`, or `zstd`.
        limits: Its batch size, expansion ratio and window are kept.

    Raises:
        BodyError: With reason `too_large`, `bomb`, `bad_compression` or `unknown_encoding`.
    """
    pieces = iter((chunks,)) if isinstance(chunks, bytes) else iter(chunks)
    name = encoding.strip().lower()
    if name in {"", "identity"}:
        if isinstance(chunks, bytes) and len(chunks) <= limits.max_batch_bytes:
            return chunks  # as it is: megabytes that need not be copied twice
        return _joined(_plain(pieces), limits)
    if name in {"gzip", "x-gzip"}:
        return _joined(_gunzip(pieces), limits)
    if name == "zstd":
        return _joined(_unzstd(pieces, limits), limits)
    msg = f"content-encoding {name[:40]!r}: expected identity, gzip or zstd"
    raise BodyError(Reason.UNKNOWN_ENCODING, msg)


def _joined(pieces: Iterator[tuple[bytes, int]], limits: Limits) -> bytes:
    """Join pieces, each with the number of bytes of the body read up to it, within the limits."""
    plain = bytearray()
    for piece, taken in pieces:
        plain += piece
        if len(plain) > limits.max_batch_bytes:
            msg = (
                f"the body holds more than {limits.max_batch_bytes} bytes; "
                "send it in smaller batches"
            )
            raise BodyError(Reason.TOO_LARGE, msg)
        if len(plain) > max(_RATIO_FROM, taken * limits.max_expansion_ratio):
            msg = (
                f"the body expands more than {limits.max_expansion_ratio:g} times, as logged "
                "generations never do; send it plain"
            )
            raise BodyError(Reason.BOMB, msg)
    return bytes(plain)


def _plain(pieces: Iterator[bytes]) -> Iterator[tuple[bytes, int]]:
    taken = 0
    for piece in pieces:
        taken += len(piece)
        yield piece, taken


def _gunzip(pieces: Iterator[bytes]) -> Iterator[tuple[bytes, int]]:
    """Yield plain pieces of at most `_PIECE` bytes; members may follow one another."""
    member = zlib.decompressobj(_GZIP)
    taken = 0
    started = False
    for piece in pieces:
        taken += len(piece)
        data = piece
        while data:
            if member.eof:
                member, started = zlib.decompressobj(_GZIP), False
            try:
                plain = member.decompress(data, _PIECE)
            except zlib.error as error:
                msg = "the body is not valid gzip; check the content-encoding header"
                raise BodyError(Reason.BAD_COMPRESSION, msg) from error
            started = True
            data = member.unused_data if member.eof else member.unconsumed_tail
            yield plain, taken
    if started and not member.eof:
        msg = "the gzip body ends early; it was cut on the way"
        raise BodyError(Reason.BAD_COMPRESSION, msg)


def _unzstd(pieces: Iterator[bytes], limits: Limits) -> Iterator[tuple[bytes, int]]:
    """Yield plain pieces; frames may follow one another."""
    opener = zstandard.ZstdDecompressor(max_window_size=limits.max_window_bytes)
    frame = opener.decompressobj()
    taken = 0
    started = False
    for data in _small(pieces):
        taken += len(data)
        left = data
        while left:
            if frame.eof:
                frame, started = opener.decompressobj(), False
            try:
                plain = frame.decompress(left)
            except zstandard.ZstdError as error:
                msg = (
                    "the body is not valid zstd, or needs a window of more than "
                    f"{limits.max_window_bytes} bytes; check the content-encoding, or compress less"
                )
                raise BodyError(Reason.BAD_COMPRESSION, msg) from error
            started = True
            left = frame.unused_data if frame.eof else b""
            yield plain, taken
    if started and not frame.eof:
        msg = "the zstd body ends early; it was cut on the way"
        raise BodyError(Reason.BAD_COMPRESSION, msg)


def _small(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Cut pieces so small that one cannot expand beyond 32 MiB (128 kiB for 4 bytes at worst)."""
    for piece in pieces:
        for start in range(0, len(piece), _SIP):
            yield piece[start : start + _SIP]
