"""What intake takes and gives: places, limits, and the answer to one body."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from detectors.records import Batch, FloatArray

MEBIBYTE = 1 << 20


class Reason(StrEnum):
    """Why a line or a body was refused: values of the metric label `reason`."""

    MALFORMED = "malformed"  # no JSON, or not of the expected shape
    OVERSIZED = "oversized"  # a line over the limit; its prompt size is counted if readable
    TOO_MANY_LINES = "too_many_lines"
    TOO_MANY_CHOICES = "too_many_choices"  # answers in one line
    TOO_MANY_GENERATIONS = "too_many_generations"  # answers in one body
    ENGINE_ERROR = "engine_error"  # the response is an error body or holds an error event
    NO_ANSWER = "no_answer"
    UNKNOWN_TIER = "unknown_tier"
    LOGITS = "logits"  # logprobs above 0: the engine runs in a logits mode
    TOO_LARGE = "too_large"  # a body over the limit
    BOMB = "bomb"
    BAD_COMPRESSION = "bad_compression"
    UNKNOWN_ENCODING = "unknown_encoding"


class Missing(StrEnum):
    """What a generation that was taken in lacks: values of the metric label `reason`."""

    NO_PROMPT = "no_prompt"
    NO_LOGPROBS = "no_logprobs"
    NO_CANDIDATES = "no_candidates"  # no list of candidates: no entropy
    MISSING_LOGPROBS = "missing_logprobs"  # null, clamped or infinite ones among them
    SHORT_CANDIDATES = "short_candidates"  # candidates of equal text collapsed into one
    PROMPT_ORDER = "prompt_order"  # prompt logprobs that do not tell the prompt's own token
    ECHO_UNSPLIT = "echo_unsplit"  # echoed prompt and answer cannot be told apart
    UNFINISHED = "unfinished"  # no finish reason
    BAD_TIME = "bad_time"  # not a time, or too far from arrival: arrival is used
    BAD_LATENCY = "bad_latency"
    UNKNOWN_TARGET = "unknown_target"
    ONLY_PROMPT_SIZE = "only_prompt_size"  # of an oversized line
    DUPLICATE = "duplicate"  # its id was taken before: told as accepted, not counted again
    BAD_SAMPLE_RATIO = "bad_sample_ratio"  # not over 0 and up to 1: taken as 1
    MIXED_SAMPLE_RATIOS = "mixed_sample_ratios"  # another one than the first of its tier's tick


@dataclass(frozen=True, slots=True)
class TierNames:
    """The names of one tier that lines may use, and the size of its model's vocabulary.

    A target or segment that is not listed gets no stream of its own: senders cannot make streams
    without end.
    """

    targets: frozenset[str] = frozenset()
    segments: frozenset[str] = frozenset()
    vocabulary_tokens: int = 128_000


@dataclass(frozen=True, slots=True)
class Defaults:
    """What holds for lines that do not say it themselves, and what they are checked against.

    `arrival` is when the body came (UTC). With `live`, a line's own time serves age and skew only
    and is dropped if it is too far from `arrival`; without (files, replay, baselines from history)
    it is taken as it is.
    """

    arrival: datetime
    tiers: Mapping[str, TierNames]
    tier: str = ""
    target: str = ""
    segment: str = ""
    live: bool = True


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of what one body may cost. All sizes are after decompression."""

    max_line_bytes: int = 16 * MEBIBYTE
    max_batch_bytes: int = 64 * MEBIBYTE
    max_lines: int = 100_000
    max_choices: int = 1_024  # of one line; a choice of 12 bytes costs over 1 kB
    max_generations: int = 200_000  # of one body: about 240 MB in the worker
    max_chunks: int = 65_536  # of one streamed answer
    max_rejected: int = 100  # listed one by one; more are counted
    max_expansion_ratio: float = 200.0  # logged logprobs shrink about tenfold, never this much
    max_window_bytes: int = 8 * MEBIBYTE  # of zstd: RFC 8878's advice
    max_future_seconds: float = 300.0
    max_age_seconds: float = 7 * 86_400.0


@dataclass(frozen=True, slots=True)
class Rejected:
    """A line that was refused: its number (from 1), a code, and a sentence without its content."""

    line: int
    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class Sent:
    """What senders said of the rows of a batch beside their numbers, in the order of the rows.

    `ids` (n,) is a hash of each line's id, 0 where it has none; rows of one line are neighbours and
    share it. Empty if no line has one. `ratios` (n,) is the share of the sender's requests that
    these were sampled with, 1 where nothing is said; empty if no line says one.
    """

    ids: NDArray[np.uint64] = field(default_factory=lambda: np.empty(0, np.uint64))
    ratios: FloatArray = field(default_factory=lambda: np.empty(0))


@dataclass(frozen=True, slots=True)
class Decoded:
    """What became of one body: generations as arrays, and the fate of every line.

    `accepted` counts lines, not generations: a line with ``n: 3`` is one line and three rows.
    Every line is accepted or in `refused` (reason to number of lines); `rejected` lists the first
    of those. `partial` counts generations taken in with something missing, by what. `sent` has one
    entry a batch, or is empty where nothing was said.
    """

    batches: tuple[Batch, ...] = ()
    accepted: int = 0
    rejected: tuple[Rejected, ...] = ()
    refused: Mapping[str, int] = field(default_factory=dict)
    partial: Mapping[str, int] = field(default_factory=dict)
    sent: tuple[Sent, ...] = ()
    ignored: int = 0  # records of an OTLP export that are no finished generation

    @property
    def lines(self) -> int:
        return self.accepted + sum(self.refused.values())

    @property
    def generations(self) -> int:
        return sum(batch.size for batch in self.batches)


class LineError(ValueError):
    """A line that cannot be taken. The message never holds what the line held."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(reason, message)
        self.reason = reason
        self.message = message

    def __str__(self) -> str:
        return self.message


class BodyError(ValueError):
    """A body that cannot be read at all, nothing of it was taken."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(reason, message)
        self.reason = reason
        self.message = message

    def __str__(self) -> str:
        return self.message
