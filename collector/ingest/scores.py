"""Logprobs of the prompt's own tokens: `prompt_logprobs` maps, echo, and TGI's prefill."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from collector.ingest.answers import Answer
from collector.ingest.prompts import Prompt
from collector.ingest.records import LineError, Reason
from collector.ingest.shapes import PromptEntry, PromptPositions
from detectors.entropy import CLAMP_BELOW_NATS, LOGITS_ABOVE_NATS

Scores = Sequence[float | None]


def mean_score(scores: Scores) -> float:
    """Return the mean logprob in nats, without nulls and clamps; NaN if none is left.

    Raises:
        LineError: With reason `logits` if one is above 0.
    """
    good = [score for score in scores if score is not None and score > CLAMP_BELOW_NATS]
    if not good:
        return math.nan
    if max(good) > LOGITS_ABOVE_NATS:
        msg = "prompt logprobs above 0: the engine reports logits; set --logprobs-mode raw_logprobs"
        raise LineError(Reason.LOGITS, msg)
    return sum(good) / len(good)


def own_scores(
    positions: PromptPositions, listed: int | None, ids: Sequence[int] | None
) -> Scores | None:
    """Return the logprob of the prompt's own token at each position, None if that is not told.

    A position maps token ids to the k most likely ones and the prompt's own. vLLM's Python front
    end puts the own one first; the Rust one has no order, so that a map of only k entries hides
    which is meant, unless the ids are known.

    Args:
        positions: One map a position; the first is null.
        listed: The k asked for, if known.
        ids: The prompt's token ids, if known.
    """
    if ids is not None and len(ids) == len(positions):
        pairs = zip(ids, positions, strict=True)
        return [_score((entries or {}).get(str(token))) for token, entries in pairs]
    maps = [list(entries.values()) for entries in positions if entries]
    k = listed if listed is not None else max(map(len, maps), default=0) - 1
    if all(_own_first(entries, k) for entries in maps):
        return [entries[0].logprob for entries in maps]
    if all(len(entries) > k for entries in maps):
        return [max(entries, key=_rank).logprob for entries in maps]
    return None


def _own_first(entries: list[PromptEntry], k: int) -> bool:
    """Tell whether this map can be one that begins with the prompt's own token."""
    others = [_rank(entry) for entry in entries[1:]]
    in_order = all(left < right for left, right in pairwise(others))
    return in_order and (len(entries) <= k or _rank(entries[0]) >= max(others, default=0))


def _rank(entry: PromptEntry) -> int:
    return entry.rank or 0


def _score(entry: PromptEntry | None) -> float | None:
    return None if entry is None else entry.logprob


def split_echo(answer: Answer, prompt: Prompt | None, prompt_tokens: float) -> bool:
    """Take the echoed prompt off an answer, keeping its logprobs as `scored`.

    Args:
        answer: An answer to a request with `echo`; changed in place.
        prompt: The prompt of this answer, if known.
        prompt_tokens: How many tokens it had, NaN if unknown.

    Returns:
        False if prompt and answer cannot be told apart; then nothing of it is kept.
    """
    text = "".join(answer.texts)
    given = prompt.text if prompt is not None else None
    length = _echoed_tokens(answer, given, prompt_tokens)
    if length is None:
        answer.tokens, answer.sampled, answer.top, answer.counts = [], [], [], []
        answer.texts = []
        return not text
    answer.scored = answer.sampled[:length]
    answer.top = answer.top[sum(answer.counts[:length]) :]
    answer.tokens = answer.tokens[length:]
    answer.sampled = answer.sampled[length:]
    answer.counts = answer.counts[length:]
    answer.texts = [
        text.removeprefix(given)
        if given is not None and text.startswith(given)
        else "".join(answer.tokens)
    ]
    return True


def _echoed_tokens(answer: Answer, given: str | None, prompt_tokens: float) -> int | None:
    """Return how many of the answer's positions are the prompt's; None if unknown."""
    if not answer.sampled:
        return None if given is None else 0
    if prompt_tokens <= len(answer.sampled):
        return int(prompt_tokens)
    if answer.prompt_ids is not None:
        return min(len(answer.prompt_ids), len(answer.sampled))
    if given is None or len(answer.offsets) != len(answer.sampled):
        return None
    start = answer.offsets[0]
    return sum(offset - start < len(given) for offset in answer.offsets)
