r"""Compiles regular expressions of the configuration so that no input can keep them busy.

Python's `re` has no time limit, so the bound is in the expression: `*` and `+` repeat at most 128
times, a repeated group holds no repetition and no choice, and how many ways there are to repeat is
limited altogether. What is refused says so; what is left costs at most a fraction of a second on
the worst of lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Final, TypeAlias

from pydantic import AfterValidator

from collector.values import Kind, refuse

MOST_LETTERS: Final = 300
MOST_REPEATS: Final = 128
MOST_WAYS: Final = 17_000  # two of `*` and `+`
MOST_CHOICES: Final = 12
_ATOM: Final = re.compile(
    r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\((?:\?(?::|P<\w+>|[ims]+\)))?|[)|]"
    r"|(?:[*+?]|\{[0-9]*,?[0-9]*\})|.",
    re.DOTALL,
)
_SET: Final = re.compile(r"\[|--|&&|\|\||~~")  # Python warns of these: they may change meaning
_ESCAPED: Final = re.compile(r"\\.", re.DOTALL)
_REPEAT: Final = re.compile(r"\{([0-9]*)(,?)([0-9]*)\}")


@dataclass(slots=True)
class _Group:
    """A group that is open: whether repeating it would multiply ways to match."""

    branches: bool = False


@dataclass(slots=True)
class _Walk:
    """How far an expression was read: what of it is written anew, and the ways so far."""

    written: list[str] = field(default_factory=list)
    open: list[_Group] = field(default_factory=lambda: [_Group()])
    last: _Group | None = None  # the group that just closed; None after a single atom
    repeatable: bool = False
    ways: int = 1
    choices: int = 0


def bounded(text: str) -> str:
    r"""Return an expression with every repetition bounded.

    >>> bounded(r"failed after \d+ tries")
    'failed after \\d{1,128} tries'

    Raises:
        ValueError: If it is too long, is not understood, or could take too long on some line.
    """
    if len(text) > MOST_LETTERS:
        msg = f"it has {len(text)} letters; expected at most {MOST_LETTERS}"
        raise ValueError(msg)
    walk = _Walk()
    for atom in _atoms(text):
        _step(walk, atom)
    return "".join(walk.written)


def compile_bounded(text: str) -> re.Pattern[str]:
    """Return the compiled expression.

    Raises:
        ValueError: As `bounded`, or if it is no regular expression.
    """
    written = bounded(text)
    try:
        return re.compile(written)
    except (re.error, OverflowError, RecursionError) as error:
        msg = f"it is no regular expression: {error}"
        raise ValueError(msg) from error


def _checked(text: str) -> str:
    try:
        pattern = compile_bounded(text)
    except ValueError as error:
        refuse("a regular expression of bounded cost", str(error))
    if pattern.search(""):
        refuse("a regular expression that needs at least one letter", "every line would match")
    return text


BoundedPattern: TypeAlias = Annotated[str, AfterValidator(_checked), Kind("regular expression")]


def _atoms(text: str) -> Iterator[str]:
    place = 0
    while place < len(text):
        found = _ATOM.match(text, place)
        if found is None:  # cannot be: the last choice takes any letter
            return
        yield found[0]
        place = found.end()


def _step(walk: _Walk, atom: str) -> None:
    if atom[0] == "(" and atom[-1] != ")":
        walk.written.append(atom)
        walk.open.append(_Group())
        walk.repeatable = False
    elif atom == ")":
        _close(walk)
    elif atom == "|":
        _choose(walk)
    elif atom in {"*", "+", "?"} or _REPEAT.fullmatch(atom):
        _repeat(walk, atom)
    else:
        _plain(walk, atom)


def _choose(walk: _Walk) -> None:
    walk.open[-1].branches = True
    walk.choices += len(walk.open) > 1  # choices one after the other multiply
    if walk.choices > MOST_CHOICES:
        msg = f"it has more than {MOST_CHOICES} choices inside groups; use several patterns"
        raise ValueError(msg)
    walk.written.append("|")
    walk.repeatable = False


def _plain(walk: _Walk, atom: str) -> None:
    if atom[0] == "\\" and (atom[1:].isdigit() or atom[1:] == ""):
        msg = "references to a group (\\1) are not supported"
        raise ValueError(msg)
    if atom == "[":
        msg = "a [ is never closed; write \\[ for the letter"
        raise ValueError(msg)
    if atom[0] == "[" and _SET.search(_ESCAPED.sub("", atom[1:])):
        msg = "inside [...] write \\[ for the letter, and no --, &&, || or ~~"
        raise ValueError(msg)
    walk.written.append(atom)
    walk.last = None
    walk.repeatable = atom[0] != "("  # flags like (?i) cannot be repeated


def _close(walk: _Walk) -> None:
    if len(walk.open) == 1:
        msg = "it closes a group that was never opened"
        raise ValueError(msg)
    walk.last = walk.open.pop()
    walk.open[-1].branches |= walk.last.branches
    walk.written.append(")")
    walk.repeatable = True


def _repeat(walk: _Walk, atom: str) -> None:
    if not walk.repeatable:
        msg = (
            f"{atom!r} has nothing simple to repeat; look-arounds and lazy or possessive "
            "repetitions are not supported"
        )
        raise ValueError(msg)
    least, most = _range(atom)
    if most > 1 and walk.last is not None and walk.last.branches:
        msg = "it repeats a group that holds a repetition or a choice; write it without one"
        raise ValueError(msg)
    if least != most:
        walk.open[-1].branches = True
        walk.ways *= most - least + 1
    if walk.ways > MOST_WAYS or most > MOST_REPEATS:
        msg = (
            f"it could take too long on some line: use at most two of * and +, "
            f"and repeat at most {MOST_REPEATS} times"
        )
        raise ValueError(msg)
    walk.written.append(atom if atom == "?" else f"{{{least},{most}}}")
    walk.repeatable = False


def _range(atom: str) -> tuple[int, int]:
    if atom in {"*", "+", "?"}:
        return int(atom == "+"), 1 if atom == "?" else MOST_REPEATS
    found = _REPEAT.fullmatch(atom)
    if found is None or not (found[1] or found[3]):
        msg = f"{atom!r} is no repetition; write \\{{ for the letter"
        raise ValueError(msg)
    least = int(found[1] or 0)
    most = int(found[3]) if found[3] else MOST_REPEATS if found[2] else least
    if least > most:
        msg = f"{atom!r} repeats at least more often than at most"
        raise ValueError(msg)
    return least, most
