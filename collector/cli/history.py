"""Ticks from a file of generation lines: history, on the clock of the lines themselves."""

from __future__ import annotations

import gzip
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, cast

import click
import numpy as np
from rich.console import Console
from rich.progress import Progress

from collector.cli.output import fail
from collector.config import Config
from collector.ingest.decode import decode
from collector.ingest.records import BodyError, Defaults, Limits, TierNames
from collector.state import Lane
from detectors.records import TIER_SCOPE, Batch, FloatArray, Scope, Tick
from detectors.signals import grid_of

MOST_GENERATIONS = 500_000
MOST_TICKS = 1_000  # of one lane; a longer history is cut into longer ticks
_GZIP = b"\x1f\x8b"


@dataclass
class _Gathered:
    """The generations of one lane: when each was, and its signals."""

    seconds: list[float] = field(default_factory=list)
    columns: dict[str, list[FloatArray]] = field(default_factory=dict)
    places: dict[str, list[FloatArray]] = field(default_factory=dict)

    def take(self, batch: Batch) -> None:
        at = np.full(batch.size, batch.newest_at.timestamp())
        self.seconds.extend(at)
        for signal, values in batch.columns.items():
            self.columns.setdefault(signal, []).append(values)
            self.places.setdefault(signal, []).append(at)


@dataclass(frozen=True, slots=True)
class History:
    """The ticks of a file by lane, and how many of its lines were refused, by reason."""

    lanes: dict[Lane, list[Tick]]
    refused: Mapping[str, int]


def ticks_of_file(path: Path, config: Config, *, tier: str, segment: str, now: datetime) -> History:
    """Count the lines of a file into ticks by their own time; no rule about age applies.

    Lines that name another tier are left out. What is refused is counted and said on stderr.
    """
    lanes: dict[Lane, _Gathered] = {}
    refused: Counter[str] = Counter()
    taken = 0
    for line in _lines(path, config.ingest.max_batch_bytes):
        batches, reasons = _decoded(line, config, tier=tier, segment=segment, now=now)
        refused.update(reasons)
        for batch in batches:
            taken += batch.size
            for scope in _scopes(batch):
                lanes.setdefault((tier, scope, batch.variant), _Gathered()).take(batch)
        if taken >= MOST_GENERATIONS:
            click.echo(f"stopped after {taken:,} generations, enough for a baseline", err=True)
            break
    said = refused_words(refused)
    click.echo(f"{path}: {taken:,} generations{'; refused: ' if said else ''}{said}", err=True)
    ticks = {lane: _ticks(lane, found, config.tick, now) for lane, found in lanes.items()}
    return History(ticks, refused)


def refused_words(refused: Mapping[str, int]) -> str:
    """Say how many lines were refused and why; empty if none was.

    >>> refused_words({"malformed": 728, "no_answer": 1})
    '728 lines malformed, 1 line no answer'
    """
    by_number = sorted(refused.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(
        f"{count:,} {'line' if count == 1 else 'lines'} {reason.replace('_', ' ')}"
        for reason, count in by_number
        if count
    )


def _scopes(batch: Batch) -> tuple[Scope, ...]:
    return (TIER_SCOPE, Scope("segment", batch.segment)) if batch.segment else (TIER_SCOPE,)


def _decoded(
    line: bytes, config: Config, *, tier: str, segment: str, now: datetime
) -> tuple[list[Batch], Counter[str]]:
    names = TierNames(
        targets=frozenset(target.id for target in config.tiers[tier].targets),
        segments=frozenset(config.tiers[tier].segments),
        vocabulary_tokens=config.tiers[tier].vocabulary_tokens,
    )
    defaults = Defaults(arrival=now, tiers={tier: names}, tier=tier, segment=segment, live=False)
    limits = Limits(
        max_line_bytes=config.ingest.max_line_bytes, max_batch_bytes=config.ingest.max_batch_bytes
    )
    try:
        found = decode(line, defaults, limits)
    except BodyError as error:
        return [], Counter({error.reason: 1})
    return [batch for batch in found.batches if batch.tier == tier], Counter(found.refused)


def _lines(path: Path, most_bytes: int) -> Iterator[bytes]:
    """Yield the lines of a plain or gzip file, with progress on a terminal."""
    try:
        with path.open("rb") as raw, _progress() as progress:
            packed = raw.peek(2)[:2] == _GZIP
            text = cast("BinaryIO", gzip.GzipFile(fileobj=raw) if packed else raw)
            bar = progress.add_task(f"reading {path.name}", total=path.stat().st_size)
            with closing(text):
                while line := text.readline(most_bytes):
                    if line.strip():
                        yield line
                    progress.update(bar, completed=raw.tell())
    except (OSError, EOFError) as error:
        fail(f"{path}: cannot be read: {error}; give a plain or gzip file of JSON lines")


def _progress() -> Progress:
    console = Console(file=sys.stderr)
    return Progress(console=console, transient=True, disable=not sys.stderr.isatty())


def _ticks(lane: Lane, found: _Gathered, tick_seconds: float, now: datetime) -> list[Tick]:
    """Cut the generations of a lane into ticks, empty ones left out."""
    seconds = np.asarray(found.seconds)
    length = max(tick_seconds, float(np.ptp(seconds)) / MOST_TICKS)
    numbers = np.floor(seconds / length).astype(np.int64)
    columns = {
        signal: (
            np.concatenate(values),
            np.floor(np.concatenate(found.places[signal]) / length).astype(np.int64),
        )
        for signal, values in found.columns.items()
    }
    return [
        Tick(
            tier=lane[0],
            scope=lane[1],
            variant=lane[2],
            number=int(number),
            start=datetime.fromtimestamp(float(number * length), UTC),
            duration_seconds=length,
            age_seconds=max(now.timestamp() - float(number * length), 0.0),
            requests=int(requests),
            counts={
                signal: grid_of(signal).count(values[places == number])
                for signal, (values, places) in columns.items()
            },
        )
        for number, requests in zip(*np.unique(numbers, return_counts=True), strict=True)
    ]
