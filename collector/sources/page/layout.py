"""Remembers how a page is laid out, so that the next one of the same form costs only its values.

A running engine writes the same lines in the same order scrape after scrape; only what stands
behind the last blank changes. A layout proves that line by line and then reads the wanted values
alone. Whatever differs (a new series, a lost line, other help) makes it step aside, and the page is
read with the parser's full care: a layout changes the speed, never the result.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final, TypeAlias

from collector.sources.page.families import WantedFamilies, normal_bytes
from collector.sources.page.keys import Series

Samples: TypeAlias = Mapping[str, Sequence[tuple[Series, float]]]

MAX_BYTES: Final = 262_144  # of a page: one pass over it keeps the interpreter for a millisecond
_NAME = re.compile(rb"[a-zA-Z_:][a-zA-Z0-9_:]*[{ \t]")


@dataclass(frozen=True, slots=True)
class Told:
    """What a page says beside its samples; `ended` is whether it had the mark of OpenMetrics."""

    wanted: WantedFamilies
    types: Mapping[str, str]
    engines: frozenset[str]
    ended: bool
    openmetrics: bool


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Layout:
    """The lines of a page: which are the same each time, how the others begin, which are wanted.

    `places` are (line, size of what stands before its value) of the wanted samples, family by
    family; `families` are (name, their series, first and last of their places).
    """

    told: Told
    lines: int
    fixed: tuple[bytes, ...]
    fixed_of: Callable[[Sequence[bytes]], Any]
    heads: tuple[bytes, ...]
    heads_of: Callable[[Sequence[bytes]], Any]
    places: tuple[tuple[int, int], ...]
    families: tuple[tuple[str, tuple[Series, ...], int, int], ...]

    def read(self, lines: Sequence[bytes], *, ended: bool) -> Samples | None:
        """Return the wanted samples of a page of this form, None if it is of another."""
        if len(lines) != self.lines or ended != self.told.ended:
            return None
        if self.fixed_of(lines) != self.fixed:
            return None
        if not all(map(bytes.startswith, self.heads_of(lines), self.heads)):
            return None
        words = [lines[at][size:] for at, size in self.places]
        if b"_" in b" ".join(words):  # Python reads 1_0 as a number; the format does not
            return None
        try:
            values = list(map(float, words))
        except ValueError:
            return None
        return {
            family: list(zip(series, values[start:stop], strict=True))
            for family, series, start, stop in self.families
        }


def layout_of(
    lines: Sequence[bytes], samples: Samples, known: Mapping[bytes, Series], told: Told
) -> Layout | None:
    """Return the layout of a page that was read without any loss, None if it has none.

    Args:
        lines: The page.
        samples: What the parser read of it; a layout that reads otherwise is none.
        known: Series by the bytes before their value.
        told: What it says beside them.
    """
    own: dict[bytes, bytes] = {}
    heads: dict[int, bytes] = {}
    found: dict[str, list[tuple[int, int, Series]]] = {}
    for at, line in enumerate(lines):
        key = line.rpartition(b" ")[0]
        series = known.get(key)
        if series is not None:
            heads[at] = series.written if key.endswith(b"}") and series.written else key + b" "
            found.setdefault(series.family, []).append((at, len(key), series))
        else:
            head = _head(line, told.wanted)
            if head:
                heads[at] = own.setdefault(head, head)
    fixed = [at for at in range(len(lines)) if at not in heads]
    if len(heads) < 2 or len(fixed) < 2:  # noqa: PLR2004  # one item is no tuple
        return None
    layout = Layout(
        told=told,
        lines=len(lines),
        fixed=tuple(lines[at] for at in fixed),
        fixed_of=itemgetter(*fixed),
        heads=tuple(heads.values()),
        heads_of=itemgetter(*heads),
        places=tuple((at, size) for rows in found.values() for at, size, _ in rows),
        families=tuple(_families(found)),
    )
    return layout if layout.read(lines, ended=told.ended) == samples else None


def _families(
    found: Mapping[str, Sequence[tuple[int, int, Series]]],
) -> list[tuple[str, tuple[Series, ...], int, int]]:
    families = []
    start = 0
    for family, rows in found.items():
        stop = start + len(rows)
        families.append((family, tuple(series for _, _, series in rows), start, stop))
        start = stop
    return families


def _head(line: bytes, wanted: WantedFamilies) -> bytes:
    """Return how a line of no interest begins, as long as it stays of none; empty if it is fixed.

    The name is enough where no sample of that name is wanted; else all that stands before the
    value is.
    """
    name = _NAME.match(line)
    if name is None:
        return b""
    if normal_bytes(name[0][:-1]) in wanted.roles:
        return line[: line.rindex(b" ") + 1] if b" " in line else b""
    return name[0]
