"""A server that stores metrics, shared by the targets that are read from it.

Targets whose `match` has the same labels are asked for together: one round of queries serves up to
`batch` of them. Each target takes its share of a round once; the first that comes for a second
share causes the next round. So there is one round at a time a group, and one an interval.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import httpx2

from collector.sources.engine.engines import Engine
from collector.sources.fetch import FetchError, Outcome
from collector.sources.page.page import MAX_SAMPLES
from collector.sources.stored.asking import Answer, StoredSeries
from collector.sources.stored.client import StoredClient
from collector.sources.stored.promql import MARK, NO_FORM, Asked, Form, Plan, plan, search, selector
from collector.sources.stored.settings import PrometheusConfig

MAX_SELECTOR_BYTES: Final = 1_500  # it stands in every term of every query
SEARCH_SECONDS: Final = 300.0  # how often all spellings are tried
FIRST_SEARCHES_SECONDS: Final = 30.0  # and at first while a target has no series, then doubled
MAX_BACKOFF_SECONDS: Final = 60.0
Found: TypeAlias = tuple[Asked, StoredSeries]


@dataclass(frozen=True, slots=True)
class Selection:
    """What one target is on the server: the labels of its series, and the engines it may be."""

    match: Mapping[str, str]
    engines: tuple[Engine, ...]


@dataclass(frozen=True, slots=True)
class Share:
    """One target's part of a round; `moment` in the server's unix time, None if nothing came."""

    found: Sequence[Found]
    moment: float | None
    monotonic_seconds: float
    lacking: tuple[str, ...] = ()
    searched: bool = False  # asked also for what only tells the engine's version


@dataclass(slots=True, eq=False)
class Member:
    """A target's place in the rounds of its group."""

    selection: Selection
    served: int = -1  # the last round it took its share of


@dataclass(slots=True)
class _Round:
    number: int
    found: Mapping[tuple[str, ...], list[Found]]
    moment: float | None
    monotonic_seconds: float
    lacking: tuple[str, ...]
    searched: bool = False
    error: FetchError | None = None


@dataclass(slots=True)
class _Group:
    """Targets asked for together, and the newest round."""

    members: tuple[Member, ...]
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    round: _Round | None = None
    forms: tuple[Form, ...] = ()
    search_at: float = -math.inf
    searches_in_vain: int = 0
    failures: int = 0
    retry_at: float = 0.0
    rounds: int = 0

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(sorted(self.members[0].selection.match))

    def searched(self, moment: float, *, complete: bool) -> None:
        """Note a search, and when the next is due: sooner while a target has no series."""
        self.searches_in_vain = 0 if complete else self.searches_in_vain + 1
        wait = FIRST_SEARCHES_SECONDS * 2.0 ** min(self.searches_in_vain - 1, 9)
        self.search_at = moment + (SEARCH_SECONDS if complete else min(wait, SEARCH_SECONDS))


class StoredServer:
    """Asks one server for many targets; keeps within its bound of queries at a time."""

    def __init__(
        self,
        name: str,
        config: PrometheusConfig,
        *,
        client: httpx2.AsyncClient,
        monotonic: Callable[[], float],
    ) -> None:
        """Make the server; nothing is opened.

        Args:
            name: As configured, for messages.
            config: Its settings.
            client: Shared with other sources; not used if the server needs TLS settings of its own.
            monotonic: The clock of intervals, s.
        """
        self.name = name
        self.config = config
        self._client = StoredClient(config, client)
        self._monotonic = monotonic
        self._members: list[Member] = []
        self._groups: dict[Member, _Group] = {}
        self._grouped = True

    @property
    def queries(self) -> int:
        """Queries sent so far."""
        return self._client.queries

    def join(self, selection: Selection) -> Member:
        """Return a place for a target."""
        member = Member(selection)
        self._members.append(member)
        self._grouped = False
        return member

    async def leave(self, member: Member) -> None:
        """Give a place up; with the last one, what is held open is closed."""
        if member in self._members:
            self._members.remove(member)
            self._grouped = False
        if not self._members:
            await self._client.close()

    async def share(self, member: Member) -> Share:
        """Return a target's part of a round that it has not seen yet.

        Raises:
            FetchError: If the server gave no usable answer.
        """
        if not self._grouped:
            self._regroup()
        group = self._groups[member]
        async with group.lock:
            now = group.round
            if now is None or now.number == member.served:
                now = await self._next_round(group)
            member.served = now.number
        if now.error is not None:
            raise FetchError(now.error.outcome, str(now.error)) from now.error
        key = tuple(member.selection.match[label] for label in group.keys)
        found, lacking = now.found.get(key, ()), now.lacking
        if len(found) >= MAX_SAMPLES:
            lacking = (*lacking, f"more than {MAX_SAMPLES:,} series match; narrow match")
        return Share(found, now.moment, now.monotonic_seconds, lacking, now.searched)

    def _regroup(self) -> None:
        """Divide the targets into groups; one whose targets stay the same is kept."""
        known = {group.members: group for group in self._groups.values()}
        alike: dict[tuple[tuple[str, ...], tuple[str, ...]], list[Member]] = {}
        for member in self._members:
            names = tuple(engine.name for engine in member.selection.engines)
            alike.setdefault((names, tuple(sorted(member.selection.match))), []).append(member)
        groups: dict[Member, _Group] = {}
        for members in alike.values():
            for some in _batches(members, self.config.batch):
                group = known.get(some) or self._new_group(some)
                if group.members not in known:
                    for member in some:
                        member.served = -1
                groups |= dict.fromkeys(some, group)
        self._groups, self._grouped = groups, True

    def _new_group(self, members: tuple[Member, ...]) -> _Group:
        """Return a group that knows the spellings its members were read in before."""
        before = [self._groups[it] for it in members if it in self._groups]
        group = _Group(members)
        group.forms = tuple(dict.fromkeys(form for it in before for form in it.forms))
        if len(before) == len(members):  # else the new ones have to be searched
            group.search_at = min(it.search_at for it in before)
        return group

    async def _next_round(self, group: _Group) -> _Round:
        moment = self._monotonic()
        if group.round is not None and group.round.error is not None and moment < group.retry_at:
            return group.round  # asked again when the pause is over
        group.rounds += 1
        try:
            group.round = await self._asked(group, moment)
            group.failures = 0
        except FetchError as error:
            group.failures += 1
            pause = min(MAX_BACKOFF_SECONDS, 2.0**group.failures)
            group.retry_at = self._monotonic() + pause * (group.failures > 1)
            group.round = _Round(group.rounds, {}, None, moment, (), error=error)
        return group.round

    async def _asked(self, group: _Group, moment: float) -> _Round:
        engines = group.members[0].selection.engines
        select = selector([member.selection.match for member in group.members])
        searching = moment >= group.search_at
        try:
            async with asyncio.timeout(self.config.timeout):
                if searching:
                    group.forms = await self._forms(engines, select, group.forms)
                plans = plan(engines, group.forms, select, evidence=searching)
                answers = await self._answers(plans)
        except TimeoutError as error:
            text = f"its queries took longer than {self.config.timeout:g} s together"
            raise FetchError(Outcome.TIMEOUT, text) from error
        found = await asyncio.to_thread(_divided, answers, plans, group)
        if searching:
            group.searched(moment, complete=all(map(_has_engine, found.values())))
        lacking = tuple(dict.fromkeys(word for it in answers for word in it.lacking))
        at = next((it.moment for it in answers if it.moment is not None), None)
        return _Round(group.rounds, found, at, moment, lacking, searching)

    async def _forms(
        self, engines: Sequence[Engine], select: str, known: Sequence[Form]
    ) -> tuple[Form, ...]:
        """Return the spellings in use; those known before stay while part of the data is out."""
        plans = search(engines, select)
        answers = await self._all([(it, None) for it in plans.queries])
        marks = {it.metric.get(MARK, "") for answer in answers for it in answer.series}
        found = [asked.form for mark, asked in plans.marks.items() if mark in marks]
        kept = known if any(answer.lacking for answer in answers) else ()
        return tuple(dict.fromkeys((*found, *kept)))

    async def _answers(self, plans: Plan) -> list[Answer]:
        """Ask the first query, and the others for the moment at which that one was evaluated."""
        first, *others = plans.queries
        answer = await self._client.query(first, None)
        return [answer, *await self._all([(it, answer.moment) for it in others])]

    async def _all(self, queries: Sequence[tuple[str, float | None]]) -> list[Answer]:
        try:
            async with asyncio.TaskGroup() as tasks:
                asked = [tasks.create_task(self._client.query(query, at)) for query, at in queries]
        except ExceptionGroup as errors:
            failed = next((it for it in errors.exceptions if isinstance(it, FetchError)), None)
            if failed is None:
                raise
            raise FetchError(failed.outcome, str(failed)) from errors
        return [task.result() for task in asked]


def _has_engine(found: Sequence[Found]) -> bool:
    return any(asked.kind == "sample" and asked.form != NO_FORM for asked, _ in found)


def _batches(members: Sequence[Member], most: int) -> Iterator[tuple[Member, ...]]:
    """Cut targets into batches whose selector stays short."""
    batch: list[Member] = []
    for member in members:
        matches = [it.selection.match for it in (*batch, member)]
        if batch and (len(batch) >= most or len(selector(matches).encode()) > MAX_SELECTOR_BYTES):
            yield tuple(batch)
            batch = []
        batch.append(member)
    if batch:
        yield tuple(batch)


def _divided(
    answers: Sequence[Answer], plans: Plan, group: _Group
) -> dict[tuple[str, ...], list[Found]]:
    """Divide series by the values of the labels that the group's targets are matched by."""
    keys = group.keys
    found: dict[tuple[str, ...], list[Found]] = {
        tuple(member.selection.match[label] for label in keys): [] for member in group.members
    }
    for answer in answers:
        for series in answer.series:
            asked = plans.marks.get(series.metric.get(MARK, ""))
            mine = found.get(tuple(series.metric.get(label, "") for label in keys))
            if asked is not None and mine is not None and len(mine) < MAX_SAMPLES:
                mine.append((asked, series))
    return found
