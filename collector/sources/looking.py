"""A source made of one look: at files of this machine, at its processes, at a cluster's page.

What is looked at and what it means is the look's; who, when, up or not, and a reason for every
signal that it offers and has no value for are added here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import TypeAlias

from collector.sources.fetch import Outcome
from collector.sources.one_thread import OneThread, StuckError
from collector.sources.protocols import Place, ScrapeStats, Tools
from detectors.records import Absence, Reading
from detectors.remarks import Finding, Noticed


@dataclass(frozen=True, slots=True)
class Moment:
    """When a look is taken: aware UTC, and the clock of intervals in seconds."""

    at: datetime
    monotonic_seconds: float


@dataclass(frozen=True, slots=True)
class Seen:
    """What a look saw; with a `problem` nothing else of it is used but findings and changes.

    `outcome` is the code under which the read is counted; `skipped` counts what could not be used.
    """

    values: Mapping[str, float] = field(default_factory=dict)
    parts: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    absent: Mapping[str, Absence] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    noticed: tuple[Noticed, ...] = ()
    restarted: bool = False
    problem: str = ""
    outcome: str = "read"
    skipped: Mapping[str, int] = field(default_factory=dict)


Look: TypeAlias = Callable[[Moment], Awaitable[Seen]]


def in_thread(look: Callable[[Moment], Seen], kind: str, tools: Tools) -> Look:
    """Return a look that is taken in a thread of its own, and waited for within bounds.

    A file can keep its reader for ever, as on a mount whose server is gone; the threads that all
    share would be used up by a few of those.
    """
    thread = OneThread(kind, monotonic=tools.monotonic)

    async def taken(moment: Moment) -> Seen:
        try:
            return await thread.run(partial(look, moment), timeout_seconds=tools.timeout_seconds)
        except StuckError as error:
            text = (
                f"files have not been read for {error.seconds:.0f} s; look at the disk or mount "
                "that they are on, and at the load of this machine"
            )
            return Seen(problem=text, outcome=Outcome.TIMEOUT)

    return taken


async def _nothing_open() -> None:
    pass


@dataclass(frozen=True, slots=True)
class Eye:
    """How a source looks: `offers` is every signal that it may give.

    `notice` is told every scrape of the target's engine page; `close` lets go of what is open.
    """

    kind: str
    offers: frozenset[str]
    look: Look
    notice: Callable[[Reading], None] = lambda _: None
    close: Callable[[], Awaitable[None]] = _nothing_open


class LookSource:
    """Reads through an eye. Not to be read twice at a time."""

    def __init__(self, eye: Eye, place: Place, tools: Tools) -> None:
        self.kind = eye.kind
        self.name = f"{eye.kind}:{place.tier}/{place.target}"
        self._eye = eye
        self._place = place
        self._tools = tools
        self._outcomes: Counter[str] = Counter()
        self._skipped: Counter[str] = Counter()
        self._resets = 0

    def notice(self, reading: Reading) -> None:
        """Hear what the target's engine page says of it."""
        self._eye.notice(reading)

    def stats(self) -> ScrapeStats:
        """Return the counts so far."""
        skipped = {reason: n for reason, n in self._skipped.items() if n}
        return ScrapeStats(dict(self._outcomes), skipped, self._resets)

    async def close(self) -> None:
        """Let go of what the look holds open."""
        await self._eye.close()

    async def read(self) -> Reading:
        """Look once; trouble of what is looked at is in the reading, never raised."""
        tools = self._tools
        started = tools.monotonic()
        seen = await self._eye.look(Moment(tools.now(), started))
        ended = tools.monotonic()
        self._outcomes[seen.outcome] += 1
        self._skipped.update(seen.skipped)
        self._resets += seen.restarted
        took = ended - started
        values = {} if seen.problem else seen.values
        missing = Absence.SCRAPE_FAILED if seen.problem else Absence.NO_SAMPLE
        reasons = {} if seen.problem else seen.absent
        return Reading(
            tier=self._place.tier,
            target=self._place.target,
            source=self.kind,
            at=tools.now(),
            monotonic_seconds=ended,
            scrape_seconds=took,
            values={**values, "up": float(not seen.problem), "scrape_seconds": took},
            parts={} if seen.problem else seen.parts,
            absent={it: reasons.get(it, missing) for it in self._eye.offers - values.keys()},
            restarted=seen.restarted,
            problem=seen.problem,
            findings=seen.findings,
            noticed=seen.noticed,
            neighbour=self._place.neighbour,
        )
