"""Columns of tokens: logprobs as arrays, and of each list of candidates what is surely largest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from collector.shadow.records import LineProblemError, Refusal, Sequenced
from collector.shadow.spelling import speller
from detectors.entropy import CLAMP_BELOW_NATS, LOGITS_ABOVE_NATS

MOST_LISTED = 64  # candidates of a position that are looked at


@dataclass(frozen=True, slots=True)
class Listed:
    """The candidates of a position by label, and how to find the surely largest.

    `own` is the token of the position if the list may hold it beside the `k` largest; `spare`
    candidates at the small end may be no largest ones. Null marks what cannot be told.
    """

    values: Mapping[str, float | None]
    own: str | None = None
    k: int | None = None
    spare: int = 0

    def largest(self) -> Mapping[str, float]:
        """Return the candidates that are in the list because they are the largest.

        What stands in the list only because it was sampled is left out: which tokens two lists
        have in common must not depend on the token that was drawn.
        """
        values = dict(self.values)
        if self.own is not None and self.k is not None and len(values) > self.k:
            values.pop(self.own, None)
        kept = sorted(
            (
                (label, value)
                for label, value in values.items()
                if value is not None and whole(label)
            ),
            key=lambda pair: -pair[1],
        )
        most = MOST_LISTED if self.k is None else min(self.k, MOST_LISTED)
        kept = kept[: max(min(most, len(values) - self.spare), 0)]
        return {label: value for label, value in kept if value > CLAMP_BELOW_NATS}


def whole(label: str) -> bool:
    """Tell a token's text from broken bytes, which several tokens render as alike."""
    return "\ufffd" not in label


def _spelled(top: Mapping[str, float], spell: Callable[[str], str]) -> Mapping[str, float]:
    texts = ((spell(label), value) for label, value in top.items())
    return {text: value for text, value in texts if whole(text)}


def sequenced(
    labels: Sequence[str],
    values: Sequence[float | None],
    lists: Sequence[Listed] | None,
    ids: Sequence[int] | None = None,
) -> Sequenced:
    """Return tokens in order.

    Args:
        labels: The tokens.
        values: Their logprobs, as many; null where there is none.
        lists: Their candidates, as many; None without.
        ids: Their numbers, as many, if known.

    Raises:
        LineProblemError: If a logprob is above 0 (the engine reports logits) or infinite.
    """
    logprobs = np.array([np.nan if value is None else value for value in values], dtype=np.float64)
    tops = [one.largest() for one in lists] if lists is not None else [{}] * len(labels)
    highest = max(
        float(np.fmax.reduce(logprobs, initial=-np.inf)),
        max((value for top in tops for value in top.values()), default=-np.inf),
    )
    if highest > LOGITS_ABOVE_NATS:
        msg = "logprobs above 0: the engine reports logits; set its --logprobs-mode raw_logprobs"
        raise LineProblemError(Refusal.LOGITS, msg)
    spell = speller([*labels, *(label for top in tops for label in top)])
    if spell is not None:
        labels = [spell(label) for label in labels]
        tops = [_spelled(top, spell) for top in tops]
    clamped = logprobs <= CLAMP_BELOW_NATS
    return Sequenced(
        labels=labels,
        ids=ids,
        logprobs=np.where(clamped, np.nan, logprobs),
        clamped=clamped,
        tops=tops,
        k=max(map(len, tops), default=0),
    )
