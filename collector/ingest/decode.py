"""A body of logged generations to arrays: pure, so that it can run in a worker process.

    body -> `lines` -> `shapes` -> `answers`, `prompts` -> `generations` -> `batches` -> Decoded

Text becomes numbers in `prompts` and `sides` and goes no further; messages of errors name members
and positions, never content.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from collector.ingest.batches import make_batches
from collector.ingest.generations import Generation, LineReader
from collector.ingest.lines import RawLine, raw_lines
from collector.ingest.records import (
    MEBIBYTE,
    BodyError,
    Decoded,
    Defaults,
    Limits,
    LineError,
    Missing,
    Reason,
    Rejected,
)

_DENSE_FROM = MEBIBYTE
_BYTES_PER_OBJECT = 24  # engines' own need 60; a megabyte of `{},{},…` would take thirty in memory


def decode(payload: bytes, defaults: Defaults, limits: Limits) -> Decoded:
    """Read one body: an object, an array of them, or NDJSON.

    Args:
        payload: The plain bytes (see `bodies.open_body`).
        defaults: Arrival, the configured tiers, and what lines need not say.
        limits: Bounds of lines, their number, and what is listed of the refused.

    Returns:
        All of it: accepted plus refused lines are the lines of the body. Never raises for what a
        line holds.

    Raises:
        BodyError: If the body is larger than the limit.
    """
    if len(payload) > limits.max_batch_bytes:
        msg = f"a body of {len(payload)} bytes, expected at most {limits.max_batch_bytes}"
        raise BodyError(Reason.TOO_LARGE, msg)
    reader = LineReader(defaults, limits)
    generations: list[Generation] = []
    problems: list[Rejected] = []
    accepted: set[int] = set()
    for line in raw_lines(payload):
        if len(accepted) + len(problems) >= limits.max_lines:
            msg = f"more than {limits.max_lines} lines; nothing from here on was read"
            problems.append(Rejected(line.number, Reason.TOO_MANY_LINES, msg))
            break
        try:
            found = _read(reader, line, limits)
            if len(generations) + len(found) > limits.max_generations:
                msg = f"more than {limits.max_generations} answers; nothing from here on was taken"
                problems.append(Rejected(line.number, Reason.TOO_MANY_GENERATIONS, msg))
                break
            generations += found
            accepted.add(line.number)
        except LineError as error:
            problems.append(Rejected(line.number, error.reason, error.message))
            if error.reason is Reason.OVERSIZED:
                generations += reader.size_only(line.number, line.data)
    decoded = _decoded(generations, problems, accepted, limits)
    if not reader.repeated:
        return decoded
    return replace(decoded, partial={**decoded.partial, Missing.DUPLICATE: reader.repeated})


def _read(reader: LineReader, line: RawLine, limits: Limits) -> list[Generation]:
    if line.error is not None:
        raise line.error
    size = len(line.data)
    if size > limits.max_line_bytes:
        msg = f"a line of {size} bytes, expected at most {limits.max_line_bytes}"
        raise LineError(Reason.OVERSIZED, msg)
    if size > _DENSE_FROM and _objects(bytes(line.data)) * _BYTES_PER_OBJECT > size:
        msg = f"a line of {size} bytes with more than one object in {_BYTES_PER_OBJECT} of them"
        raise LineError(Reason.OVERSIZED, msg)
    return reader.read(line.number, line.data)


def _objects(data: bytes) -> int:
    return data.count(b"{") + data.count(b"[")


def _decoded(
    generations: list[Generation], problems: list[Rejected], accepted: set[int], limits: Limits
) -> Decoded:
    made = make_batches(generations)
    for number in sorted(made.logits_lines):
        msg = (
            "logprobs above 0: the engine reports logits; "
            "set its --logprobs-mode to raw_logprobs or processed_logprobs"
        )
        problems.append(Rejected(number, Reason.LOGITS, msg))
    problems.sort(key=lambda problem: problem.line)
    return Decoded(
        batches=made.batches,
        accepted=len(accepted - made.logits_lines),
        rejected=tuple(problems[: limits.max_rejected]),
        refused=dict(Counter(str(problem.reason) for problem in problems)),
        partial=dict(made.partial),
        sent=made.sent,
    )
