"""Which tokens of two lines stand in the same context, and what both models gave them.

Three ways, the first that fits:

- `forced`: the candidate scored a text that ends with production's answer (`prompt_logprobs` or
  echo). The best: every token of production is scored.
- `scored`: both scored a text. Its tokens are no draws of production.
- `free`: both wrote an answer of their own: only the shared beginning stands in one context, up
  to and including the first token in which they differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from collector.shadow.records import Scored, Sequenced
from detectors.paired_tokens import PairedTokens
from detectors.records import BoolArray, FloatArray

_ID_PREFIX = "token_id:"


class Way(StrEnum):
    """How two lines were aligned."""

    FORCED = "forced"
    SCORED = "scored"
    FREE = "free"


class Misfit(StrEnum):
    """What was wrong with the tokens of a pair."""

    DIFFERENT_REQUEST = "different_request"
    DIFFERENT_TEXT = "different_text"
    DIFFERENT_TOKENS = "different_tokens"
    DIFFERENT_IDS = "different_ids"
    IDS_AND_TEXTS = "ids_and_texts"
    NOTHING_SCORED = "nothing_scored"


@dataclass(frozen=True, slots=True)
class Aligned:
    """A pair of lines, aligned: `tokens` is None where nothing could be.

    `misfit` says why, or what else is wrong with the pair; `equal` whether two answers are the
    same text, None where one side has none; `clamped` counts tokens that one of the
    two engines gave no chance at all; `ks` are the lengths of the two sides' lists.
    """

    way: Way
    tokens: PairedTokens | None
    misfit: Misfit | None = None
    equal: bool | None = None
    clamped: int = 0
    ks: tuple[int, int] = (0, 0)


def align(reference: Scored, candidate: Scored) -> Aligned:
    """Return the tokens of production that both scored in the same context."""
    wrote, answered = reference.generated, candidate.generated
    if wrote is not None and candidate.prompt is not None:
        found = _forced(wrote, candidate.prompt, stopped=reference.stopped)
        if found.tokens is not None or answered is None:
            return found
    if wrote is not None and answered is not None:
        digests = (reference.text_digest, candidate.text_digest)
        found = _free(wrote, answered)
        same = found.equal if b"" in digests or found.equal is None else digests[0] == digests[1]
        return replace(found, equal=same)
    if reference.prompt is not None and candidate.prompt is not None:
        return _scored(reference.prompt, candidate.prompt)
    return Aligned(Way.FREE, None, Misfit.NOTHING_SCORED)


def _forced(wrote: Sequenced, scored: Sequenced, *, stopped: bool) -> Aligned:
    """Align production's answer with the end of a text that the candidate scored.

    The token that ended an answer belongs to no text, so that it may be missing. An answer that
    was scored as text may be cut anew (what was sampled need not be the tokenizer's own cut): it
    is used up to there.
    """
    for length in (len(wrote), len(wrote) - 1) if stopped else (len(wrote),):
        body = _first(wrote, length)
        start = _start(body, scored)
        if start is not None:
            rest = scored.cut(start, len(scored))
            shared = _shared(body.labels, rest.labels)
            misfit = Misfit.DIFFERENT_TOKENS if shared < length else None
            if not shared:
                return Aligned(Way.FORCED, None, misfit or Misfit.NOTHING_SCORED)
            found = _whole(Way.FORCED, _first(body, shared), _first(rest, shared))
            return replace(found, misfit=found.misfit or misfit)
    body = _first(wrote, len(wrote) - 1) if stopped else wrote
    return Aligned(Way.FORCED, None, _why(body, scored, ends=True))


def _start(body: Sequenced, scored: Sequenced) -> int | None:
    """Return where the text of `body`, which ends the scored text, begins; None if nowhere.

    It must begin with a token: one that spans the end of the prompt stands in no context of
    production.
    """
    text = "".join(body.labels)
    place, length = len(scored), 0
    while length < len(text) and place > 0:
        place -= 1
        length += len(scored.labels[place])
    same = length == len(text) and "".join(scored.labels[place:]) == text
    return place if same else None


def _why(left: Sequenced, right: Sequenced, *, ends: bool) -> Misfit:
    """Say why two sequences do not fit: other text, or other tokens of one text."""
    if _ids_only(left) != _ids_only(right):
        return Misfit.IDS_AND_TEXTS
    text, other = "".join(left.labels), "".join(right.labels)
    same = other.endswith(text) if ends else other == text
    return Misfit.DIFFERENT_TOKENS if same else Misfit.DIFFERENT_TEXT


def _ids_only(tokens: Sequenced) -> bool:
    return len(tokens) > 0 and all(label.startswith(_ID_PREFIX) for label in tokens.labels)


def _scored(left: Sequenced, right: Sequenced) -> Aligned:
    """Align two scored texts; their first token has no context and no logprob."""
    left, right = _without_first(left), _without_first(right)
    shared = _shared(left.labels, right.labels)
    if shared == len(left) == len(right):
        return _whole(Way.SCORED, left, right)
    misfit = _why(left, right, ends=False)
    if not shared:
        return Aligned(Way.SCORED, None, misfit)
    found = _whole(Way.SCORED, _first(left, shared), _first(right, shared))
    return Aligned(Way.SCORED, found.tokens, misfit, clamped=found.clamped, ks=found.ks)


def _without_first(tokens: Sequenced) -> Sequenced:
    unscored = len(tokens) > 0 and np.isnan(tokens.logprobs[0]) and not tokens.clamped[0]
    return tokens.cut(1, len(tokens)) if unscored else tokens


def _whole(way: Way, left: Sequenced, right: Sequenced) -> Aligned:
    """Align sequences of the same labels."""
    return _aligned(way, left, right, right.logprobs, equal=None)


def _free(wrote: Sequenced, answered: Sequenced) -> Aligned:
    """Align two answers up to and including the first token in which they differ."""
    shared = _shared(wrote.labels, answered.labels)
    equal = "".join(wrote.labels) == "".join(answered.labels)
    if shared in {len(wrote), len(answered)}:  # one is the beginning of the other
        left, right = _first(wrote, shared), _first(answered, shared)
        return _aligned(Way.FREE, left, right, right.logprobs, equal=equal)
    left, right = _first(wrote, shared + 1), _first(answered, shared + 1)
    q = right.logprobs.copy()
    q[shared] = right.tops[shared].get(left.labels[shared], np.nan)
    if _ids_only(left) != _ids_only(right):
        return Aligned(Way.FREE, None, Misfit.IDS_AND_TEXTS)
    misfit = _resplit(wrote.labels[shared:], answered.labels[shared:])
    found = _aligned(Way.FREE, left, right, q, equal=equal)
    return replace(found, misfit=found.misfit or misfit)


def _resplit(left: Sequence[str], right: Sequence[str]) -> Misfit | None:
    """Tell the same text in other tokens from another text, as far as the longer token goes."""
    most = max(len(left[0]), len(right[0]))
    texts = ["".join(labels[: most + 1])[:most] for labels in (left, right)]
    return Misfit.DIFFERENT_TOKENS if texts[0] == texts[1] else None


def _aligned(
    way: Way, left: Sequenced, right: Sequenced, q: FloatArray, *, equal: bool | None
) -> Aligned:
    """Make the columns; positions that production did not score are left out."""
    used = [int(place) for place in np.flatnonzero(~np.isnan(left.logprobs))]
    misfit = Misfit.DIFFERENT_IDS if _other_ids(left, right) else None
    clamped = int((left.clamped | right.clamped).sum())
    ks = (left.k, right.k)
    if not used:
        return Aligned(way, None, misfit or Misfit.NOTHING_SCORED, equal, clamped, ks)
    p_common, q_common, outside = _common(left, right, used)
    tokens = PairedTokens(
        p=left.logprobs[used],
        q=q[used],
        q_most=np.array([min(right.tops[one].values(), default=0.0) for one in used]),
        p_common=p_common,
        q_common=q_common,
        listed=np.array([bool(left.tops[one]) and bool(right.tops[one]) for one in used]),
        outside=outside,
    )
    return Aligned(way, tokens, misfit, equal, clamped, ks)


def _other_ids(left: Sequenced, right: Sequenced) -> bool:
    """Tell whether tokens of the same text have other numbers."""
    if left.ids is None or right.ids is None:
        return False
    rows = zip(left.labels, right.labels, left.ids, right.ids, strict=True)
    return any(label == other and one != two for label, other, one, two in rows)


def _common(
    left: Sequenced, right: Sequenced, used: Sequence[int]
) -> tuple[FloatArray, FloatArray, BoolArray]:
    """Return the logprobs of the tokens in both lists, and where production's is not of them."""
    shared = [[key for key in left.tops[one] if key in right.tops[one]] for one in used]
    width = max(map(len, shared), default=0)
    p, q = np.full((2, len(shared), width), np.nan)
    for row, (place, labels) in enumerate(zip(used, shared, strict=True)):
        p[row, : len(labels)] = _values(left.tops[place], labels)
        q[row, : len(labels)] = _values(right.tops[place], labels)
    outside = [left.labels[place] not in labels for place, labels in zip(used, shared, strict=True)]
    return p, q, np.array(outside, dtype=np.bool_)


def _values(top: Mapping[str, float], labels: Sequence[str]) -> list[float]:
    return [top[label] for label in labels]


def _shared(left: Sequence[str], right: Sequence[str]) -> int:
    """Return how many labels two sequences have in common at their beginning."""
    shared = 0
    for one, other in zip(left, right, strict=False):
        if one != other:
            break
        shared += 1
    return shared


def _first(tokens: Sequenced, count: int) -> Sequenced:
    return tokens.cut(0, count)
