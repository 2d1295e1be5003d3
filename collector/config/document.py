"""A YAML file as plain values, with the line of each, read without YAML's surprises.

Only what JSON knows is understood: true and false (not yes, no, on, off), decimal numbers (no
octal, no 1:30), text, lists and mappings. Everything else that is plain stays text, so `no` is a
segment and `012` is not ten. Size, depth and the number of values that anchors expand to are
bounded, and a key that is written twice is a problem.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import yaml

from collector.config.problems import ConfigError, Place, Problem, dotted, shown

Tree: TypeAlias = "bool | int | float | str | list[Tree] | dict[str, Tree] | None"

MAX_BYTES = 1_048_576
MAX_VALUES = 50_000
MAX_DEPTH = 16

_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?(0|[1-9][0-9]*)?(\.[0-9]+|\.)?([eE][-+]?[0-9]+)?")
_WORDS: Mapping[str, bool | None] = {
    "": None,
    "~": None,
    "null": None,
    "true": True,
    "false": False,
}
_VARIABLE = re.compile(r"\$\$\{|\$\{([^}]*)(\}?)")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass
class Document:
    """The values of a file, the line where each stands, and each scalar as it was written."""

    source: str
    data: Tree = None
    lines: dict[Place, int] = field(default_factory=dict)
    raw: dict[Place, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    values: int = 0

    def line(self, place: Place) -> int | None:
        """Return the line of `place`, or of the closest value around it."""
        for length in range(len(place), -1, -1):
            if place[:length] in self.lines:
                return self.lines[place[:length]]
        return None

    def report(self, place: Place, expected: str, remedy: str = "", *, got: str = "") -> None:
        """Add a problem at `place`, unless one is known there already."""
        path = dotted(place)
        if not any(problem.path == path for problem in self.problems):
            self.problems.append(Problem(path, self.line(place), got, expected, remedy))

    def got(self, place: Place, value: Tree) -> str:
        """Say what stands at `place`, as it was written in the file."""
        if place in self.raw:
            return shown(place, self.raw[place]) if value is not None else "nothing"
        return {dict: "a mapping", list: "a list", type(None): "nothing"}.get(type(value), "")


def read_document(path: Path, environ: Mapping[str, str]) -> Document:
    """Read and parse a file, `${NAME}` replaced from `environ` (`$${` stands for `${`).

    Raises:
        ConfigError: If the file cannot be read or is not YAML. Mistakes that leave something to
            check are in `Document.problems` instead.
    """
    document = Document(str(path))
    text = _read_text(path)
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        raise _not_yaml(path, error) from error
    except yaml.YAMLError as error:
        raise _refused(path, "text without control characters", "save it as plain UTF-8") from error
    except RecursionError as error:
        raise _refused(path, f"at most {MAX_DEPTH} levels", "it is nested too deeply") from error
    if node is None:
        raise _refused(path, "a mapping with the key 'tiers'; the file is empty", _SMALLEST)
    document.data = _value(document, environ, node, ())
    if not isinstance(document.data, dict):
        raise _refused(path, "a mapping with the key 'tiers' at the top", _SMALLEST)
    return document


_SMALLEST = "the smallest: 'tiers: {chat: {targets: [http://127.0.0.1:8000]}}'"


def _refused(path: Path, expected: str, remedy: str, *, line: int | None = None) -> ConfigError:
    return ConfigError([Problem("", line, "", f"expected {expected}", remedy)], str(path))


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        reason = error.strerror or str(error)
        msg = Problem("", None, "", f"cannot be read: {reason}", "name a readable YAML file")
        raise ConfigError([msg], str(path)) from error
    if len(content) > MAX_BYTES:
        raise _refused(path, f"a file of at most {MAX_BYTES:,} bytes", "split it by controller")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise _refused(
            path, "UTF-8 text; this is binary or another encoding", "save it as UTF-8", line=line
        ) from error


def _not_yaml(path: Path, error: yaml.MarkedYAMLError) -> ConfigError:
    mark = error.problem_mark or error.context_mark
    line = mark.line + 1 if mark else None
    problem = error.problem or "cannot be parsed"
    remedy = "check indentation, colons and quotes on and above this line"
    if "\\t" in problem or "'\t'" in problem:
        problem, remedy = "a tab character", "indent with spaces, YAML has no tabs"
    elif "single document" in (error.context or ""):
        problem, remedy = "more than one document", "remove the '---' and merge the parts"
    return ConfigError([Problem("", line, "", f"not YAML: {problem}", remedy)], str(path))


def _value(document: Document, environ: Mapping[str, str], node: yaml.Node, place: Place) -> Tree:
    """Turn one node into a plain value, noting its line."""
    document.lines.setdefault(place, node.start_mark.line + 1)
    document.values += 1
    if document.values > MAX_VALUES or len(place) > MAX_DEPTH:
        problem = Problem(
            "",
            node.start_mark.line + 1,
            "",
            f"expected at most {MAX_VALUES:,} values and {MAX_DEPTH} levels, anchors expanded",
            "write fewer aliases",
        )
        raise ConfigError([problem], document.source)
    if not node.tag.startswith("tag:yaml.org,2002:") or ":python/" in node.tag:
        document.report(
            place, "a value without a tag", "remove the tag", got=repr(node.tag.split(":")[-1])
        )
        return None
    if isinstance(node, yaml.MappingNode):
        return _mapping(document, environ, node, place)
    if isinstance(node, yaml.SequenceNode):
        return [
            _value(document, environ, item, (*place, index))
            for index, item in enumerate(node.value)
        ]
    if isinstance(node, yaml.ScalarNode):
        return _scalar(document, environ, node, place)
    return None  # YAML has no fourth kind


def _mapping(
    document: Document, environ: Mapping[str, str], node: yaml.MappingNode, place: Place
) -> dict[str, Tree]:
    found: dict[str, Tree] = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode):
            problem = Problem(dotted(place), line, "", "a key must be a word", "write one")
            document.problems.append(problem)
            continue
        key = str(key_node.value)
        here = (*place, key)
        if key in found:
            first = document.lines[here]
            document.lines[here] = line
            document.report(here, f"written twice, first on line {first}", "keep one")
            continue
        document.lines[here] = line
        found[key] = _value(document, environ, value_node, here)
    return found


def _scalar(
    document: Document, environ: Mapping[str, str], node: yaml.ScalarNode, place: Place
) -> Tree:
    text = str(node.value)
    document.raw[place] = text
    if node.style is not None:
        return _expanded(document, environ, text, place)
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text) and len(text) <= 18:  # noqa: PLR2004  # fits 64 bits
        return int(text)
    if any(digit.isdigit() for digit in text) and _FLOAT.fullmatch(text):
        number = float(text)
        return number if math.isfinite(number) else text
    return _expanded(document, environ, text, place)


def _expanded(document: Document, environ: Mapping[str, str], text: str, place: Place) -> str:
    def replace(match: re.Match[str]) -> str:
        if match.group(0) == "$${":
            return "${"
        name = match.group(1)
        if not match.group(2) or not _NAME.fullmatch(name):
            document.report(
                place,
                "${NAME} with a name of letters, digits and _",
                "write '$${' for a plain '${'",
                got=shown(place, match.group(0)),
            )
            return match.group(0)
        if name not in environ:
            document.report(
                place,
                f"the environment variable {name} to be set",
                "set it before starting, or write '$${' for a plain '${'",
                got=f"${{{name}}}",
            )
            return match.group(0)
        return environ[name]

    return _VARIABLE.sub(replace, text)
