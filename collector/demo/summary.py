"""The end of the demo: what was seen, when, and whether that is a pass."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from collector.demo.client import Counts
from collector.demo.story import Times, Told
from collector.demo.timeline import Timeline


class ChapterResult(msgspec.Struct, frozen=True):
    """A chapter: whether all its marks were seen, and at which second each was."""

    key: str
    title: str
    passed: bool
    marks: dict[str, float | None]


class Summary(msgspec.Struct, frozen=True):
    """The result of one telling; `--json` prints it. Times are seconds since the story began."""

    passed: bool
    seconds: float
    chapters: list[ChapterResult]
    first_warning: float | None
    opened: float | None
    closed: float | None
    answered: int
    shed: int
    refused: int
    failed: int
    skipped: int
    page: str
    folder: str


def summarise(
    told: Sequence[Told], times: Times, counts: Counts, *, seconds: float, places: tuple[str, str]
) -> Summary:
    """Return the summary; `places` are the page's address and the run's folder.

    It passes when every chapter was seen, and a target's breaker opened and closed again.
    """
    chapters = [
        ChapterResult(
            row.chapter.key,
            row.chapter.title,
            row.passed,
            {name: None if at is None else round(at, 1) for name, at in row.marks.items()},
        )
        for row in told
    ]
    there_and_back = times.opened is not None and times.closed is not None
    return Summary(
        passed=bool(chapters) and all(row.passed for row in chapters) and there_and_back,
        seconds=round(seconds, 1),
        chapters=chapters,
        first_warning=_rounded(times.first_warning),
        opened=_rounded(times.opened),
        closed=_rounded(times.closed),
        answered=counts.answered,
        shed=counts.shed,
        refused=counts.refused,
        failed=counts.failed,
        skipped=counts.skipped,
        page=places[0],
        folder=places[1],
    )


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)


def _at(seconds: float | None) -> str:
    return "never" if seconds is None else f"at {seconds:.1f} s"


def show(summary: Summary, timeline: Timeline) -> None:
    """Write the summary as lines."""
    timeline.line()
    timeline.line("Summary", "bold")
    for number, chapter in enumerate(summary.chapters, 1):
        word, style = ("PASS", "bold green") if chapter.passed else ("FAIL", "bold red")
        missing = [name for name, seconds in chapter.marks.items() if seconds is None]
        more = f" (not seen: {', '.join(missing)})" if missing else ""
        timeline.line(f"  {word}  {number}. {chapter.title}{more}", style)
    timeline.line(f"  first warning {_at(summary.first_warning)}")
    timeline.line(f"  target opened {_at(summary.opened)}, closed again {_at(summary.closed)}")
    timeline.line(
        f"  client: {summary.answered:,} answers of 200, {summary.shed:,} of 503 with Retry-After, "
        f"{summary.refused:,} other refusals, {summary.failed:,} without an answer, "
        f"{summary.skipped:,} not sent"
    )
    result = "PASS" if summary.passed else "FAIL"
    timeline.line(
        f"  {result} after {summary.seconds:.0f} s", "bold green" if summary.passed else "bold red"
    )
    timeline.line(f"  logs of the run: {summary.folder}; the folder stays and may be removed")
