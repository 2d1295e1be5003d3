r"""The entropy behind truncated logprobs, and what one answer's logprobs say in a few numbers.

Engines log the k largest logprobs of a position and the sampled token's own. Sums over the list
alone are 17 to 100 % too low; here the hidden mass is bounded exactly or estimated without bias.
How the list came about matters (`AnswerTokens.k`): completions add a sampled token that is not
among the k, chat replaces the last of the k by it, so that only k - 1 are surely the largest.

>>> top = np.log([[0.5, 0.3]])
>>> lower, upper = entropy_bounds(top, vocabulary=1000)
>>> round(float(lower[0]), 3), round(float(upper[0]), 3)
(1.03, 2.411)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import log_softmax

from detectors.records import BoolArray, FloatArray, IntArray

if TYPE_CHECKING:
    import torch

LOGITS_ABOVE_NATS = 1e-6  # a logprob above this is none: the engine runs in a logits mode
CLAMP_BELOW_NATS = -999.0  # vLLM writes -9999.0 for minus infinity, Aphrodite -1000
MASS_TOLERANCE = 1e-3  # logprobs of 16-bit origin add to a little over one
TYPICAL_VOCABULARY = 128_000  # tunes the variance of the estimate only, never its mean
UNLIKELY_NATS = float(-np.log(0.1))
SURE_NATS = float(-np.log(0.99))
FROZEN_NATS = 0.05
_TINY = 1e-300
_NO_CHANCE_NATS = -800.0  # its exponential is 0, as that of minus infinity, and adds no NaN
_ROUNDING = 1e-9  # of exp and log: a token as likely as the k-th is not outside


def clean_logprobs(values: FloatArray) -> FloatArray:
    """Return `values` with NaN for what is no logprob: clamps of minus infinity, infinities, NaN.

    Raises:
        ValueError: If one is above 1e-6: these are logits, which no detector here understands.
    """
    kept: FloatArray = np.where((values > CLAMP_BELOW_NATS) & (values < np.inf), values, np.nan)
    highest = np.fmax.reduce(kept, axis=None, initial=-np.inf)
    if highest > LOGITS_ABOVE_NATS:
        msg = (
            f"a logprob of {highest:.6g} was given, expected at most 0: the engine reports logits; "
            "set its --logprobs-mode to raw_logprobs or processed_logprobs"
        )
        raise ValueError(msg)
    return kept


def entropy_bounds(
    logprobs: FloatArray, vocabulary: int, outside: FloatArray | None = None
) -> tuple[FloatArray, FloatArray]:
    """Return exact lower and upper bounds of the entropy behind truncated top-k logprobs.

    Args:
        logprobs: The k largest logprobs per position in nats, shape ``(n, k)``, k >= 1, in any
            order; minus infinity for a token that cannot come.
        vocabulary: Number of tokens of the model, > k.
        outside: Logprob of the sampled token where it is not among the k, else NaN, shape
            ``(n,)``; one more known token, the k-th largest stays the cap of the hidden ones.

    Returns:
        Two arrays of shape ``(n,)`` in nats, 0 <= lower <= upper.

    Raises:
        ValueError: If a row sums to more than 1 + 1e-3, holds NaN, or `vocabulary` is too small.

    References:
        Schur concavity of the entropy: given its mass and cap, the hidden tail has least entropy
        when piled up at the cap and most when spread evenly; derivation in docs/statistics.md.
    """
    if np.isnan(logprobs).any():
        msg = "top-k logprobs hold NaN: leave out positions whose list is not complete"
        raise ValueError(msg)
    known, hidden_tokens = _with_outside(logprobs, outside, vocabulary)
    p = np.exp(known)
    mass = p.sum(axis=1)
    if mass.max(initial=0.0) > 1 + MASS_TOLERANCE:
        msg = f"probabilities of one position add to {mass.max():.6g}: these are no logprobs"
        raise ValueError(msg)
    head = 0.0 - (p * np.where(p > 0, known, 0.0)).sum(axis=1)
    rest = np.maximum(1 - mass, 0.0)
    cap = np.exp(logprobs.min(axis=1))
    upper = head + _xlogx(rest, hidden_tokens / np.maximum(rest, _TINY))
    pieces = np.floor(rest / np.maximum(cap, _TINY))
    pieces = np.where(cap > 0, np.minimum(pieces, hidden_tokens), 0.0)
    left = np.maximum(rest - pieces * cap, 0.0)
    lower = head + pieces * _xlogx(cap, 1 / np.maximum(cap, _TINY))
    lower = lower + _xlogx(left, 1 / np.maximum(left, _TINY))
    lower = np.clip(lower, 0.0, None)
    return lower, np.maximum(upper, lower)


def _with_outside(
    logprobs: FloatArray, outside: FloatArray | None, vocabulary: int
) -> tuple[FloatArray, FloatArray]:
    """Return the known logprobs with the sampled one added, and how many tokens stay hidden."""
    k = logprobs.shape[1]
    if vocabulary <= k:
        msg = f"vocabulary {vocabulary}: expected more than the {k} listed tokens"
        raise ValueError(msg)
    hidden = np.full(len(logprobs), float(vocabulary - k))
    if outside is None:
        return logprobs, hidden
    added = np.where(np.isnan(outside), -np.inf, outside)
    hidden = np.maximum(hidden - ~np.isnan(outside), 1.0)
    return np.column_stack([logprobs, added]), hidden


def _xlogx(x: FloatArray, ratio: FloatArray) -> FloatArray:
    """Return ``x ln(ratio)``, 0 where x is 0."""
    product: FloatArray = x * np.log(np.where(x > 0, ratio, 1.0))
    return product


@dataclass(frozen=True, slots=True)
class Head:
    """The known head of each position: `entropy` is H_k = -sum p ln p, `rest` the hidden mass.

    `cap` is the probability of the k-th largest, an upper bound of each hidden one. Shapes (n,).
    """

    entropy: FloatArray
    rest: FloatArray
    cap: FloatArray


def head_of(ordered: FloatArray, k: int) -> Head:
    """Return the head of the first `k` columns.

    Args:
        ordered: Logprobs in nats, descending along each row, shape ``(n, m)``; NaN or minus
            infinity at the end.
        k: How many of them are surely the largest, 1 <= k <= m.
    """
    used = np.array(ordered[:, :k].T, order="C")  # sums down columns are twice as fast
    np.fmax(used, _NO_CHANCE_NATS, out=used)
    p = np.exp(used)
    used *= p
    entropy = 0.0 - used.sum(axis=0)
    cap = np.where(p > 0, p, 1.0).min(axis=0, initial=1.0)
    return Head(entropy, np.maximum(1 - p.sum(axis=0), 0.0), cap)


def tail_price(head: Head, vocabulary: int, k: int) -> FloatArray:
    """Return c, nats per unit of hidden mass: halfway between a tail at the cap and an even one.

    Any c that does not depend on the sampled token leaves `entropy_estimate` unbiased; this one
    makes it quiet.
    """
    even = np.log((vocabulary - k) / np.maximum(head.rest, _TINY))
    price: FloatArray = (np.maximum(even, -np.log(head.cap)) - np.log(head.cap)) / 2
    return price


def entropy_estimate(
    head: Head, sampled: FloatArray, outside: BoolArray, price: FloatArray
) -> FloatArray:
    """Return the unbiased estimate ``H_k + r c + 1{x not in top-k} (-ln p(x) - c)`` in nats.

    Args:
        head: The k largest of each position.
        sampled: ln p(x) of the sampled tokens, shape ``(n,)``; x must be drawn from p for the
            mean to be the entropy (a raw mode at another temperature gives a cross-entropy).
        outside: True where x is not among the k, shape ``(n,)``.
        price: c of each position (`tail_price`), shape ``(n,)``.
    """
    tail = np.where(outside, -sampled - price, 0.0)
    estimate: FloatArray = head.entropy + head.rest * price + tail
    return estimate


@dataclass(frozen=True, slots=True)
class AnswerTokens:
    """The logprobs of many answers, end to end.

    `sampled` (n,) is ln p of each token, NaN where missing. `top` (n, m) lists each position's
    largest logprobs in any order, NaN in padding; its first `k` in order of size are surely the k
    largest (0: nothing is known). `outside` (n,) says that the sampled token is not among the k;
    None where the list does not tell, then it is outside if it is smaller than the k-th. Of tokens
    tied with the k-th, one more or less may so be taken for known: under 0.01 nats in practice.
    `complete` (n,) is False where the list is missing or short. Answer i owns the positions from
    ``offsets[i]`` up to ``offsets[i + 1]``, `offsets` has shape (answers + 1,).
    """

    sampled: FloatArray
    top: FloatArray
    k: int
    outside: BoolArray | None
    complete: BoolArray
    offsets: IntArray


def answer_features(
    tokens: AnswerTokens, vocabulary: int = TYPICAL_VOCABULARY
) -> Mapping[str, FloatArray]:
    """Return the output signals of each answer, shape ``(answers,)``, NaN where undefined.

    Keys are names of `detectors/signals.py`. Missing tokens are left out of means and ratios and
    end a run.
    """
    cost = 0.0 - tokens.sampled  # no minus zero
    good = ~np.isnan(cost)
    totals = _sums(good.astype(np.float64), tokens.offsets)
    with np.errstate(invalid="ignore", divide="ignore"):
        columns = {
            "output_surprisal_mean_nats": _sums(np.where(good, cost, 0.0), tokens.offsets) / totals,
            "output_unlikely_ratio": _sums(
                (good & (cost > UNLIKELY_NATS)).astype(np.float64), tokens.offsets
            )
            / totals,
        }
    columns["output_surprisal_p90_nats"] = _quantile(cost, tokens.offsets, totals, 0.9)
    columns["output_longest_sure_run_tokens"] = np.where(
        totals > 0, _longest_runs(good & (cost < SURE_NATS), tokens.offsets), np.nan
    )
    return columns | _distribution_features(tokens, good, vocabulary)


def _distribution_features(
    tokens: AnswerTokens, good: BoolArray, vocabulary: int
) -> dict[str, FloatArray]:
    """Entropy and frozen share, from the positions whose list is complete."""
    answers = len(tokens.offsets) - 1
    if tokens.k < 1 or tokens.top.shape[1] == 0:
        unknown = np.full(answers, np.nan)
        return {"output_entropy_nats": unknown, "output_frozen_ratio": unknown}
    ordered = np.fmax(tokens.top, -np.inf)  # padding to where the order ends
    ordered.sort(axis=1)
    head = head_of(ordered[:, ::-1], tokens.k)
    price = tail_price(head, vocabulary, tokens.k)
    used = good & tokens.complete
    outside = tokens.outside
    if outside is None:
        outside = tokens.sampled < np.log(head.cap) - _ROUNDING
    estimate = entropy_estimate(head, tokens.sampled, outside, price)
    frozen = head.entropy + head.rest * price < FROZEN_NATS
    counted = _sums(used.astype(np.float64), tokens.offsets)
    with np.errstate(invalid="ignore", divide="ignore"):
        return {
            "output_entropy_nats": _sums(np.where(used, estimate, 0.0), tokens.offsets) / counted,
            "output_frozen_ratio": _sums((used & frozen).astype(np.float64), tokens.offsets)
            / counted,
        }


def _sums(values: FloatArray, offsets: IntArray) -> FloatArray:
    """Sum each answer's span; empty spans give 0 (reduceat alone would give a neighbour's)."""
    starts = offsets[:-1]
    filled = starts < offsets[1:]
    sums = np.zeros(len(starts))
    if filled.any():
        sums[filled] = np.add.reduceat(values, starts[filled])
    return sums


def tail_means(values: FloatArray, offsets: IntArray, window: int) -> FloatArray:
    """Return the mean of the last `window` values of each span that are not NaN; NaN if none."""
    starts = np.maximum(offsets[:-1], offsets[1:] - window)
    good = ~np.isnan(values)
    sums = np.concatenate([[0.0], np.cumsum(np.where(good, values, 0.0))])
    counts = np.concatenate([[0.0], np.cumsum(good)])
    with np.errstate(invalid="ignore", divide="ignore"):
        means: FloatArray = (sums[offsets[1:]] - sums[starts]) / (
            counts[offsets[1:]] - counts[starts]
        )
    return means


def _quantile(
    values: FloatArray, offsets: IntArray, counts: FloatArray, level: float
) -> FloatArray:
    """Return the smallest value that at least `level` of its span do not exceed; NaN if none."""
    answers = len(offsets) - 1
    owners = np.repeat(np.arange(answers), np.diff(offsets))
    order = np.lexsort((values, owners))  # NaN sorts to the end of its answer
    places = offsets[:-1] + np.maximum(np.ceil(level * counts - 1e-9).astype(np.int64) - 1, 0)
    result = np.full(answers, np.nan)
    filled = counts > 0
    result[filled] = values[order[places[filled]]]
    return result


def _longest_runs(flags: BoolArray, offsets: IntArray) -> FloatArray:
    """Return the length of the longest run of True in each span, shape ``(answers,)``."""
    answers = len(offsets) - 1
    longest = np.zeros(answers)
    bounds = np.zeros(len(flags) + 1, dtype=np.bool_)
    bounds[offsets] = True  # a run ends where its answer ends
    before = np.concatenate([[False], flags[:-1]])
    starts = np.flatnonzero(flags & (~before | bounds[:-1]))
    after = np.concatenate([flags[1:], [False]])
    ends = np.flatnonzero(flags & (~after | bounds[1:]))
    owners = np.searchsorted(offsets, starts, side="right") - 1
    np.maximum.at(longest, owners, (ends - starts + 1).astype(np.float64))
    return longest


def entropy_of_logits(logits: FloatArray) -> FloatArray:
    """Return the exact entropy in nats of full logits, shape ``(..., vocabulary)`` -> ``(...)``.

    Minus infinity is a token that cannot come.
    """
    logprobs = log_softmax(logits, axis=-1)
    p = np.exp(logprobs)
    entropy: FloatArray = 0.0 - (p * np.where(p > 0, logprobs, 0.0)).sum(axis=-1)
    return entropy


def entropy_of_logits_torch(logits: torch.Tensor) -> torch.Tensor:
    """Return what `entropy_of_logits` does, for a torch tensor, on its device, as float32.

    Needs the extra `fusewire[torch]`; computes in float32 whatever the input's type.
    """
    import torch

    logprobs = torch.log_softmax(logits.float(), dim=-1)
    entropy: torch.Tensor = torch.special.entr(logprobs.exp()).sum(dim=-1)
    return entropy
