"""The timeline in the terminal: lines that stay, and on a terminal a status line that moves."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from rich.console import Console
from rich.status import Status
from rich.text import Text

from collector.demo.chapters import Chapter, Moment

_PLAIN_STATUS_SECONDS = 10.0
_STYLES: Mapping[str, str] = MappingProxyType(
    {
        "critical": "bold red",
        "warning": "yellow",
        "open": "bold red",
        "shed": "magenta",
        "suppressed": "magenta",
        "half_open": "cyan",
        "closed": "bold green",
        "seen": "bold green",
        "blind": "bold red",
        "PASS": "bold green",
        "FAIL": "bold red",
    }
)


class Timeline:
    """Tells the story on a console; without a terminal it writes plain lines."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Status | None = None
        self._status_at = 0.0

    def start(self) -> None:
        """Show the status line, where there is a terminal."""
        if self._console.is_terminal:
            self._live = self._console.status("starting")
            self._live.start()

    def stop(self) -> None:
        """Take the status line away."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def line(self, text: str = "", style: str = "") -> None:
        """Write a line as it is."""
        self._console.print(Text(text, style=style), soft_wrap=True)

    def chapter(self, number: int, chapter: Chapter, seconds: float) -> None:
        self.line()
        self.line(f"{seconds:6.1f} s  {number}. {chapter.title}", "bold")
        self.line(f"          {chapter.told}", "dim")

    def event(self, seconds: float, kind: str, text: str) -> None:
        self._row(seconds, kind, text)

    def mark(self, seconds: float, name: str, text: str) -> None:
        self._row(seconds, "seen", f"{name}: {text}" if text else name)

    def status(self, seconds: float, moment: Moment) -> None:
        text = f"{seconds:6.1f} s  {status_words(moment)}"
        if self._live is not None:
            self._live.update(text)
        elif seconds - self._status_at >= _PLAIN_STATUS_SECONDS:
            self._status_at = seconds
            self.line(text, "dim")

    def _row(self, seconds: float, kind: str, text: str) -> None:
        row = Text(f"{seconds:6.1f} s  ")
        row.append(f"{kind:<11}", style=_STYLES.get(kind, ""))
        row.append(text)
        self._console.print(row, soft_wrap=True)


def status_words(moment: Moment) -> str:
    """Say in one line how traffic, baselines and breakers stand."""
    counts = moment.counts
    parts = [f"{counts.answered:,} answered", f"{counts.shed:,} shed"]
    collecting = [
        f"{row.scope} {row.requests:,}/{row.needed:,}"
        for tier in moment.facts.tiers
        for row in tier.baselines
        if row.stage == "collecting" and row.requests
    ]
    if collecting:
        parts.append("collecting " + ", ".join(collecting))
    for row in moment.facts.breakers:
        if row.shown_state != "closed" or row.effective_ratio < 1:
            name = f"target {row.target}" if row.target else f"tier {row.tier}"
            parts.append(f"{name} {row.shown_state}, admits {row.effective_ratio:.2f}")
    return " · ".join(parts)
