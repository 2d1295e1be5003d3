"""Compiles a selection of metric families into one regular expression.

Names are met in their normal form: `ray_` and `kserve_` dropped, the first `:` as `_`; the
expression accepts every spelling, so a page of any of them costs the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

Role: TypeAlias = Literal["value", "bucket", "sum", "count"]
_Tree: TypeAlias = dict[bytes, "_Tree"]

_SUFFIXES: Final[Mapping[Role, str]] = {
    "value": "",
    "bucket": "_bucket",
    "sum": "_sum",
    "count": "_count",
}
_HEADER = rb"#[ \t]*(?:TYPE|HELP)[ \t]+"
_PREFIX = rb"(?:ray_|kserve_)?"


@dataclass(frozen=True, slots=True)
class WantedFamilies:
    """A compiled selection.

    `roles` maps a sample's normal name to (family, role), `headers` the name on a TYPE or HELP
    line to the family. `pattern` finds wanted lines in text where a newline stands before each
    line: (header or empty, rest of the line). `engines` finds any family of a prefix.
    """

    roles: Mapping[bytes, tuple[str, Role]]
    headers: Mapping[bytes, str]
    pattern: re.Pattern[bytes]
    engines: Mapping[str, re.Pattern[bytes]]


def normal_name(name: str) -> str:
    """Return the normal form of a metric name: no `ray_` or `kserve_`, first `:` as `_`.

    >>> normal_name("ray_vllm:num_requests_running")
    'vllm_num_requests_running'
    """
    return name.removeprefix("ray_").removeprefix("kserve_").replace(":", "_", 1)


def normal_bytes(name: bytes) -> bytes:
    """Do what `normal_name` does, on bytes."""
    return name.removeprefix(b"ray_").removeprefix(b"kserve_").replace(b":", b"_", 1)


def compile_families(
    families: Mapping[str, Iterable[Role]], engines: Iterable[str] = ()
) -> WantedFamilies:
    """Compile a selection.

    Args:
        families: Normal name of each wanted family as exposed (a counter with its `_total`), and
            the roles of the samples wanted from it; none for TYPE and HELP lines alone.
        engines: Name prefixes (`vllm`) whose presence is to be told.
    """
    roles: dict[bytes, tuple[str, Role]] = {}
    headers: dict[bytes, str] = {}
    for family, wanted in families.items():
        headers[family.encode()] = family
        for role in wanted:
            roles[(family + _SUFFIXES[role]).encode()] = (family, role)
            if role == "value":  # OpenMetrics writes the TYPE of a counter on its base name
                headers.setdefault(family.removesuffix("_total").encode(), family)
            elif role == "bucket":  # Triton leaves `_bucket` away
                roles.setdefault(family.encode(), (family, role))
    names = sorted({*roles, *headers})
    line = rb"\n[ \t]*(%s)?(%s(?:%s)(?![a-zA-Z0-9_:])[^\n]*)"
    pattern = re.compile(line % (_HEADER, _PREFIX, _alternation(names)))
    begin = rb"\n[ \t]*(?:%s)?%s%s[:_]"
    return WantedFamilies(
        roles=roles,
        headers=headers,
        pattern=pattern,
        engines={it: re.compile(begin % (_HEADER, _PREFIX, it.encode())) for it in engines},
    )


def _alternation(names: Sequence[bytes]) -> bytes:
    """Write sorted names as nested groups, so that a line is refused at its first odd byte."""
    tree: _Tree = {}
    for name in names:
        node = tree
        first = name.find(b"_")
        for place in range(len(name)):
            atom = b"[:_]" if place == first else name[place : place + 1]
            node = node.setdefault(atom, {})
        node[b""] = {}
    return _written(tree)


def _written(node: _Tree) -> bytes:
    branches = [
        atom + _written(rest) if rest else atom
        for atom, rest in sorted(node.items(), reverse=True)  # the longest name first
    ]
    return branches[0] if len(branches) == 1 else b"(?:" + b"|".join(branches) + b")"
