"""The p-value of the two-sample Kolmogorov-Smirnov distance: exact for small samples.

Under the null every order of the m + n values is equally likely, so the merge of two samples is a
lattice path from (0, 0) to (m, n), and the p-value is the share of paths that leave a band around
the diagonal. Shares are added, never subtracted: small p-values keep their digits.

>>> two_sample_p(2, 2, 1)  # 2 of 3 orders have a distance of 1
0.6666666666666666
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import gammaln

MOST_EXACT = 10_000  # rows of the larger sample; the same limit as scipy's


def two_sample_p(gap: int, m: int, n: int) -> float:
    """Return the two-sided p-value of the distance ``gap / (m n)``.

    Args:
        gap: The largest ``|n i - m j|`` of the merge, 0 <= gap <= m n.
        m: Rows of one sample, >= 1.
        n: Rows of the other, >= 1.

    Returns:
        P(distance >= the one found) without ties, which makes it conservative with ties; exact for
        up to `MOST_EXACT` rows a side, else that of one sample of the effective size.

    References:
        Hodges (1958), The significance probability of the Smirnov two-sample test.
    """
    if gap == 0:
        return 1.0
    if max(m, n) <= MOST_EXACT:
        found = _equal_sizes(gap // m, m) if m == n else _band(gap, m, n)
        return min(max(found, 0.0), 1.0)
    from scipy.stats import kstwo  # half a second, and only large samples need it

    return float(kstwo.sf(gap / (m * n), round(m * n / (m + n))))


def _equal_sizes(height: int, n: int) -> float:
    """Return 2 sum_k (-1)^(k-1) C(2n, n - k h) / C(2n, n): reflections at two lines."""
    k = np.arange(1, n // height + 1)
    steps = (k * height).astype(np.float64)
    logs = 2 * gammaln(n + 1) - gammaln(n - steps + 1) - gammaln(n + steps + 1)
    signs = np.where(k % 2 == 1, 1.0, -1.0)
    return 2 * math.fsum(signs * np.exp(logs))


def _band(gap: int, m: int, n: int) -> float:
    """Return the share of paths that reach ``|n i - m j| >= gap``, one diagonal at a time.

    `share[i - low]` is that share among the paths to (i, d - i); a path comes from (i - 1, d - i)
    with probability i / d, else from (i, d - i - 1). Only points inside the band are kept.
    """
    # inside the band: |n i - m (d - i)| < gap  <=>  (m d - gap) / (m + n) < i < (m d + gap) / ...
    low, share = 0, np.zeros(1)
    for d in range(1, m + n + 1):
        first = max((m * d - gap) // (m + n) + 1, 0, d - n)
        last = min(-((-m * d - gap) // (m + n)) - 1, m, d)
        if first > last:
            return 1.0
        padded = np.ones(last - first + 2)  # shares of i from first - 1 to last, 1 outside
        begin, end = max(low, first - 1), min(low + len(share) - 1, last)
        if begin <= end:
            padded[begin - first + 1 : end - first + 2] = share[begin - low : end - low + 1]
        i = np.arange(first, last + 1)
        share = (i * padded[:-1] + (d - i) * padded[1:]) / d
        low = first
    return float(share[m - low])
