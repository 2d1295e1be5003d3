"""What is wrong with a configuration, said so that a person can put it right."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

Place: TypeAlias = tuple[str | int, ...]

_PASSWORD = re.compile(r"(?<=://)[^/@\s]+(?=@)")
_SECRET_KEYS = frozenset({"secret", "previous_secret", "token", "password"})
_LONGEST_SHOWN = 80


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake: where it is, what came, what was expected, what to do.

    `path` is dotted (`tiers.chat.targets[1].url`, empty for the file itself) and `line` counts
    from 1, None when there is no line to point at. `got` is empty where showing it says nothing.
    """

    path: str
    line: int | None
    got: str
    expected: str
    remedy: str

    def __str__(self) -> str:
        where = ": ".join(part for part in (f"line {self.line}" if self.line else "", self.path))
        where = where.removeprefix(": ").removesuffix(": ")
        what = f"got {self.got}, expected {self.expected}" if self.got else self.expected
        text = f"{where}: {what}" if where else what
        return f"{text}; {self.remedy}" if self.remedy else text


class ConfigError(Exception):
    """A configuration that cannot be used; `problems` holds every mistake found in it."""

    def __init__(self, problems: Sequence[Problem], source: str = "configuration") -> None:
        self.problems = tuple(problems)
        self.source = source
        count = "1 problem" if len(self.problems) == 1 else f"{len(self.problems)} problems"
        lines = [f"{source}: {count}", *(f"  {problem}" for problem in self.problems)]
        super().__init__("\n".join(lines))


def dotted(place: Place) -> str:
    """Return the place as people write it.

    >>> dotted(("tiers", "chat", "targets", 1, "url"))
    'tiers.chat.targets[1].url'
    """
    text = ""
    for part in place:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def nearest(word: str, known: Iterable[str]) -> str:
    """Return a remedy that names the known word closest to `word`, or lists what is known."""
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"known: {', '.join(names)}" if names else ""


def shown(place: Place, raw: str) -> str:
    """Return the text of a value for a message: short, quoted, without anything secret."""
    if place and str(place[-1]) in _SECRET_KEYS:
        return "a value (hidden)"
    text = _PASSWORD.sub("…", raw)
    if len(text) > _LONGEST_SHOWN:
        text = text[: _LONGEST_SHOWN - 1] + "…"
    return repr(text)
