"""Looks through lines of a log: which known troubles they tell, how often, with what amounts.

Only codes and numbers come out of here, no text of a line.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from collector.sources.logs.amounts import TorchOom, torch_oom
from collector.sources.logs.patterns import (
    ENGINE,
    EVENTS,
    FACTS,
    LAUNCHER_BEGINS,
    LAUNCHER_FACT,
    PHASES,
    TORCH_OOM,
    USER_TEXT,
    XID,
    LogPattern,
    xid_code,
)
from collector.sources.logs.statistics import NEEDLES, Statistics, statistics

OWN_LINE_CHARACTERS: Final = 2048  # of a line that patterns of the configuration see
_SLOW_SECONDS: Final = 0.1  # of one pattern on one line; a sane one takes microseconds
_PATIENCE_SECONDS: Final = 0.5  # of all of them in one read
_ANSI: Final = re.compile(rb"\x1b\[[0-9;]{0,16}[A-Za-z]")
_LAUNCHER_BYTES: Final = 16_384  # of TGI's argument record, kept until it is whole
_MOST_FACTS: Final = 64  # of one kind on one line; a server states one, or one an engine


@dataclass(frozen=True, slots=True)
class Fact:
    """Numbers that a server states of itself; `starting` is set where it begins or is ready."""

    engine: str = ""
    numbers: Mapping[str, float] = field(default_factory=dict)
    starting: bool | None = None


@dataclass(slots=True)
class Hits:
    """What was found in some lines: counts by code, the last error of torch, facts in order.

    `statistics` holds the last record of each engine.
    """

    counts: Counter[str] = field(default_factory=Counter)
    oom: TorchOom | None = None
    oom_with_room: TorchOom | None = None
    facts: list[Fact] = field(default_factory=list)
    statistics: dict[str, Statistics] = field(default_factory=dict)
    records: int = 0


def scan(text: bytes) -> Hits:
    """Return what whole lines of at most 16 KiB tell; never raises, whatever the bytes."""
    text = plain(text)
    hits = Hits()
    for start, code in sorted({it for row in EVENTS for it in _events(text, row)}):
        hits.counts[code] += 1
        if code == TORCH_OOM:
            _note_oom(text, start, hits)
    hits.facts = facts(text)
    for needle in NEEDLES:
        for _, line in _server_lines(text, needle):
            for record in islice(statistics(line), _MOST_FACTS):
                hits.statistics[record.engine] = record
                hits.records += 1
    return hits


def facts(text: bytes) -> list[Fact]:
    """Return what a server states of itself, in the order of its lines."""
    found: list[tuple[int, Fact]] = []
    for row in FACTS:
        for start, line in _server_lines(text, row.needle):
            for match in islice(row.regex.finditer(line), _MOST_FACTS):
                engines = ENGINE.findall(line, 0, match.start())
                engine = engines[-1].decode() if engines else ""
                named = {name: _number(it) for name, it in match.groupdict().items() if it}
                found.append((start + match.start(), Fact(engine, named)))
    for starting, row in PHASES:
        for start, line in _server_lines(text, row.needle):
            if row.regex.search(line):
                found.append((start, Fact(starting=starting)))
    return [fact for _, fact in sorted(found, key=lambda it: it[0])]


def plain(text: bytes) -> bytes:
    """Return text without the codes that colour it on a terminal."""
    return _ANSI.sub(b"", text) if b"\x1b" in text else text


class LauncherRecord:
    """TGI's argument record, which spans lines: kept until its end has come."""

    def __init__(self) -> None:
        self._open = b""

    def take(self, text: bytes) -> Mapping[str, float]:
        """Return the limits of the last record that ended in `text`; empty if none did."""
        text = self._open + text
        place = text.rfind(LAUNCHER_BEGINS)
        if place < 0 or USER_TEXT.search(text, text.rfind(b"\n", 0, place) + 1, place):
            self._open = b""
            return {}
        record = text[place : place + _LAUNCHER_BYTES]
        end = record.find(b"\n}")
        one_line = record.find(b"\n") if b"Args {\n" not in record else -1
        if end < 0 and one_line < 0 and len(record) < _LAUNCHER_BYTES:
            self._open = record
            return {}
        self._open = b""
        record = record[: max(end, one_line)] if max(end, one_line) > 0 else record
        return {
            found["name"].decode(): float(found["number"])
            for found in LAUNCHER_FACT.finditer(record)
        }


class OwnPatterns:
    """The patterns of the configuration, each with its code; one that is too slow is left out."""

    def __init__(
        self, rows: Sequence[tuple[str, re.Pattern[str]]], monotonic: Callable[[], float]
    ) -> None:
        self._rows = list(rows)
        self._monotonic = monotonic
        self.slow: set[str] = set()  # codes of patterns that were left out
        self.unseen_lines = 0  # that some pattern had no time for
        self._left_seconds = _PATIENCE_SECONDS

    def begin(self) -> None:
        """Begin a read: there is time anew."""
        self._left_seconds = _PATIENCE_SECONDS
        self.unseen_lines = 0

    def count(self, text: bytes) -> Counter[str]:
        """Count the lines with each pattern."""
        counts: Counter[str] = Counter()
        if not self._rows:
            return counts
        lines = [
            line[:OWN_LINE_CHARACTERS]
            for line in plain(text).decode(errors="replace").split("\n")
            if line
        ]
        for code, pattern in list(self._rows):
            self._match(code, pattern, lines, counts)
        return counts

    def _match(
        self, code: str, pattern: re.Pattern[str], lines: Sequence[str], counts: Counter[str]
    ) -> None:
        """Count one pattern, within the time that is left in this read."""
        before = self._monotonic()
        for number, line in enumerate(lines):
            if self._left_seconds <= 0.0:
                self.unseen_lines += len(lines) - number
                return
            counts[code] += pattern.search(line) is not None
            now = self._monotonic()
            self._left_seconds -= now - before
            if now - before > _SLOW_SECONDS:
                self.slow.add(code)
                self._rows.remove((code, pattern))
                return
            before = now


def _events(text: bytes, row: LogPattern) -> Iterator[tuple[int, str]]:
    """Yield the start of each line that a row is about, and the row's code there."""
    for start, line in _lines_with(text, row.needle):
        found = row.regex.search(line) if row.regex else None
        if (row.regex and found is None) or USER_TEXT.search(line):
            continue
        if row.code == XID and found is not None:
            yield start, xid_code(int(found[1]))
        else:
            yield start, row.code


def _note_oom(text: bytes, start: int, hits: Hits) -> None:
    place = text.find(b"out of memory. Tried", start)
    oom = torch_oom(text, place)
    if oom is not None:
        hits.oom = oom
        hits.oom_with_room = oom if oom.with_room else hits.oom_with_room


def _lines_with(text: bytes, needle: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield each line that holds a needle, with where it starts."""
    place = text.find(needle)
    while place >= 0:
        start = text.rfind(b"\n", 0, place) + 1
        end = text.find(b"\n", place)
        end = len(text) if end < 0 else end
        yield start, text[start:end]
        place = text.find(needle, end)


def _server_lines(text: bytes, needle: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield lines with a needle, without those that repeat what users wrote."""
    return (it for it in _lines_with(text, needle) if not USER_TEXT.search(it[1]))


def _number(digits: bytes) -> float:
    try:
        return float(digits.replace(b",", b""))
    except ValueError:  # commas alone
        return 0.0
