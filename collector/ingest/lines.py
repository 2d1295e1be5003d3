"""Cuts a body into lines: one object, an array of objects, or one object a line (NDJSON)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from collector.ingest.records import LineError, Reason

_INK = re.compile(rb"[^ \t\n\r]")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_ENDS_AT = re.compile(r"trailing characters \(byte (\d+)\)$")


@dataclass(frozen=True, slots=True)
class RawLine:
    """One line as bytes, or why there is none; `number` counts from 1 (blank lines count)."""

    number: int
    data: memoryview | bytes
    error: LineError | None = None


def raw_lines(payload: bytes) -> Iterator[RawLine]:
    """Yield the lines of `payload`, lazily, so that a body of millions of them costs nothing.

    An array is cut element by element; what follows a malformed element is lost and reported as
    one line. Blank lines of NDJSON are left out.
    """
    body = payload.removeprefix(_BYTE_ORDER_MARK)
    start = _skip_space(body, 0)
    if start == len(body):
        return
    if body[start : start + 1] == b"[":
        yield from _elements(body, start + 1)
    elif _is_one_object(body, start):
        yield RawLine(1, body)
    else:
        yield from _separate(body)


def _is_one_object(body: bytes, start: int) -> bool:
    """Tell one object, perhaps spread over many lines, from NDJSON."""
    end = body.find(b"\n", start)
    if end < 0 or _skip_space(body, end) == len(body):
        return True
    if _value_error(body[start:end]) is None:
        return False  # a first line that is complete: more follow
    return _value_error(body) is None


def _separate(body: bytes) -> Iterator[RawLine]:
    view = memoryview(body)
    number, end = 1, 0
    while (start := _skip_space(body, end)) < len(body):
        number += body.count(b"\n", end, start)
        end = body.find(b"\n", start)
        end = len(body) if end < 0 else end
        yield RawLine(number, view[start:end])


def _elements(body: bytes, start: int) -> Iterator[RawLine]:
    """Cut an array; the decoder itself says where an element ends."""
    view = memoryview(body)
    place, number = _skip_space(body, start), 0
    if body[place : place + 1] == b"]":
        return
    while True:
        number += 1
        error = _value_error(view[place:])
        found = _ENDS_AT.search(str(error)) if error is not None else None
        if found is None:
            problem = "the array is not closed" if error is None else "no JSON from here on"
            yield _malformed(number, f"element {number}: {problem}")
            return
        end = place + int(found[1]) - 1  # the decoder has taken the byte that it names
        after = body[end : end + 1]
        if after not in {b",", b"]"}:
            yield _malformed(number, f"element {number}: expected a comma or the array's end")
            return
        yield RawLine(number, view[place:end])
        place = _skip_space(body, end + 1)
        if after == b"]":
            if place < len(body):
                yield _malformed(number + 1, "more after the array's end; expected one array")
            return


def _malformed(number: int, message: str) -> RawLine:
    return RawLine(number, b"", LineError(Reason.MALFORMED, message))


def _value_error(data: bytes | memoryview) -> Exception | None:
    """Return what the decoder says against `data` as exactly one JSON value, None if nothing."""
    try:
        msgspec.json.decode(data, type=msgspec.Raw)
    except (msgspec.DecodeError, RecursionError) as error:
        return error
    return None


def _skip_space(body: bytes, start: int) -> int:
    found = _INK.search(body, start)
    return len(body) if found is None else found.start()
