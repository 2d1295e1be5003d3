"""Writes the queries that fetch an engine's families from a server that stores them.

Names are listed, never matched by a pattern: managed servers refuse a `__name__` regex. A family
may be stored as `vllm:x` or `vllm_x` (what became of the colon is the scraper's doing), behind
`ray_` or `kserve_`. Many families travel in one query, joined by `or`; each carries a label of its
own, because `or` would else drop a family whose labels equal those of another.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from collector.sources.engine.engines import Engine, wanted_families
from collector.sources.page.families import Role

Form: TypeAlias = tuple[str, str, str]  # engine's prefix, what stands before it, `:` or `_`
Kind: TypeAlias = Literal["sample", "time", "seen", "any", "up", "scrape_seconds"]

MARK: Final = "fusewire_ask"  # the label that says which name a series of the answer is of
MAX_QUERY_BYTES: Final = 12_000  # VictoriaMetrics takes 16,384 by default
MAX_NAMES: Final = 120
_COLON_PREFIXES: Final = frozenset({"llamacpp", "sglang", "trtllm", "vllm"})  # x:y, or x_y stored
_WRAPPED_PREFIXES: Final = frozenset({"sglang", "vllm"})  # by Ray and KServe
_SPECIAL = re.compile(r"([\\.+*?()|\[\]{}^$])")
NO_FORM: Final[Form] = ("", "", "")
_AROUND: Final[Mapping[Kind, str]] = {"time": "timestamp", "any": "count"}


@dataclass(frozen=True, slots=True)
class Asked:
    """What series with one mark are: samples of a family, their moments, or only a sign of it.

    `seen` are series of a family that only tells the version, `any` is whether a spelling is in
    use at all.
    """

    kind: Kind
    family: str = ""
    role: Role = "value"
    form: Form = NO_FORM


_Named: TypeAlias = tuple[Asked, str]


@dataclass(frozen=True, slots=True)
class Plan:
    """Queries, and what the marks in their answers mean."""

    queries: tuple[str, ...]
    marks: Mapping[str, Asked]


def forms_of(engines: Iterable[Engine]) -> tuple[Form, ...]:
    """Return every spelling that families of these engines may be stored under."""
    prefixes = dict.fromkeys(engine.prefix for engine in engines if engine.prefix)
    return tuple(
        (prefix, before, colon)
        for prefix in prefixes
        for before in (("", "ray_", "kserve_") if prefix in _WRAPPED_PREFIXES else ("",))
        for colon in ((":", "_") if prefix in _COLON_PREFIXES else ("_",))
    )


def spelled(name: str, form: Form) -> str:
    """Return a normal name in one of its spellings.

    >>> spelled("vllm_num_requests_running", ("vllm", "ray_", ":"))
    'ray_vllm:num_requests_running'
    """
    prefix, before, colon = form
    return f"{before}{prefix}{colon}{name[len(prefix) + 1 :]}" if prefix else name


def selector(matches: Sequence[Mapping[str, str]]) -> str:
    """Return the label matchers that select all of `matches`, which have the same labels.

    With several, it may select more than these: the answer is divided by label values anyway.

    >>> selector([{"instance": "a:1"}, {"instance": "b:1"}])
    '{instance=~"a:1|b:1"}'
    """
    written = []
    for label in sorted(matches[0]):
        values = sorted({match[label] for match in matches})
        if len(values) == 1:
            written.append(f"{label}={_quoted(values[0])}")
        else:
            pattern = "|".join(_SPECIAL.sub(r"\\\1", value) for value in values)
            written.append(f"{label}=~{_quoted(pattern)}")
    return "{" + ",".join(written) + "}"


def search(engines: Sequence[Engine], select: str) -> Plan:
    """Write the queries that tell which spellings are stored: one number a family, no series."""
    families = _families(engines)
    groups = (
        [(Asked("any", family, form=form), spelled(list(names.values())[-1], form))]
        for form in forms_of(engines)
        for family, names in families.get(form[0], {}).items()
    )
    return _packed(groups, select)


def plan(engines: Sequence[Engine], forms: Iterable[Form], select: str, *, evidence: bool) -> Plan:
    """Write the queries for the wanted families of `engines` in the given spellings.

    The first query has the target's `up`. All names of one family in one spelling are in the same
    query, so that a histogram never comes from two moments.

    Args:
        engines: Whose rows say what is wanted.
        forms: The spellings to ask for.
        select: Label matchers, with braces.
        evidence: Whether to ask also for families that only tell the engine's version.
    """
    return _packed(_groups(engines, forms, evidence=evidence), select)


def _packed(groups: Iterable[Sequence[_Named]], select: str) -> Plan:
    """Put groups of names into as few queries as their bounds allow."""
    marks: dict[str, Asked] = {}
    queries: list[str] = []
    terms: list[str] = []
    size = 0
    for group in groups:
        written = [_term(asked, name, select, marks) for asked, name in group]
        more = sum(map(len, map(str.encode, written))) + 6 * len(written)
        if terms and (size + more > MAX_QUERY_BYTES or len(terms) + len(written) > MAX_NAMES):
            queries.append(_joined(terms))
            terms, size = [], 0
        terms += written
        size += more
    if terms:
        queries.append(_joined(terms))
    return Plan(tuple(queries), marks)


def _groups(
    engines: Sequence[Engine], forms: Iterable[Form], *, evidence: bool
) -> Iterator[Sequence[_Named]]:
    """Yield what is asked for, in pieces that belong into one query."""
    yield [(Asked("up"), "up"), (Asked("scrape_seconds"), "scrape_duration_seconds")]
    families = _families(engines)
    for form in (NO_FORM, *forms):
        wanted = families.get(form[0], {})
        for family, names in wanted.items():
            yield list(_of_family(family, names, form))
        for family in sorted(_evidence(engines, form) - wanted.keys()) if evidence else ():
            stored = (spelled(family, form), spelled(f"{family}_count", form))
            yield [(Asked("seen", family, form=form), name) for name in stored]


def _of_family(family: str, roles: Mapping[Role, str], form: Form) -> Iterator[_Named]:
    for role, name in roles.items():
        stored = spelled(name, form)
        yield Asked("sample", family, role, form), stored
        if role in {"value", "count" if "count" in roles else "sum"}:
            yield Asked("time", family, role, form), stored


def _families(engines: Sequence[Engine]) -> dict[str, dict[str, dict[Role, str]]]:
    """Return the names wanted, in normal form, by engine's prefix, family and role.

    Families of no engine's prefix, stored under one name only, are under the empty prefix.
    """
    prefixes = {engine.prefix for engine in engines}
    found: dict[str, dict[str, dict[Role, str]]] = {}
    for raw, (family, role) in wanted_families(tuple(engines)).roles.items():
        name, prefix = raw.decode(), family.partition("_")[0]
        if role != "bucket" or name.endswith("_bucket"):  # not Triton's way to write it
            of_prefix = found.setdefault(prefix if prefix in prefixes else "", {})
            of_prefix.setdefault(family, {})[role] = name
    return found


def _evidence(engines: Iterable[Engine], form: Form) -> set[str]:
    prefix = form[0]
    return {
        it.family
        for engine in engines
        if prefix and engine.prefix == prefix
        for it in engine.evidence
    }


def _term(asked: Asked, name: str, select: str, marks: dict[str, Asked]) -> str:
    mark = f"{len(marks):x}"
    marks[mark] = asked
    vector = name + select
    if asked.kind in _AROUND:
        vector = f"{_AROUND[asked.kind]}({vector})"
    return f'label_replace({vector},"{MARK}","{mark}","","")'


def _joined(terms: Sequence[str]) -> str:
    """Join by `or` as a balanced tree: a chain would compare each series once a term."""
    if len(terms) == 1:
        return terms[0]
    middle = len(terms) // 2
    return f"({_joined(terms[:middle])} or {_joined(terms[middle:])})"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)  # its escapes are a subset of PromQL's
