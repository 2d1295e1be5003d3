"""Bets against the null: what each target pays for each bin, certified never to pay by chance.

The bet on a target Q is e = dQ / dP*, with P* the distribution of the null that is nearest to Q
(`string.py`). Its mean is at most 1 under every distribution of the null, and no bet of which that
is true grows faster under Q. `Bets` checks the former when it is made, from the numbers alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from detectors.records import FloatArray
from detectors.sequential.band import Band
from detectors.sequential.string import taut_string
from detectors.sequential.targets import Target, family, masses

LEAST_GROWTH = 2e-5  # nats a request; under it a target is as good as inside the null
CERTIFIED = 1e-9


@dataclass(frozen=True)
class Bets:
    """The bets against one null.

    `log_bets` (B + 1, J) is ln e of each bin and target; `growth` (J,) the nats a request that
    each earns when its target is true; `weights` (J,) of sum 1 (of no bets: empty) say how the
    stake is shared. No bet at all means a null so wide that nothing would be found.

    Raises:
        ValueError: If the greatest mean of a bet under the null is not 1 within 1e-9.
    """

    band: Band
    targets: tuple[Target, ...]
    log_bets: FloatArray
    growth: FloatArray
    weights: FloatArray

    def __post_init__(self) -> None:
        worst = certificate(self.log_bets, self.band)
        wrong = np.flatnonzero(~(np.abs(worst - 1) < CERTIFIED))
        if len(wrong):
            place = int(wrong[0])
            msg = (
                f"bets: target {self.targets[place]} has a greatest mean of {worst[place]!r} under "
                "the null, expected 1 within 1e-9; its alarms would not keep the promised rate, "
                "make the bets anew from the baseline"
            )
            raise ValueError(msg)


def certificate(log_bets: FloatArray, band: Band) -> FloatArray:
    """Return the greatest mean of each bet under any distribution of the null.

    Args:
        log_bets: ln e, shape ``(B + 1, J)``.
        band: The null.

    Returns:
        Means of shape ``(J,)``. Summed by parts, E[e] = e_0 + sum_b (e_{b+1} - e_b) P(X > t_b):
        each step up is greatest at `low`, each step down at `high`.
    """
    bets = np.exp(log_bets)
    steps = np.diff(bets, axis=0)
    up = np.maximum(steps, 0.0) * (1 - band.low)[:, None]
    down = np.minimum(steps, 0.0) * (1 - band.high)[:, None]
    worst: FloatArray = bets[0] + (up + down).sum(axis=0)
    return worst


def log_bet(target: FloatArray, band: Band) -> FloatArray:
    """Return ln dQ/dP* of a target Q for each bin, shapes ``(B + 1,)``.

    It is scaled by its certificate, which takes out the rounding of masses near 1e-9.
    """
    nearest = taut_string(np.cumsum(target)[:-1], band.low, band.high)
    raw = np.log(target / np.diff(nearest, prepend=0.0, append=1.0))
    return raw - np.log(certificate(raw[:, None], band))


def make_bets(bands: Sequence[Band]) -> tuple[Bets, ...]:
    """Return the bets against each of some nulls, all with the same list of targets.

    Args:
        bands: The null of each stratum of one baseline (for a baseline without strata, one). All
            have the same thresholds; the first decides which targets there are.

    Returns:
        One `Bets` a band. Targets that grow by less than `LEAST_GROWTH` under every one of the
        bands are left out, so column j means the same in all and evidence carries over.

    Raises:
        ValueError: If the bands have different thresholds, or a bet is not certified.
    """
    first = bands[0]
    if any(not np.array_equal(band.thresholds, first.thresholds) for band in bands):
        msg = "bets: strata with different thresholds; make all bands with those of the whole"
        raise ValueError(msg)
    targets = family(first)
    aims = np.stack([[masses(target, band) for target in targets] for band in bands])
    logs = np.stack(
        [[log_bet(aim, band) for aim in rows] for rows, band in zip(aims, bands, strict=True)]
    )
    growth = (aims * logs).sum(axis=2)
    kept = np.flatnonzero((growth > LEAST_GROWTH).any(axis=0))
    return tuple(
        Bets(
            band=band,
            targets=tuple(targets[place] for place in kept),
            log_bets=rows[kept].T,
            growth=earned[kept],
            weights=np.full(len(kept), 1 / max(len(kept), 1)),
        )
        for band, rows, earned in zip(bands, logs, growth, strict=True)
    )
