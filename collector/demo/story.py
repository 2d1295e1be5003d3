"""Tells the incident: acts, looks, and keeps score of what was seen and when."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from collector.demo.chapters import RAISED, Chapter, Levers, Moment, Since
from collector.demo.client import Counts
from collector.demo.facts import Facts, WatchError
from collector.demo.news import News

_LOOK_SECONDS = 0.5
_MAX_BLIND_LOOKS = 20
_FADING = " (of the chapter before, whose requests are in the window still)"


class StoryError(Exception):
    """The story cannot go on; the message says why and where to look."""


class Teller(Protocol):
    """Where the story is told."""

    def chapter(self, number: int, chapter: Chapter, seconds: float) -> None: ...

    def event(self, seconds: float, kind: str, text: str) -> None: ...

    def mark(self, seconds: float, name: str, text: str) -> None: ...

    def status(self, seconds: float, moment: Moment) -> None: ...


@dataclass(frozen=True, slots=True)
class Told:
    """How a chapter went: for each mark the second at which it was seen, or None."""

    chapter: Chapter
    began_seconds: float
    marks: dict[str, float | None]

    @property
    def passed(self) -> bool:
        return all(seconds is not None for seconds in self.marks.values())


@dataclass(frozen=True, slots=True)
class Times:
    """When things first happened, in seconds since the story began; None: never."""

    first_warning: float | None = None
    opened: float | None = None
    closed: float | None = None


@dataclass(slots=True)
class Story:
    """One telling. `look` reads the service and the client, `alive` raises if a part has died."""

    look: Callable[[], Awaitable[Moment]]
    alive: Callable[[], None]
    levers: Levers
    teller: Teller
    now: Callable[[], datetime]
    monotonic: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]]
    _began: float = 0.0
    _blind: int = 0
    _last: Moment | None = None
    _news: News = field(default_factory=News)
    _firsts: dict[str, float] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """Seconds since the story began."""
        return self.monotonic() - self._began

    @property
    def times(self) -> Times:
        firsts = self._firsts
        return Times(firsts.get("warning"), firsts.get("open"), firsts.get("closed"))

    async def tell(self, chapters: Sequence[Chapter]) -> list[Told]:
        """Tell all chapters in order; a chapter that is not seen does not stop the next one.

        Raises:
            StoryError: If the service stays out of sight; whatever `alive` raises.
        """
        self._began = self.monotonic()
        return [await self._chapter(place, chapter) for place, chapter in enumerate(chapters, 1)]

    async def _chapter(self, number: int, chapter: Chapter) -> Told:
        began = self.seconds
        self.teller.chapter(number, chapter, began)
        self._news.new_chapter()
        since = Since(self.now(), self._last.counts if self._last else Counts())
        await chapter.act(self.levers)
        marks: dict[str, float | None] = dict.fromkeys(mark.name for mark in chapter.marks)
        while True:
            await self.sleep(_LOOK_SECONDS)
            self.alive()
            moment = await self._look()
            if moment is not None:
                self._score(chapter, marks, moment, since)
            lasted = self.seconds - began
            done = None not in marks.values() and lasted >= chapter.least_seconds
            if done or lasted >= chapter.most_seconds:
                break
        for held_back in self._news.held_back():
            self.teller.event(self.seconds, "more", held_back)
        return Told(chapter, began, marks)

    async def _look(self) -> Moment | None:
        try:
            moment = await self.look()
        except WatchError as error:
            self._blind += 1
            self.teller.event(self.seconds, "blind", str(error))
            if self._blind >= _MAX_BLIND_LOOKS:
                msg = f"{self._blind} looks at the service in a row failed; the last: {error}"
                raise StoryError(msg) from error
            return None
        self._blind = 0
        self._last = moment
        return moment

    def _score(
        self, chapter: Chapter, marks: dict[str, float | None], moment: Moment, since: Since
    ) -> None:
        seconds = self.seconds
        self._remember(moment.facts, seconds)
        news = self._news.of(moment.facts)
        for item in news:
            of_before = _FADING if item.cause in chapter.fading else ""
            self.teller.event(seconds, item.kind, item.text + of_before)
        told = {item.text for item in news}
        for mark in chapter.marks:
            if marks[mark.name] is None:
                text = mark.seen(moment, since)
                if text:
                    marks[mark.name] = seconds
                    self.teller.mark(seconds, mark.name, "" if text in told else text)
        self.teller.status(seconds, moment)

    def _remember(self, facts: Facts, seconds: float) -> None:
        if any(row.level in RAISED for row in facts.verdicts):
            self._firsts.setdefault("warning", seconds)
        for kind in ("open", "closed"):
            if any(row.kind == kind and row.target for row in facts.transitions):
                self._firsts.setdefault(kind, seconds)
