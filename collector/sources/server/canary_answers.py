"""The canary's mathematics: how far two sets of one-token answers are apart. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import msgspec
import numpy as np

from detectors.divergence import MASS_TOLERANCE, common_tokens, kl_lower_bound
from detectors.records import FloatArray, Identity

Answers: TypeAlias = Sequence[Mapping[str, float]]
_VERSION: Final = 1
_LEAST_HIDDEN: Final = 1e-6  # of one minus a sum of float32 probabilities


class AnswersError(ValueError):
    """Answers that cannot be compared; the text says why."""


@dataclass(frozen=True, slots=True)
class Reference:
    """The first accepted answers.

    `key` says how was asked, `identity` who; `floor_nats` is how far a repeat was from them when
    nothing had changed, `changed` whether the last answers were farther than that.
    """

    key: str
    identity: Identity
    answers: tuple[Mapping[str, float], ...]
    floor_nats: float
    changed: bool = False

    def save(self) -> bytes:
        answers = [dict(it) for it in self.answers]
        who = (self.identity.engine, self.identity.version, self.identity.model)
        body = (_VERSION, self.key, who, answers, self.floor_nats, self.changed)
        return msgspec.msgpack.encode(body)

    @classmethod
    def load(cls, data: bytes) -> Reference:
        """Read back what `save` wrote.

        Raises:
            AnswersError: If it is nothing of this release.
        """
        kind = tuple[int, str, tuple[str, str, str], list[dict[str, float]], float, bool]
        try:
            version, key, who, answers, floor, changed = msgspec.msgpack.decode(data, type=kind)
            if version != _VERSION:
                msg = f"a canary reference of layout {version}; this build reads {_VERSION}"
                raise AnswersError(msg)
            divergence_nats(answers, answers)
        except (msgspec.MsgspecError, ValueError) as error:
            msg = f"no canary reference: {error}; the next answers become a new one"
            raise AnswersError(msg) from error
        return cls(key, Identity(*who), tuple(answers), floor, changed)


def divergence_nats(first: Answers, second: Answers) -> float:
    """Return the mean over prompts of the symmetric KL of two sets of answers, >= 0, in nats.

    A token that only one side lists is taken, on the other side, at the most that it can be there
    (the smallest that is listed, or its share of the mass that is hidden), so that what is not
    told makes no difference; hidden tokens are lumped into one. The result is therefore a lower
    estimate: 0 for equal answers, and never more than a full listing would give by lumping.

    Args:
        first: Logprobs in nats by token, one mapping a prompt, none empty.
        second: The same prompts, in the same order.

    Raises:
        AnswersError: If the two differ in length, an answer is empty, or is no distribution.

    >>> same = [{"a": -0.1, "b": -3.0}]
    >>> divergence_nats(same, same)
    0.0
    >>> 0.2 < divergence_nats(same, [{"b": -0.1, "a": -3.0}])
    True
    """
    if len(first) != len(second) or not first:
        msg = f"{len(first)} and {len(second)} answers: expected as many, of the same prompts"
        raise AnswersError(msg)
    rows = [_filled(one, other) for one, other in zip(first, second, strict=True)]
    p, q = _padded([row[0] for row in rows]), _padded([row[1] for row in rows])
    try:
        forward = kl_lower_bound(common_tokens(p, q))
        backward = kl_lower_bound(common_tokens(q, p))
    except ValueError as error:
        msg = f"answers that are no logprobs: {error}"
        raise AnswersError(msg) from error
    return float(np.mean((forward + backward) / 2))


def _filled(one: Mapping[str, float], other: Mapping[str, float]) -> tuple[FloatArray, FloatArray]:
    """Return both sides' logprobs over the union of their tokens."""
    if not one or not other:
        msg = "an answer without logprobs: expected some of every prompt"
        raise AnswersError(msg)
    tokens = sorted({*one, *other})
    return _over(tokens, one), _over(tokens, other)


def _over(tokens: Sequence[str], known: Mapping[str, float]) -> FloatArray:
    listed = np.fromiter(known.values(), np.float64)
    mass = float(np.exp(listed).sum())
    if not np.isfinite(mass) or mass > 1 + MASS_TOLERANCE:
        msg = f"probabilities of one answer add to {mass:.6g}, expected at most 1"
        raise AnswersError(msg)
    missing = len(tokens) - len(known)
    share = np.log(max(1 - mass, _LEAST_HIDDEN) / missing) if missing else 0.0
    most = min(float(listed.min()), share)
    return np.array([known.get(token, most) for token in tokens])


def _padded(rows: Sequence[FloatArray]) -> FloatArray:
    whole = np.full((len(rows), max(map(len, rows))), np.nan)
    for at, row in enumerate(rows):
        whole[at, : len(row)] = row
    return whole
