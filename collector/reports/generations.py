"""Logged generations (the lines of the intake): the request signals are the features."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime

import msgspec

from collector.ingest.decode import decode
from collector.ingest.records import BodyError, Defaults, Limits, TierNames
from collector.reports.lines import Lines
from collector.reports.records import ColumnBuilder, Table, TableError
from detectors.ks import NOT_BY_DEFAULT

_TIER = "file"
_BODY_BYTES = 4 << 20
_MOST_LINES = 1000


class _Beginning(msgspec.Struct):
    request: dict[str, msgspec.Raw]
    response: msgspec.Raw


class _Named(msgspec.Struct):
    tier: str | None = None


def is_generation(line: bytes) -> bool:
    """Whether a line is a logged generation: it has a request and a response."""
    try:
        msgspec.json.decode(line, type=_Beginning)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def open_generations(lines: Lines, *, now: datetime) -> Table:
    """Read logged generations; their text becomes numbers at once and is not kept.

    Raises:
        TableError: If no line of the file can be taken.
    """
    total = lines.count()
    stride = max(-(-total // lines.bounds.rows), 1)
    builders: dict[str, ColumnBuilder] = {}
    refused: Counter[str] = Counter()
    rows = 0
    for first, tiers, body in _bodies(lines, stride):
        names = dict.fromkeys((_TIER, *tiers), TierNames())
        defaults = Defaults(arrival=now, tiers=names, tier=_TIER, live=False)
        try:
            found = decode(body, defaults, Limits(max_batch_bytes=2 * lines.bounds.line_bytes))
        except BodyError as error:
            msg = f"{lines.path}: from line {first}: {error}"
            raise TableError(msg) from error
        refused.update(found.refused)
        for batch in found.batches:
            rows += batch.size
            for signal, values in batch.columns.items():
                builders.setdefault(signal, ColumnBuilder()).take_numbers(values)
    if rows == 0:
        msg = (
            f"{lines.path}: none of {total:,} lines is a generation that can be read"
            f"{_refused_words(refused)}; log request and response, one generation a line"
        )
        raise TableError(msg)
    for builder in builders.values():
        builder.take_missing(rows - builder.rows)
    columns = {signal: builder.built() for signal, builder in builders.items()}
    said = _refused_words(refused)
    return Table(
        path=lines.path,
        rows=rows * stride,
        stride=stride,
        names=tuple(name for name, column in columns.items() if column.present),
        read=columns.__getitem__,
        remarks=(f"lines left out{said}",) if said else (),
        only_named=NOT_BY_DEFAULT,
    )


def _bodies(lines: Lines, stride: int) -> Iterator[tuple[int, set[str], bytes]]:
    """Yield lines in bodies: the first line's number, the tiers that are named, the bytes."""
    tier = msgspec.json.Decoder(_Named)
    first, tiers, held, size = 0, set[str](), list[bytes](), 0
    for place, (number, line) in enumerate(lines.all()):
        if place % stride:
            continue
        if held and (size + len(line) > _BODY_BYTES or len(held) == _MOST_LINES):
            yield first, tiers, b"".join(held)
            tiers, held, size = set(), [], 0
        first = first if held else number
        held.append(line if line.endswith(b"\n") else line + b"\n")
        size += len(line)
        try:
            tiers |= {tier.decode(line).tier or _TIER}
        except (msgspec.DecodeError, RecursionError):
            continue  # the intake says what is wrong with it
    if held:
        yield first, tiers, b"".join(held)


def _refused_words(refused: Counter[str]) -> str:
    counted = (f"{count:,} {reason.replace('_', ' ')}" for reason, count in refused.most_common())
    return ": " + ", ".join(counted) if refused else ""
