"""Plays recorded pages of an engine as if it went on for ever.

One page is shown per scrape, so a recording stretches to any scrape interval. Gauges are shown
as recorded. Counters are continued: each page shown adds what was added in a recording, so they
never fall, whatever the order of pages. A full scene adds what its own page had added to the page
before it. The calm scene adds a stretch of traffic in which nothing waited, in small parts. Last,
requests are begun or finished so that counters and gauges agree (`collector/demo/balance.py`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from collector.demo.balance import Balance, running_of

_RISING = frozenset({"counter", "histogram"})
CALM_PARTS = 16  # scrapes over which the calm stretch is spread: 3 of its 48 requests a scrape


@dataclass(frozen=True, slots=True)
class Scene:
    """Which pages are shown: `intro` once, then `loop` for ever (numbers of recorded pages)."""

    name: str
    intro: tuple[int, ...]
    loop: tuple[int, ...]
    calm: bool = False  # counters from the calm stretch

    def page(self, step: int) -> int:
        """Return the number of the page shown at `step`, counted from 0."""
        if step < len(self.intro):
            return self.intro[step]
        return self.loop[(step - len(self.intro)) % len(self.loop)]


# Pages of the recording with a full KV cache. At its end 0 to 3 requests run and none waits; in
# its middle the cache is 0.97 to 1.0 full, and those pages are put in the order of their queue.
SCENES: Mapping[str, Scene] = MappingProxyType(
    {
        "normal": Scene("normal", (), (26, 27, 28, 27), calm=True),
        "kvfull": Scene("kvfull", (22, 18, 15, 14, 7, 10, 12), (11, 10, 14, 7, 12)),
    }
)


@dataclass(frozen=True, slots=True)
class RecordedPage:
    """One page: gauges as text by head, rising samples by head, and what those had risen by."""

    gauges: Mapping[str, str]
    rising: Mapping[str, float]
    added: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Recording:
    """Pages in order of time, and the lines of the last one, which has every series.

    A line is a comment, or the head of a sample: its name and labels without the value.
    """

    lines: tuple[str, ...]
    pages: tuple[RecordedPage, ...]


def read_recording(bodies: Sequence[str]) -> Recording:
    """Read the bodies of a recording, in order of time."""
    pages: list[RecordedPage] = []
    lines: list[str] = []
    for body in bodies:
        lines, gauges, rising = _parse(body)
        before = pages[-1].rising if pages else {}
        added = {head: max(0.0, value - before.get(head, 0.0)) for head, value in rising.items()}
        pages.append(RecordedPage(gauges, rising, added))
    return Recording(tuple(lines), tuple(pages))


def _parse(body: str) -> tuple[list[str], dict[str, str], dict[str, float]]:
    lines: list[str] = []
    gauges: dict[str, str] = {}
    rising: dict[str, float] = {}
    kind = ""
    for line in body.splitlines():
        head, _, value = line.rpartition(" ")
        if line.startswith("#"):
            words = line.split(" ")
            kind = words[3] if words[1] == "TYPE" else kind
            lines.append(line)
        elif kind in _RISING:
            rising[head] = float(value)
            lines.append(head)
        else:
            gauges[head] = value
            lines.append(head)
    return lines, gauges, rising


class Player:
    """Shows the pages of one target; `play` changes the scene, `next_page` shows the next one.

    `calm` is what the calm stretch adds, by head of the sample; the calm scene repeats it.
    """

    def __init__(
        self,
        recording: Recording,
        *,
        calm: Mapping[str, float],
        scene: Scene,
        start: int = 0,
    ) -> None:
        self._recording = recording
        self._calm = calm
        self._calm_parts = 0
        self._scene = scene
        self._step = start
        first = recording.pages[scene.page(start)]
        self._shown = dict.fromkeys(recording.pages[-1].rising, 0.0) | dict(first.rising)
        self._gauges = recording.pages[-1].gauges
        self._balance = Balance(self._shown)

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
        page = self._recording.pages[self._scene.page(self._step)]
        self._step += 1
        added = self._next_calm_part() if self._scene.calm else page.added
        for head, more in added.items():
            if head in self._shown:  # the calm stretch is of another server with other series
                self._shown[head] += more
        self._balance.settle(self._shown, running_of({**self._gauges, **page.gauges}))
        return "".join(self._line(text, page) for text in self._recording.lines)

    def _line(self, text: str, page: RecordedPage) -> str:
        if text.startswith("#"):
            return f"{text}\n"
        if text in self._shown:
            return f"{text} {self._shown[text]!r}\n"
        return f"{text} {page.gauges.get(text, self._gauges[text])}\n"

    def _next_calm_part(self) -> dict[str, float]:
        done = self._calm_parts % CALM_PARTS
        self._calm_parts += 1
        return {
            head: _part(value, done + 1) - _part(value, done) for head, value in self._calm.items()
        }


def _part(value: float, parts: int) -> float:
    """Return `parts` sixteenths of a counter's value; whole numbers stay whole."""
    share = value * parts / CALM_PARTS
    return float(math.floor(share)) if value.is_integer() else share
