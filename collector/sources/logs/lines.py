"""Follows the logs of a server, of the kernel or of a gateway, and counts known troubles in them.

Nothing of a line's text is kept or told: codes and numbers leave, and the words about them are
those of `log_patterns.py`.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from collector.sources.bounded_patterns import BoundedPattern, compile_bounded
from collector.sources.logs.amounts import TorchOom, size_text
from collector.sources.logs.crosscheck import CrossCheck
from collector.sources.logs.follow import LogFollower, Piece
from collector.sources.logs.limits import StatedLimits
from collector.sources.logs.patterns import EVENTS, TORCH_OOM, XID
from collector.sources.logs.scan import Hits, LauncherRecord, OwnPatterns, facts, plain, scan
from collector.sources.looking import Eye, LookSource, Moment, Seen, in_thread
from collector.sources.protocols import Place, Source, Tools
from collector.values import Name, Seconds
from detectors.records import Reading
from detectors.remarks import Finding

PIECE_BYTES: Final = 262_144
PIECES: Final = 16  # of one file in one read, 4 MiB
RECENT_SECONDS: Final = 600.0
_MOST_READS: Final = 1024  # remembered of one code
_ADVICE: Final = {row.code: row.advice for row in reversed(EVENTS) if row.advice}
_PASSED_OVER: Final = "bytes passed over"
_BEHIND_BYTES: Final = 1_048_576


class LogPatternConfig(BaseModel):
    """A pattern of your own: lines that have it are counted under its code."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    code: Name = Field(description="What such lines are counted as.")
    regex: BoundedPattern = Field(description="The pattern; `*` and `+` repeat at most 128 times.")


class LogConfig(BaseModel):
    """Log files of a target, followed; lines of known troubles are counted by reason."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    kind: Literal["log"] = "log"
    path: Path = Field(description="The file; it may appear later.")
    files: tuple[Path, ...] = Field(
        default=(), max_length=7, description="Further files, such as the kernel's log."
    )
    from_end: bool = Field(
        default=True,
        description="Count what is written from now on; of what is there only limits are read.",
    )
    patterns: tuple[LogPatternConfig, ...] = Field(
        default=(), max_length=32, description="Patterns beside the built-in ones."
    )
    interval: Seconds = Field(default=10.0, description="Time between reads.")

    def build(self, place: Place, tools: Tools) -> Source:
        """Return the source; nothing is opened."""
        log = _Log(self, tools)
        offers = frozenset({"log_events_total"})
        look = in_thread(log.look, self.kind, tools)
        return LookSource(Eye(self.kind, offers, look, log.notice, log.close), place, tools)


class _Log:
    """The files of one target, and what was counted in them."""

    def __init__(self, settings: LogConfig, tools: Tools) -> None:
        paths = (settings.path, *settings.files)
        self._files = [LogFollower(path, from_end=settings.from_end) for path in paths]
        self._launchers = [LauncherRecord() for _ in paths]
        rows = [(it.code, compile_bounded(it.regex)) for it in settings.patterns]
        self._own = OwnPatterns(rows, tools.monotonic)
        self._counts: Counter[str] = Counter()
        self._recent: dict[str, deque[tuple[float, int]]] = {}
        self._last_oom: TorchOom | None = None
        self._roomy: tuple[float, TorchOom] | None = None
        self._limits = StatedLimits()
        self._check = CrossCheck()

    def notice(self, reading: Reading) -> None:
        """Hear what the engine's page says: a server that serves it has started."""
        self._check.notice(reading)
        if reading.up and reading.identity.engine:
            self._limits.starting = False

    async def close(self) -> None:
        for file in self._files:
            file.close()

    def look(self, moment: Moment) -> Seen:
        """Read what was written since the last look, within bounds."""
        skipped: Counter[str] = Counter()
        findings: list[Finding] = []
        problems: list[str] = []
        self._own.begin()
        for number, file in enumerate(self._files):
            before = skipped[_PASSED_OVER]
            last = self._read(file, number, moment, skipped)
            if last.problem:
                problems.append(last.problem)
            findings += _behind(file.path, last, skipped[_PASSED_OVER] - before)
        if len(problems) == len(self._files):
            return Seen(problem="; ".join(problems), outcome="unusable", skipped=skipped)
        findings += [Finding("log_unreadable", "log_events_total", text) for text in problems]
        findings += self._check.findings(moment.monotonic_seconds)
        findings += self._events(moment.monotonic_seconds)
        skipped["no time for patterns"] += self._own.unseen_lines
        parts = {code: float(count) for code, count in sorted(self._counts.items())}
        values = {**self._limits.values(), "log_events_total": sum(parts.values())}
        return Seen(
            values=values,
            parts={"log_events_total": parts},
            findings=tuple(findings),
            skipped=skipped,
        )

    def _read(self, file: LogFollower, number: int, moment: Moment, skipped: Counter[str]) -> Piece:
        """Read up to 4 MiB of a file; return the last piece."""
        piece = Piece()
        for _ in range(PIECES):
            piece = file.read(PIECE_BYTES)
            self._take_history(file, number)
            skipped["long line"] += piece.long_lines
            skipped["truncated"] += piece.restarts
            skipped[_PASSED_OVER] += piece.jumped_bytes
            if piece.problem or not piece.data:
                break
            self._take(piece.data, number, moment.monotonic_seconds)
            if not piece.lag_bytes:
                break
        return piece

    def _take_history(self, file: LogFollower, number: int) -> None:
        """Read the limits, and nothing else, from what stood in a file when it was entered."""
        if not file.history:
            return
        text, file.history = plain(file.history), b""
        self._limits.take(facts(text), self._launchers[number].take(text))

    def _take(self, data: bytes, number: int, now: float) -> None:
        hits = scan(data)
        self._limits.take(hits.facts, self._launchers[number].take(plain(data)))
        self._check.take(hits, now)
        self._remember_oom(hits, now)
        for code, count in (hits.counts + self._own.count(data)).items():
            self._counts[code] += count
            recent = self._recent.setdefault(code, deque(maxlen=_MOST_READS))
            recent.append((now, count))

    def _remember_oom(self, hits: Hits, now: float) -> None:
        self._last_oom = hits.oom or self._last_oom
        if hits.oom_with_room is not None:
            self._roomy = (now, hits.oom_with_room)

    def _events(self, now: float) -> Iterator[Finding]:
        """Say what happened in the last ten minutes, and that a server is on its way up."""
        for code, reads in self._recent.items():
            while reads and now - reads[0][0] > RECENT_SECONDS:
                reads.popleft()
            advice = _ADVICE.get(XID if code.startswith(XID) else code)
            if reads and advice:
                count = sum(number for _, number in reads)
                lines = "1 log line" if count == 1 else f"{count} log lines"
                amounts = _amounts(self._last_oom) if code == TORCH_OOM and self._last_oom else ""
                text = f"on {lines} in the last 10 min{amounts}: {advice}"
                yield Finding(code, "log_events_total", text)
        if self._roomy is not None and now - self._roomy[0] <= RECENT_SECONDS:
            yield _with_room(self._roomy[1])
        for code in sorted(self._own.slow):
            text = (
                f"pattern {code!r} took over 0.1 s for one line and is left out; write it simpler"
            )
            yield Finding("pattern_too_slow", "log_events_total", text)
        if self._limits.starting:
            text = "the log says that the server is starting; it answers when the model is loaded"
            yield Finding("engine_starting", "log_events_total", text)


def _behind(path: Path, last: Piece, passed_over: int) -> Iterator[Finding]:
    if last.lag_bytes > _BEHIND_BYTES:
        text = (
            f"log {path}: {size_text(last.lag_bytes)} are still to be read, it grows faster than "
            "4 MiB a read; log less, or set a shorter interval"
        )
        yield Finding("log_behind", "log_events_total", text)
    if passed_over:
        text = (
            f"log {path}: more than 64 MiB behind, so {size_text(passed_over)} of it were passed "
            "over; log less, or set a shorter interval"
        )
        yield Finding("log_passed_over", "log_events_total", text)


def _amounts(oom: TorchOom) -> str:
    known = (
        (oom.free, "free"),
        (oom.total, "in all"),
        (oom.reserved, "reserved by torch"),
        (oom.unallocated, "of that unused"),
    )
    said = [f"{size_text(size)} {word}" for size, word in known if size is not None]
    return f" (tried {', '.join([size_text(oom.tried), *said])})"


def _with_room(oom: TorchOom) -> Finding:
    if oom.free is not None and oom.tried <= oom.free:
        advice = (
            "the driver itself had enough: the process has a memory fraction set, or another "
            "process took the memory and gave it back"
        )
    else:
        advice = (
            "no piece was large enough, the memory is fragmented: set "
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, or restart"
        )
    text = f"GPU memory ran out with enough of it free{_amounts(oom)}: {advice}"
    return Finding("oom_with_room", "allocator_largest_free_bytes", text)
