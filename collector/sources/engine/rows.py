"""The form of the tables: what a row of an engine says, and short ways to write one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from collector.sources.page.families import Role

Take: TypeAlias = Literal["value", "sum", "count", "histogram"]
Across: TypeAlias = Literal["sum", "max", "mean"]
Filter: TypeAlias = tuple[tuple[str, frozenset[str]], ...]  # label, values; "" is a missing label

_ALL: Final[Filter] = ()
ROLES: Final[Mapping[Take, tuple[Role, ...]]] = MappingProxyType(
    {
        "value": ("value",),
        "sum": ("sum",),
        "count": ("count",),
        "histogram": ("bucket", "sum", "count"),
    }
)


@dataclass(frozen=True, slots=True)
class Term:
    """Samples of one family: which ones, what of them, and under which part they count.

    `take` is the sample's value, the `_sum` or `_count` of a histogram, or all of it. `keep` and
    `drop` filter by label. `part_label` names the label whose value is the part, `part` a fixed
    one. With `factors` the number is the product of those labels' values, not the sample's.
    `ranks` are labels of the workers of one engine that all write the same: of series that differ
    in them alone the one of the lowest ranks is taken. `outer` is a label with the values that
    stand for a whole pipeline: where any of them is there, its inner models do not count.
    """

    family: str
    take: Take = "value"
    keep: Filter = _ALL
    drop: Filter = _ALL
    part: str = ""
    part_label: str = ""
    factors: tuple[str, ...] = ()
    optional: bool = False
    ranks: tuple[str, ...] = ()
    outer: Filter = _ALL


@dataclass(frozen=True, slots=True)
class Alias:
    """One way to get a signal: the sum of `terms`, times `times`, over `over`, times `scale`.

    `over_signal` divides by another signal instead, `same_as` is another signal whole. With
    `apart` the arithmetic is done for each value of that label, and the row says how the results
    combine. Of a histogram, `terms` with `over` are its sum and count as two counters: it has no
    buckets, only a mean.
    """

    terms: tuple[Term, ...]
    over: tuple[Term, ...] = ()
    over_signal: str = ""
    scale: float = 1.0
    times: tuple[Term, ...] = ()
    apart: str = ""
    same_as: str = ""
    every: tuple[Term, ...] = field(init=False, repr=False, compare=False)  # that it reads

    def __post_init__(self) -> None:
        object.__setattr__(self, "every", (*self.terms, *self.times, *self.over))

    @property
    def name(self) -> str:
        """The families that feed it, for reports."""
        return self.same_as or " + ".join(term.family for term in self.terms)


@dataclass(frozen=True, slots=True)
class Row:
    """A canonical signal, its aliases in order, and how series of several engines combine."""

    signal: str
    aliases: tuple[Alias, ...]
    across: Across = "sum"


@dataclass(frozen=True, slots=True)
class Evidence:
    """A family (or a label value on it) that only versions of some span have; ends included."""

    family: str
    since: str = ""
    until: str = ""
    label: str = ""
    value: str = ""


@dataclass(frozen=True, slots=True)
class Engine:
    """One kind of engine, or of any other page; an empty `prefix` knows the page by its rows.

    `front` marks a server that stands before engines and passes their families on: an engine's
    own families on its page win. `counts_losses` says that first tokens without an end are lost
    requests, and `multiprocess` that the absence of `process_*` families is its normal state.
    `first_token` are histograms (as sums) whose means add up to about the time to first token, of
    an engine that does not tell it; `adapters` is a family whose values are when each combination
    of LoRA adapters was last in use.
    """

    name: str
    prefix: str
    rows: tuple[Row, ...]
    evidence: tuple[Evidence, ...] = ()
    front: bool = False
    counts_losses: bool = False
    multiprocess: bool = False
    first_token: tuple[Term, ...] = ()
    adapters: str = ""

    @property
    def signals(self) -> frozenset[str]:
        """The signals that its rows can give."""
        return frozenset(row.signal for row in self.rows)

    def terms(self) -> Iterator[Term]:
        """Yield every term of every row, and those of what is worked out beside the rows."""
        for row in self.rows:
            for alias in row.aliases:
                yield from alias.every
        for term in self.first_token:
            yield from (term, replace(term, take="count"))
        if self.adapters:
            yield Term(self.adapters)


def plain(signal: str, *families: str, across: Across = "sum", scale: float = 1.0) -> Row:
    """Return a row whose families are the signal, up to a `scale`."""
    aliases = tuple(Alias((Term(family),), scale=scale) for family in families)
    return Row(signal, aliases, across)


def histogram(
    signal: str, *families: str, keep: Mapping[str, str] | None = None, scale: float = 1.0
) -> Row:
    """Return a row of histograms; `keep` maps a label to the one value that counts."""
    kept = tuple((label, frozenset({value})) for label, value in (keep or {}).items())
    terms = (Term(family, take="histogram", keep=kept) for family in families)
    return Row(signal, tuple(Alias((term,), scale=scale) for term in terms))


def quotient(over: str, of: str) -> Alias:
    """Return one counter over another."""
    return Alias((Term(over),), over=(Term(of),))


def summed(signal: str, family: str) -> Row:
    """Return a counter row that is the `_sum` of a histogram or summary."""
    return Row(signal, (Alias((Term(family, take="sum"),)),))


def renamed(engine: Engine, name: str, old: str, new: str) -> Engine:
    """Return an engine whose families begin with `new` where those of `engine` do with `old`."""

    def other(term: Term) -> Term:
        return replace(term, family=new + term.family.removeprefix(old))

    def alias_of(alias: Alias) -> Alias:
        return replace(
            alias,
            terms=tuple(map(other, alias.terms)),
            times=tuple(map(other, alias.times)),
            over=tuple(map(other, alias.over)),
        )

    rows = tuple(replace(row, aliases=tuple(map(alias_of, row.aliases))) for row in engine.rows)
    first_token = tuple(map(other, engine.first_token))
    prefix = new.rstrip("_")
    return replace(
        engine, name=name, prefix=prefix, rows=rows, evidence=(), first_token=first_token
    )
