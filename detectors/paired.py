"""Shadow against production on the same text: the paired divergence, and the gate on its mean.

The unit of evidence is a request. Its value is the mean k3 of its paired tokens (`paired_tokens`),
clipped at `CLIP_LIMITS` times the limit. The gate compares the mean over requests with the limit
by a confidence sequence (`betting`), which may be looked at after every request. `fail` comes as
soon as it is sure and stays; `pass` may have to wait for requests and for time.

>>> gate = Gate(limit_nats=limit_of(floor_nats=6e-5))
>>> judge(add(start(), np.full(300, 2e-4), gate), gate).answer.value
'pass'
>>> failed = judge(add(start(), np.full(300, 2.8e-2), gate), gate)
>>> failed.answer.value, failed.requests_used < 10
('fail', True)

*Trade-offs*: a clipped mean is under the true one, so that a fail holds for both and a pass only
for the clipped one: a change that ruins one request in a thousand and no other is not seen, look
at `clipped`. Requests must not depend on each other's divergence given the past; one user who
sends the same prompt all day is one request, not thousands. A pass says that the candidate gives
production's text much the same chance; it does not say that its own text is good.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from detectors import betting
from detectors.betting import Bets, Side
from detectors.records import FloatArray

LEAST_LIMIT_NATS = 5e-3
FLOOR_FACTOR = 10.0
CLIP_LIMITS = 20.0
# Values are scaled by the clip, so that the limit is the same place on the grid in every gate
_MEANS = betting.means_around(1 / CLIP_LIMITS)
_AT_LIMIT = int(np.argmin(np.abs(_MEANS - 1 / CLIP_LIMITS)))


class Answer(StrEnum):
    """What a gate says."""

    PASS = "pass"  # noqa: S105  # a verdict, not a password
    FAIL = "fail"
    NOT_YET = "not_yet"


@dataclass(frozen=True, slots=True)
class Gate:
    """What is asked of the mean paired divergence.

    `limit_nats` per token, > 0; `alpha` the chance of a wrong answer at any look, both directions
    together; a pass needs `min_requests` and `min_duration_seconds`, a fail neither.

    Raises:
        ValueError: If a number is out of range.
    """

    limit_nats: float = LEAST_LIMIT_NATS
    alpha: float = 0.05
    min_requests: int = 1
    min_duration_seconds: float = 0.0

    def __post_init__(self) -> None:
        if not 0 < self.limit_nats < np.inf:
            msg = f"limit {self.limit_nats} nats: expected a number above 0"
            raise ValueError(msg)
        if not 0 < self.alpha < 1:
            msg = f"alpha {self.alpha}: expected a probability inside (0, 1), such as 0.05"
            raise ValueError(msg)
        if self.min_requests < 1 or not self.min_duration_seconds >= 0:
            msg = "a gate needs at least 1 request and a duration of 0 s or more"
            raise ValueError(msg)

    @property
    def clip_nats(self) -> float:
        """The most that one request can count."""
        return CLIP_LIMITS * self.limit_nats


def limit_of(floor_nats: float) -> float:
    """Return the limit: ten times what two production replicas differ, 5e-3 nats at least.

    Raises:
        ValueError: If the floor is negative or no number.
    """
    if not 0 <= floor_nats < np.inf:
        msg = f"floor {floor_nats} nats: expected 0 or more (the mean of two production runs)"
        raise ValueError(msg)
    return max(FLOOR_FACTOR * floor_nats, LEAST_LIMIT_NATS)


@dataclass(frozen=True, slots=True)
class PairedMemory:
    """All that is kept of the requests so far; its size does not grow.

    `total` and `squares` sum the clipped values in units of the clip; `failed_at` is the request
    at which the gate failed, 0 if it did not.
    """

    bets: Bets
    total: float = 0.0
    squares: float = 0.0
    clipped: int = 0
    failed_at: int = 0

    @property
    def requests(self) -> int:
        return self.bets.requests


def start() -> PairedMemory:
    """Return the memory before any request."""
    return PairedMemory(betting.start(_MEANS))


def add(memory: PairedMemory, values: FloatArray, gate: Gate) -> PairedMemory:
    """Return the memory after more requests.

    Args:
        memory: Made with the same `gate.limit_nats` and `alpha`: the values are scaled by the
            limit.
        values: Per-request mean divergence in nats, shape ``(n,)``, >= 0, in order of arrival;
            infinity counts as the clip.
        gate: The gate.

    Raises:
        ValueError: If a value is NaN or negative.
    """
    if not (values >= 0).all():
        msg = "a paired divergence is NaN or negative: leave out requests without paired tokens"
        raise ValueError(msg)
    if not len(values):
        return memory
    scaled = np.minimum(values / gate.clip_nats, 1.0)
    failed_at = memory.failed_at or _failed_at(memory.bets, scaled, gate.alpha)
    return replace(
        memory,
        bets=betting.add(memory.bets, scaled),
        total=memory.total + float(scaled.sum()),
        squares=memory.squares + float((scaled**2).sum()),
        clipped=memory.clipped + int((values > gate.clip_nats).sum()),
        failed_at=failed_at,
    )


def _failed_at(bets: Bets, scaled: FloatArray, alpha: float) -> int:
    """Return the number of the first request at which the mean is surely over the limit, or 0."""
    mean = float(_MEANS[_AT_LIMIT])
    path = betting.evidence_path(scaled, mean, Side.ABOVE, bets.above[_AT_LIMIT])
    sure = np.flatnonzero(path >= np.log(2 / alpha))
    return bets.requests + int(sure[0]) + 1 if sure.size else 0


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the gate says, and what it rests on.

    Divergences are nats a token. `lower_nats` and `upper_nats` hold the mean of the clipped values
    at every look with 1 - alpha; `requests_used` are those that the answer needed (all of them
    unless it failed early); `smallest_visible_nats` is the mean from which a candidate would be
    failed with about even chance after as many requests of this spread, infinite if none yet.
    """

    answer: Answer
    reason: str
    mean_nats: float
    lower_nats: float
    upper_nats: float
    limit_nats: float
    requests: int
    requests_used: int
    clipped: int
    smallest_visible_nats: float


def judge(
    memory: PairedMemory, gate: Gate, *, elapsed_seconds: float = np.inf, obstacle: str = ""
) -> Judgement:
    """Return the answer of the gate.

    Args:
        memory: The requests so far.
        gate: The gate that they were added with.
        elapsed_seconds: Since the first request; infinite for files.
        obstacle: Why there can be no pass though the numbers would allow it; empty if nothing.
    """
    n = memory.requests
    lower, upper = (end * gate.clip_nats for end in betting.interval(memory.bets, gate.alpha))
    mean = memory.total / n if n else np.nan
    spread = np.sqrt(max(memory.squares / n - mean**2, 0.0)) if n > 1 else np.nan
    excess = betting.visible_excess(1 / CLIP_LIMITS, float(spread), n, gate.alpha)
    below = betting.evidence(memory.bets.below[_AT_LIMIT]) >= np.log(2 / gate.alpha)
    answer, reason = _answer(memory, gate, sure=bool(below), elapsed=elapsed_seconds)
    if answer is Answer.PASS and obstacle:
        answer, reason = Answer.NOT_YET, obstacle
    return Judgement(
        answer=answer,
        reason=reason,
        mean_nats=float(mean * gate.clip_nats),
        lower_nats=lower,
        upper_nats=upper,
        limit_nats=gate.limit_nats,
        requests=n,
        requests_used=memory.failed_at or n,
        clipped=memory.clipped,
        smallest_visible_nats=gate.limit_nats + excess * gate.clip_nats,
    )


def _answer(memory: PairedMemory, gate: Gate, *, sure: bool, elapsed: float) -> tuple[Answer, str]:
    n, limit = memory.requests, f"the limit of {gate.limit_nats:.3g} nats a token"
    if memory.failed_at:
        return Answer.FAIL, f"over {limit}, sure after {memory.failed_at:,} requests"
    if not n:
        return Answer.NOT_YET, "no request could be compared"
    if not sure:
        return Answer.NOT_YET, f"{n:,} requests do not tell on which side of {limit} the mean is"
    if n < gate.min_requests:
        return Answer.NOT_YET, f"under {limit} so far; {n:,} of {gate.min_requests:,} requests"
    if elapsed < gate.min_duration_seconds:
        waited = f"{elapsed:,.0f} of {gate.min_duration_seconds:,.0f} s"
        return Answer.NOT_YET, f"under {limit} so far; {waited}"
    return Answer.PASS, f"under {limit}, after {n:,} requests"
