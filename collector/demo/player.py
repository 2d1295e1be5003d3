"""Plays recorded pages of an engine as if it went on for ever.

One page is shown per scrape, so a recording stretches to any scrape interval. Gauges are shown
as recorded. Counters are continued: each page shown adds what that page had added, in the
recording, to the page before it; so they never fall, whatever the order of pages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

_RISING = frozenset({"counter", "histogram"})


@dataclass(frozen=True, slots=True)
class Scene:
    """Which pages are shown: `intro` once, then `loop` for ever (numbers of recorded pages)."""

    name: str
    intro: tuple[int, ...]
    loop: tuple[int, ...]

    def page(self, step: int) -> int:
        """Return the number of the page shown at `step`, counted from 0."""
        if step < len(self.intro):
            return self.intro[step]
        return self.loop[(step - len(self.intro)) % len(self.loop)]


# Of the recording with a full KV cache: at its end 0 to 3 requests run and none waits; in its
# middle the cache is 0.97 to 1.0 full, and those pages are put in the order of their queue.
SCENES: Mapping[str, Scene] = MappingProxyType(
    {
        "normal": Scene("normal", (), (26, 27, 28, 27)),
        "kvfull": Scene("kvfull", (22, 18, 15, 14, 7, 10, 12), (11, 10, 14, 7, 12)),
    }
)


@dataclass(frozen=True, slots=True)
class RecordedPage:
    """One page: its lines, counters as their head only; `added` by head since the page before."""

    lines: tuple[tuple[str, bool], ...]  # text, and whether it is the head of a rising sample
    values: Mapping[str, float]
    added: Mapping[str, float]


def read_recording(bodies: Sequence[str]) -> list[RecordedPage]:
    """Read the bodies of a recording, in order of time."""
    parsed = [_parse(body) for body in bodies]
    befores: list[Mapping[str, float]] = [{}, *(values for _, values in parsed[:-1])]
    return [
        RecordedPage(lines=lines, values=values, added=_added(before, values))
        for (lines, values), before in zip(parsed, befores, strict=True)
    ]


def _parse(body: str) -> tuple[tuple[tuple[str, bool], ...], dict[str, float]]:
    lines: list[tuple[str, bool]] = []
    values: dict[str, float] = {}
    kind = ""
    for line in body.splitlines():
        if line.startswith("#"):
            words = line.split(" ")
            kind = words[3] if words[1] == "TYPE" else kind
            lines.append((line, False))
        elif kind in _RISING:
            head, _, value = line.rpartition(" ")
            values[head] = float(value)
            lines.append((head, True))
        else:
            lines.append((line, False))
    return tuple(lines), values


def _added(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    return {head: max(0.0, value - before.get(head, 0.0)) for head, value in after.items()}


class Player:
    """Shows the pages of one target; `play` changes the scene, `next_page` shows the next one."""

    def __init__(self, recording: Sequence[RecordedPage], *, scene: Scene, start: int = 0) -> None:
        self._recording = recording
        self._scene = scene
        self._step = start
        self._shown = dict(recording[scene.page(start)].values)

    @property
    def scene(self) -> str:
        return self._scene.name

    def play(self, scene: Scene) -> None:
        """Start `scene` with the next page; a scene that is playing already goes on."""
        if scene.name != self._scene.name:
            self._scene = scene
            self._step = 0

    def next_page(self) -> str:
        """Return the body of the next page, counters continued."""
        page = self._recording[self._scene.page(self._step)]
        self._step += 1
        for head, more in page.added.items():
            self._shown[head] = self._shown.get(head, 0.0) + more
        return "".join(
            f"{text} {self._shown[text]!r}\n" if rising else f"{text}\n"
            for text, rising in page.lines
        )
