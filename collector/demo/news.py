"""What is new in a look at the service: each transition once, each verdict when it is raised."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass

from collector.demo.facts import Facts, TransitionFact, VerdictFact

_VERDICTS_A_CHAPTER = 4  # told of one cause; a shift moves many signals at once
_REMEMBERED = 1_000
_RAISED = ("warning", "critical")


@dataclass(frozen=True, slots=True)
class NewsItem:
    """One line of the timeline; `kind` is a level or the kind of a transition.

    `cause` is that of a verdict, empty for a transition.
    """

    kind: str
    text: str
    cause: str = ""


class News:
    """Remembers what was told, bounded."""

    def __init__(self) -> None:
        self._levels: dict[tuple[str, str, str], str] = {}
        self._transitions: deque[TransitionFact] = deque(maxlen=_REMEMBERED)
        self._refusals: set[str] = set()
        self._told: Counter[str] = Counter()

    def new_chapter(self) -> None:
        """Tell raised verdicts and refusals anew."""
        self._told.clear()
        self._refusals.clear()

    def of(self, facts: Facts) -> list[NewsItem]:
        """Return what was not told before, verdicts first."""
        return [*self._verdicts(facts), *self._changes(facts)]

    def held_back(self) -> list[str]:
        """Say how many more verdicts were raised in this chapter than were told."""
        more = {
            cause: count - _VERDICTS_A_CHAPTER
            for cause, count in self._told.items()
            if count > _VERDICTS_A_CHAPTER
        }
        return [f"{count} more verdicts of {cause}" for cause, count in more.items()]

    def _verdicts(self, facts: Facts) -> list[NewsItem]:
        items = []
        for row in facts.verdicts:
            stream = (row.scope, row.signal, row.detector)
            before = self._levels.get(stream)
            if len(self._levels) < _REMEMBERED or stream in self._levels:
                self._levels[stream] = row.level
            if row.level in _RAISED and before not in _RAISED and self._may_tell(row):
                items.append(NewsItem(row.level, row.words, row.cause))
        return items

    def _may_tell(self, row: VerdictFact) -> bool:
        cause = row.cause or row.signal
        self._told[cause] += 1
        return self._told[cause] <= _VERDICTS_A_CHAPTER

    def _changes(self, facts: Facts) -> list[NewsItem]:
        items = []
        for row in sorted(facts.transitions, key=lambda row: row.at):
            if row in self._transitions:
                continue
            self._transitions.append(row)
            if row.kind == "suppressed":
                if row.breaker in self._refusals:
                    continue
                self._refusals.add(row.breaker)
            items.append(NewsItem(row.kind, row.words))
        return items
