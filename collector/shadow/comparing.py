"""Two files to one comparison: join, align, measure, sum up. Nothing grows with the files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from collector.shadow.aligning import Aligned, Misfit, Way, align
from collector.shadow.joining import Join, KeyKind, Pair, SideCounts
from collector.shadow.reading import ScoreReader
from collector.shadow.records import LineProblemError, Refusal, Scored
from detectors.paired import Gate, PairedMemory, add, start
from detectors.paired_tokens import PairedFigures, figures_of

_BLOCK = 256


def _means(figures: PairedFigures) -> dict[str, float]:
    """Return the figures that are averaged over requests, by name."""
    return {
        "k1_nats": figures.k1_nats,
        "kl_lower_nats": figures.kl_lower_nats,
        "js_lower_nats": figures.js_lower_nats,
        "js_upper_nats": figures.js_upper_nats,
        "tv_lower": figures.tv_lower,
        "tv_upper": figures.tv_upper,
    }


@dataclass
class Totals:
    """What is summed over pairs.

    `paired` and `head` are the memories of the gate for k3 and for head + k3; `sums` adds the
    figures by name, `counted` how many requests had each. `modes` and `temperatures` count what
    forbids or weakens the comparison.
    """

    paired: PairedMemory = field(default_factory=start)
    head: PairedMemory = field(default_factory=start)
    ways: Counter[Way] = field(default_factory=Counter)
    misfits: Counter[Misfit] = field(default_factory=Counter)
    sums: dict[str, float] = field(default_factory=dict)
    counted: Counter[str] = field(default_factory=Counter)
    tokens: int = 0
    hidden: int = 0
    listed: int = 0
    disjoint: int = 0
    clamped: int = 0
    answers: int = 0
    equal_answers: int = 0
    other_modes: int = 0
    tempered: int = 0
    ks: Counter[tuple[int, int]] = field(default_factory=Counter)

    def mean(self, name: str) -> float:
        """Return the mean over requests of a figure; NaN if no request had it."""
        count = self.counted[name]
        return self.sums[name] / count if count else float(np.nan)


@dataclass(frozen=True, slots=True)
class Compared:
    """A finished comparison: the totals, the counts of both files, what they were joined by."""

    totals: Totals
    reference: SideCounts
    candidate: SideCounts
    joined_by: KeyKind


def compare(join: Join, gate: Gate) -> Compared:
    """Compare all pairs of a join.

    Raises:
        FileProblemError: If a file cannot be read.
    """
    work = _Work(gate, join.counts)
    for pair in join.pairs():
        work.take(pair)
    work.flush()
    return Compared(work.totals, *join.counts, joined_by=join.kind)


class _Work:
    """Takes pairs one by one; requests are handed to the gate in blocks, in order."""

    def __init__(self, gate: Gate, counts: tuple[SideCounts, SideCounts]) -> None:
        self._gate = gate
        self._counts = counts
        self._reader = ScoreReader()
        self._values: list[float] = []
        self._heads: list[float] = []
        self.totals = Totals()

    def take(self, pair: Pair) -> None:
        sides = []
        for line, counts in zip((pair.reference, pair.candidate), self._counts, strict=True):
            try:
                sides.append(self._reader.read(line.data))
            except LineProblemError as error:
                counts.refuse(line.number, error)
        if len(sides) < len(self._counts):
            return
        reference, candidate = sides
        aligned = align(reference, candidate)
        if aligned.way is Way.FREE and pair.same_request is False:
            aligned = Aligned(Way.FREE, None, Misfit.DIFFERENT_REQUEST)
        self._count(aligned, reference, candidate)
        if aligned.tokens is not None:
            try:
                self._add(figures_of(aligned.tokens), aligned.way)
            except ValueError:
                problem = LineProblemError(Refusal.LOGITS, "candidates add to more than 1")
                self._counts[1].refuse(pair.candidate.number, problem)

    def _count(self, aligned: Aligned, reference: Scored, candidate: Scored) -> None:
        totals = self.totals
        if aligned.misfit is not None:
            totals.misfits[aligned.misfit] += 1
        if aligned.equal is not None:
            totals.answers += 1
            totals.equal_answers += aligned.equal
        totals.clamped += aligned.clamped
        totals.ks[aligned.ks] += 1
        modes = {reference.mode, candidate.mode} - {""}
        totals.other_modes += len(modes) > 1
        totals.tempered += aligned.way is not Way.SCORED and reference.temperature not in {None, 1}

    def _add(self, figures: PairedFigures, way: Way) -> None:
        totals = self.totals
        totals.ways[way] += 1
        totals.tokens += figures.positions
        totals.hidden += figures.hidden
        totals.listed += figures.listed
        totals.disjoint += figures.disjoint
        for name, value in _means(figures).items():
            if not np.isnan(value):
                totals.counted[name] += 1
                totals.sums[name] = totals.sums.get(name, 0.0) + value
        self._values.append(figures.k3_nats)
        if not np.isnan(figures.head_k3_nats):
            self._heads.append(figures.head_k3_nats)
        if len(self._values) >= _BLOCK:
            self.flush()

    def flush(self) -> None:
        """Hand what waits to the gate."""
        totals = self.totals
        totals.paired = _added(totals.paired, self._values, self._gate)
        totals.head = _added(totals.head, self._heads, self._gate)
        self._values, self._heads = [], []


def _added(memory: PairedMemory, values: Iterable[float], gate: Gate) -> PairedMemory:
    return add(memory, np.array(list(values), dtype=np.float64), gate)
