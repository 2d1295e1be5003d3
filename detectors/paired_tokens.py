"""One request scored by production (P) and by a candidate (Q): its divergences, nats a token.

All positions of a request stand in the same context under both models: a text that both were made
to score, or two answers up to and including the first token in which they differ. (Leaving that
token out would keep only tokens that the candidate drew too, and bias the mean either way. So,
whether a place is used depends on earlier tokens only.)

Where Q does not tell the chance of production's token, the place counts with the least value that
it can have, and is counted as `hidden`: a request's value is then too low and never too high.

*Trade-offs*: k3 is an unbiased estimate of KL(P || Q) only if the tokens were drawn from P as it
is logged (raw logprobs at temperature 1, or processed ones without top-p); over other text it is
no KL, but still 0 only where both give a token the same chance. No upper bound of a KL follows
from top-k lists; Jensen-Shannon and total variation are bounded both ways.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from detectors.divergence import (
    common_tokens,
    head_k3,
    jensen_shannon_bounds,
    k1,
    k3,
    kl_lower_bound,
    total_variation_bounds,
)
from detectors.records import BoolArray, FloatArray


@dataclass(frozen=True, slots=True)
class PairedTokens:
    """The positions of one request, logprobs in nats.

    `p` (n,) is ln p of production's tokens. `q` (n,) is ln q of the same, NaN where hidden; there
    `q_most` (n,) is the most that it can be (0 if nothing is known). `p_common` and `q_common`
    (n, c) hold the tokens that are among the largest of both lists, NaN in padding; `listed` (n,)
    says where both sides have a list, `outside` (n,) where production's token is not in common.
    """

    p: FloatArray
    q: FloatArray
    q_most: FloatArray
    p_common: FloatArray
    q_common: FloatArray
    listed: BoolArray
    outside: BoolArray


@dataclass(frozen=True, slots=True)
class PairedFigures:
    """Means over the positions of one request, KL(production || candidate) where one is meant.

    `k3_nats` over all; `k1_nats` over those not hidden (either sign, NaN if none); the rest over
    the `listed` ones, NaN if there are none. `disjoint` positions have lists without a common
    token.
    """

    positions: int
    hidden: int
    listed: int
    disjoint: int
    k3_nats: float
    k1_nats: float
    head_k3_nats: float
    kl_lower_nats: float
    js_lower_nats: float
    js_upper_nats: float
    tv_lower: float
    tv_upper: float


def figures_of(tokens: PairedTokens) -> PairedFigures:
    """Return the figures of one request with at least one position.

    Raises:
        ValueError: If there is no position, a logprob of production is NaN, or a list adds to
            more than 1.
    """
    if not len(tokens.p) or np.isnan(tokens.p).any():
        msg = "a request needs at least one position, each with production's logprob"
        raise ValueError(msg)
    hidden = np.isnan(tokens.q)
    least = np.minimum(tokens.q_most, tokens.p)  # k3 falls towards q = p: 0 if q may be as large
    q = np.where(hidden, least, tokens.q)
    heads = _heads(tokens, q)
    return PairedFigures(
        positions=len(tokens.p),
        hidden=int(hidden.sum()),
        listed=int(tokens.listed.sum()),
        disjoint=int((tokens.listed & np.isnan(tokens.p_common).all(axis=1)).sum()),
        k3_nats=float(np.maximum(k3(tokens.p, q), 0.0).mean()),
        k1_nats=_mean(k1(tokens.p, tokens.q)[~hidden]),
        head_k3_nats=heads[0],
        kl_lower_nats=heads[1],
        js_lower_nats=heads[2],
        js_upper_nats=heads[3],
        tv_lower=heads[4],
        tv_upper=heads[5],
    )


def _heads(tokens: PairedTokens, q: FloatArray) -> tuple[float, ...]:
    """Return what the lists give: head + k3, KL bound, JS and TV bounds."""
    used = tokens.listed
    common = common_tokens(tokens.p_common[used], tokens.q_common[used])
    estimate = head_k3(common, tokens.p[used], q[used], tokens.outside[used])
    return tuple(
        _mean(values)
        for values in (
            np.maximum(estimate, 0.0),
            kl_lower_bound(common),
            *jensen_shannon_bounds(common),
            *total_variation_bounds(common),
        )
    )


def _mean(values: FloatArray) -> float:
    return float(values.mean()) if len(values) else float(np.nan)
