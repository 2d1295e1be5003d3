"""One event of many: changes that began together are told as one, the strongest first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

TOGETHER = 2  # ticks between the onsets of one event, at most
NAMED = 5  # members that a line names


@dataclass(frozen=True, slots=True)
class Change:
    """A stream that changed: its row, a name for people, tick of the onset, nats earned since.

    `wide` is a stream of the whole, which leads one of a part that has earned as much.
    """

    row: int
    name: str
    onset: int
    nats: float
    wide: bool = False


def grouped(changes: Iterable[Change]) -> tuple[tuple[Change, ...], ...]:
    """Return the events, oldest first, each with the change that earned most in front.

    An event holds all onsets within `TOGETHER` ticks of its first, so it cannot grow link by link
    into an event of everything.

    >>> [[c.name for c in event] for event in grouped(
    ...     [Change(0, "a", 7, 20.0), Change(1, "b", 9, 50.0), Change(2, "c", 10, 5.0)])]
    [['b', 'a'], ['c']]
    """
    events: list[list[Change]] = []
    for change in sorted(changes, key=lambda some: (some.onset, some.row)):
        if events and change.onset - events[-1][0].onset <= TOGETHER:
            events[-1].append(change)
        else:
            events.append([change])
    return tuple(
        tuple(sorted(event, key=lambda some: (-some.nats, not some.wide, some.row)))
        for event in events
    )


def event_words(event: tuple[Change, ...], row: int) -> str:
    """Say what else belongs to the event of a row; nothing if it is alone.

    >>> two = (Change(4, "prompt_tokens", 7, 50.0), Change(1, "max_tokens", 9, 20.0))
    >>> event_words(two, 4), event_words(two, 1)
    ('leads 1 other since then: max_tokens', 'follows prompt_tokens')
    """
    if len(event) == 1:
        return ""
    if event[0].row != row:
        return f"follows {event[0].name}"
    others = [change.name for change in event[1:]]
    more = f" and {len(others) - NAMED} more" if len(others) > NAMED else ""
    many = f"{len(others)} other{'' if len(others) == 1 else 's'}"
    return f"leads {many} since then: {', '.join(others[:NAMED])}{more}"
