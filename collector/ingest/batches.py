"""Generations to batches: all arithmetic over positions, for many answers in one pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from typing import TypeVar

import numpy as np

from collector.ingest.generations import LOOP_WINDOW, VALUE_SIGNALS, Generation
from collector.ingest.identity import Place
from collector.ingest.records import Missing, Sent
from detectors.entropy import (
    LOGITS_ABOVE_NATS,
    AnswerTokens,
    answer_features,
    clean_logprobs,
    tail_means,
)
from detectors.features import LOOP_WINDOW_TOKENS, looping
from detectors.records import Batch, FloatArray, IntArray
from detectors.signals import grid_of

Key = TypeVar("Key", bound=Hashable)
_NONE = np.empty(0)
_DOUBLE_BYTES = 8
_PIECE_BYTES = 400_000
MOST_COUNTED = 64  # batches of a body, the largest: counts weigh 40 kB each, however few the rows


@dataclass(frozen=True, slots=True)
class Batches:
    """The arrays of many generations.

    `logits_lines` are lines whose logprobs are above 0: nothing of them is in `batches`.
    """

    batches: tuple[Batch, ...]
    sent: tuple[Sent, ...]
    partial: Mapping[str, int]
    logits_lines: frozenset[int]


def make_batches(generations: Sequence[Generation]) -> Batches:
    """Return the batches of `generations`, one a (tier, target, segment, variant)."""
    bad = np.flatnonzero(_peaks(generations) > LOGITS_ABOVE_NATS).tolist()
    bad_lines = frozenset(generations[row].line for row in bad)
    kept = [generation for generation in generations if generation.line not in bad_lines]
    partial: Counter[str] = Counter(chain.from_iterable(one.missing for one in kept))
    if not kept:
        return Batches((), (), partial, bad_lines)
    columns = _columns(kept, partial)
    groups = _rows_by([generation.place for generation in kept])
    largest = frozenset(sorted(groups, key=lambda place: -len(groups[place]))[:MOST_COUNTED])
    batches = tuple(
        _batch(place, rows, kept, columns, counted=place in largest)
        for place, rows in groups.items()
    )
    return Batches(batches, _sent(groups.values(), kept), partial, bad_lines)


def _sent(groups: Iterable[IntArray], generations: Sequence[Generation]) -> tuple[Sent, ...]:
    """Return ids and sampling ratios of the rows of each batch."""
    ids = np.fromiter((one.identity for one in generations), np.uint64, len(generations))
    ratios = np.fromiter((one.ratio for one in generations), np.float64, len(generations))
    sampled = bool((ratios != 1.0).any())
    return tuple(Sent(ids[rows], ratios[rows] if sampled else _NONE) for rows in groups)


def _rows_by(keys: Iterable[Key]) -> dict[Key, IntArray]:
    """Return the rows of each key, in order."""
    found: dict[Key, list[int]] = {}
    for row, key in enumerate(keys):
        found.setdefault(key, []).append(row)
    return {key: np.array(rows) for key, rows in found.items()}


def _peaks(generations: Sequence[Generation]) -> FloatArray:
    """Return the highest logprob of each generation, sampled or listed; -inf without any."""
    found = np.full(len(generations), -np.inf)
    for lists in ([one.sampled for one in generations], [one.top for one in generations]):
        flat, offsets = _flat(lists)
        filled = np.flatnonzero(np.diff(offsets))
        if len(filled):
            peaks = np.fmax.reduceat(flat, offsets[filled])
            found[filled] = np.fmax(found[filled], peaks)
    return found


def _flat(lists: Sequence[bytes]) -> tuple[FloatArray, IntArray]:
    """Join packed doubles end to end; returns them, and where each list begins and ends."""
    lengths = np.fromiter(map(len, lists), dtype=np.int64, count=len(lists)) // _DOUBLE_BYTES
    flat = np.frombuffer(b"".join(lists), dtype=np.float64)
    return flat, np.concatenate([[0], np.cumsum(lengths)])


def _columns(generations: Sequence[Generation], partial: Counter[str]) -> dict[str, FloatArray]:
    """Return every column, shape (generations,), with NaN where a generation has no value."""
    values = np.array([generation.values for generation in generations], dtype=np.float64)
    columns = {name: values[:, place] for place, name in enumerate(VALUE_SIGNALS)}
    tails = np.full(len(generations), np.nan)
    kinds = _rows_by(
        (one.candidates.k, one.candidates.added, bool(one.sampled), one.vocabulary)
        for one in generations
    )
    for (k, added, sampled, vocabulary), rows in kinds.items():
        if not sampled:
            continue
        for piece in _pieces(rows, generations):
            tokens = _answer_tokens([generations[row] for row in piece], k, added=added)
            for name, found in answer_features(tokens, vocabulary).items():
                columns.setdefault(name, np.full(len(generations), np.nan))[piece] = found
            tails[piece] = tail_means(-tokens.sampled, tokens.offsets, LOOP_WINDOW_TOKENS)
            lost = np.logical_or.reduceat(np.isnan(tokens.sampled), tokens.offsets[:-1])
            if lost.any():
                partial[Missing.MISSING_LOGPROBS] += int(np.count_nonzero(lost))
    columns["output_looping"] = looping(
        values[:, LOOP_WINDOW], columns["output_compression_ratio"], tails
    )
    return columns


def _pieces(rows: IntArray, generations: Sequence[Generation]) -> list[IntArray]:
    """Cut rows into pieces of about as many logprobs as fit into a processor's cache."""
    size = sum(len(generations[row].top) + len(generations[row].sampled) for row in rows.tolist())
    return np.array_split(rows, min(size // _PIECE_BYTES + 1, len(rows)))


def _answer_tokens(generations: Sequence[Generation], k: int, *, added: bool) -> AnswerTokens:
    """Lay out the positions of answers whose lists are read alike; none of them is empty."""
    sampled, offsets = _flat([generation.sampled for generation in generations])
    counts = np.frombuffer(b"".join([one.counts for one in generations]), dtype=np.uint8)
    full = np.repeat([generation.candidates.full for generation in generations], np.diff(offsets))
    width = int(counts.max(initial=0)) if k else 0
    top = clean_logprobs(
        _flat([generation.top for generation in generations])[0] if width else _NONE
    )
    if len(top) == len(counts) * width:
        listed = top.reshape(len(counts), width)
    else:
        listed = np.full((len(counts), width), np.nan)
        listed[np.arange(width) < counts[:, None]] = top
    return AnswerTokens(
        sampled=clean_logprobs(sampled),
        top=listed,
        k=k,
        outside=counts > k if added else None,
        complete=counts >= full,
        offsets=offsets,
    )


def _batch(
    place: Place,
    rows: IntArray,
    generations: Sequence[Generation],
    columns: Mapping[str, FloatArray],
    *,
    counted: bool,
) -> Batch:
    """Return one batch; columns without a single value are left out."""
    chosen = {name: column[rows] for name, column in columns.items()}
    chosen = {name: column for name, column in chosen.items() if not np.isnan(column).all()}
    newest = max(generations[row].at for row in rows.tolist())
    return Batch(
        tier=place.tier,
        target=place.target,
        segment=place.segment,
        variant=place.variant,
        newest_at=datetime.fromtimestamp(newest, UTC),
        size=len(rows),
        columns=chosen,
        counts={name: grid_of(name).count(column) for name, column in chosen.items()}
        if counted
        else {},
    )
