r"""A confidence sequence for the mean of bounded values: an interval that holds at every look.

Two gamblers bet against each possible mean m of values in [0, 1]. One bets that the mean is above
m, the other that it is below; each spreads its money over `FRACTIONS` of what may be staked. If
the mean is m, money grows by chance only, and it ever reaches 2 / alpha times its start with
probability alpha / 2 at most, however often one looks. The means that neither gambler has ruined
are the interval. Money of a constant fraction is a product over values, so their order does not
matter, and a memory of fixed size is enough.

>>> bets = add(start(means_around(0.05)), np.full(400, 0.002))
>>> lower, upper = interval(bets, alpha=0.05)
>>> lower < 0.002 < upper < 0.05
True

References:
    Waudby-Smith and Ramdas, "Estimating means of bounded random variables by betting" (JRSS B
    2024): the capital process and its hedge. Ville's inequality (1939). Mixing over fractions in
    place of tuning one: Cover's universal portfolios (1991).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np
from scipy.special import logsumexp

from detectors.records import FloatArray

# From bold (quick when the mean is far off) to timid (sharp after 1e5 values); 0.98 and not 1, so
# that one value at the far end ruins nobody
FRACTIONS: FloatArray = np.array([0.98, *(0.5 ** np.arange(1, 12))])
_RATIO = 1.05  # between neighbouring means: ends of intervals are rounded outwards by up to 5 %
_STEPS_DOWN = 130  # to 2e-3 of the middle
_BLOCK = 256


class Side(Enum):
    """What a gambler bets on: that the mean is above m, or below it."""

    ABOVE = "above"
    BELOW = "below"


@dataclass(frozen=True, slots=True)
class Bets:
    """What is kept: the log capital of each fraction against each mean.

    `means` (G,) ascends within (0, 1); `above` and `below` have shape (G, len(FRACTIONS)), nats;
    `requests` counts the values.
    """

    means: FloatArray
    above: FloatArray
    below: FloatArray
    requests: int


def means_around(middle: float) -> FloatArray:
    """Return a grid of means in (0, 1) that holds `middle` itself, shape ``(G,)``, ascending.

    Raises:
        ValueError: If `middle` is not inside (0, 1).
    """
    if not 0 < middle < 1:
        msg = f"a middle of {middle}: expected one inside (0, 1)"
        raise ValueError(msg)
    steps_up = int(np.log(1 / middle) / np.log(_RATIO))
    steps = np.arange(-_STEPS_DOWN, steps_up + 1).astype(np.float64)
    means: FloatArray = middle * np.exp(steps * np.log(_RATIO))
    return means[means < 1]


def start(means: FloatArray) -> Bets:
    """Return the bets before any value."""
    nothing = np.zeros((len(means), len(FRACTIONS)))
    return Bets(means, nothing, nothing, 0)


def add(bets: Bets, values: FloatArray) -> Bets:
    """Return the bets after more values.

    Args:
        bets: The bets so far.
        values: Values in [0, 1], shape ``(n,)``.

    Raises:
        ValueError: If a value is NaN or outside [0, 1].
    """
    _check(values)
    above, below = bets.above.copy(), bets.below.copy()
    for first in range(0, len(values), _BLOCK):
        block = values[first : first + _BLOCK]
        above += _gains(block, bets.means[:, None, None], Side.ABOVE).sum(axis=1)
        below += _gains(block, bets.means[:, None, None], Side.BELOW).sum(axis=1)
    return Bets(bets.means, above, below, bets.requests + len(values))


def _check(values: FloatArray) -> None:
    if not ((values >= 0) & (values <= 1)).all():
        msg = "values outside [0, 1] or NaN: clip and scale them first"
        raise ValueError(msg)


def _gains(values: FloatArray, means: FloatArray, side: Side) -> FloatArray:
    """Return the log growth of each fraction by each value, shape ``(..., n, fractions)``."""
    if side is Side.BELOW:
        values, means = 1 - values, 1 - means
    gains: FloatArray = np.log1p(FRACTIONS * (values[..., :, None] / means - 1))
    return gains


def evidence(log_capital: FloatArray) -> FloatArray:
    """Return ln of the capital over all fractions, start 0; shape ``(..., fractions)`` to (...)."""
    total: FloatArray = np.asarray(logsumexp(log_capital, axis=-1)) - np.log(len(FRACTIONS))
    return total


def evidence_path(
    values: FloatArray, mean: float, side: Side, before: FloatArray | None = None
) -> FloatArray:
    """Return the evidence against `mean` after each value, nats.

    Args:
        values: Values in [0, 1], shape ``(..., n)``.
        mean: The mean that is bet against, inside (0, 1).
        side: Whether the bet is that the true mean is above or below it.
        before: Log capital of each fraction before the first value, shape ``(fractions,)``.

    Returns:
        Shape ``(..., n)``. Under the mean it passes ln(1 / a) ever with probability <= a.
    """
    _check(values)
    steps = np.cumsum(_gains(values, np.asarray(mean), side), axis=-2)
    return evidence(steps if before is None else steps + before)


def interval(bets: Bets, alpha: float) -> tuple[float, float]:
    """Return the means that are left, as an interval inside [0, 1], ends rounded outwards.

    Args:
        bets: The bets so far.
        alpha: Chance that the true mean is ever outside, at any number of values, (0, 1).
    """
    ruin = np.log(2 / alpha)
    too_low = np.flatnonzero(evidence(bets.above) >= ruin)
    too_high = np.flatnonzero(evidence(bets.below) >= ruin)
    lower = float(bets.means[too_low[-1]]) if too_low.size else 0.0
    upper = float(bets.means[too_high[0]]) if too_high.size else 1.0
    return lower, upper


def visible_excess(mean: float, spread: float, values: int, alpha: float) -> float:
    """Return how far above `mean` the truth must lie to be told from it in half of cases or more.

    Args:
        mean: The mean that is bet against, inside (0, 1).
        spread: Standard deviation of a value, >= 0; NaN if it is not known.
        values: Number of values.
        alpha: Error of the two-sided interval.

    Returns:
        Excess over `mean`, infinite where no truth could be told apart yet.

    References:
        Second-order growth of the best fraction, plus what the boldest one needs of values without
        spread; met by simulation in the tests.
    """
    if np.isnan(spread):
        return float(np.inf)
    needed = float(np.log(2 * len(FRACTIONS) / alpha))
    if values <= 2 * needed:
        by_spread = np.inf if spread > 0 else 0.0
    else:
        by_spread = spread * np.sqrt(2 * needed / (values - 2 * needed))
    boldest = mean * float(np.expm1(needed / values)) / float(FRACTIONS[0])
    excess = by_spread + boldest
    return excess if mean + excess <= 1 else float(np.inf)
