"""What the parts of a comparison hand to each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from detectors.records import BoolArray, FloatArray

MEBIBYTE = 1 << 20


class Refusal(StrEnum):
    """Why a line cannot be used."""

    MALFORMED = "malformed"
    OVERSIZED = "oversized"
    ENGINE_ERROR = "engine_error"
    NO_LOGPROBS = "no_logprobs"
    LOGITS = "logits"
    PROMPT_ORDER = "prompt_order"
    NO_KEY = "no_key"
    TWICE = "twice"


class LineProblemError(ValueError):
    """Why a line is left out; the message never holds text of the line."""

    def __init__(self, reason: Refusal, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class FileProblemError(ValueError):
    """Why a file cannot be read: path, line, what to do."""


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """Bounds of what is held at once."""

    line_bytes: int = 16 * MEBIBYTE
    waiting_lines: int = 100_000
    waiting_bytes: int = 256 * MEBIBYTE
    sample_lines: int = 1_000
    sample_bytes: int = 32 * MEBIBYTE


@dataclass(frozen=True, slots=True)
class RawLine:
    """One line of a file; `number` counts from 1, `data` is empty where it was too long."""

    number: int
    data: bytes
    oversized: bool = False


@dataclass(frozen=True, slots=True)
class Sequenced:
    """Tokens of one text in order: shapes (n,), lists as long.

    `labels` are the tokens' texts (`token_id:7` where only the id is known), `ids` their numbers
    where all are known. `logprobs` are nats, NaN where there is none; `clamped` where the engine
    wrote its stand-in for minus infinity. `tops` are the surely largest of each position by label
    (empty where there is no list), `k` the largest number of them.
    """

    labels: Sequence[str]
    ids: Sequence[int] | None
    logprobs: FloatArray
    clamped: BoolArray
    tops: Sequence[Mapping[str, float]]
    k: int

    def __len__(self) -> int:
        return len(self.labels)

    def cut(self, start: int, end: int) -> Sequenced:
        """Return the tokens from `start` up to `end`."""
        return Sequenced(
            labels=self.labels[start:end],
            ids=self.ids[start:end] if self.ids is not None else None,
            logprobs=self.logprobs[start:end],
            clamped=self.clamped[start:end],
            tops=self.tops[start:end],
            k=self.k,
        )


@dataclass(frozen=True, slots=True)
class Scored:
    """One line: what the model wrote, and what it scored of the text before.

    `text_digest` is a hash of the answer's text where the response has it: tokens may hold
    special ones that no text shows.
    """

    generated: Sequenced | None
    prompt: Sequenced | None
    stopped: bool = False
    mode: str = ""
    temperature: float | None = None
    text_digest: bytes = b""
