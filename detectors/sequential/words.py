"""Numbers as people read them in a report."""

from __future__ import annotations

from math import log10

MINUTE, HOUR, DAY, YEAR = 60.0, 3600.0, 86_400.0, 365.25 * 86_400.0
_PLAIN = 10_000.0


def bare_share(ratio: float) -> str:
    """Write a share in percent without the sign: two digits, more near 100.

    >>> [bare_share(ratio) for ratio in (0.005, 0.0524, 0.123, 0.9997, 0.0)]
    ['0.50', '5.2', '12', '99.97', '0']
    """
    percent = 100 * ratio
    if percent == 0:
        return "0"
    near_all = percent >= 99  # noqa: PLR2004  # 99.97 % must not read 100 %
    digits = 4 if near_all else 2
    return f"{percent:#.{digits}g}".rstrip(".")


def share_words(ratio: float) -> str:
    """Write a share in percent, for people.

    >>> share_words(0.052)
    '5.2 %'
    """
    return f"{bare_share(ratio)} %"


def number_words(value: float) -> str:
    """Write a value of a signal, thousands set apart.

    >>> number_words(8192.0), number_words(0.05)
    ('8,192', '0.05')
    """
    whole = value == int(value) and abs(value) < 1e15  # noqa: PLR2004  # exact as a float
    return f"{int(value):,}" if whole else f"{value:.4g}"


def time_words(seconds: float) -> str:
    """Write a length of time in its largest fitting unit.

    >>> time_words(42.0), time_words(90.0), time_words(86400.0 * 90), time_words(1.6e10)
    ('42 s', '1.5 min', '90 days', '507 years')
    """
    for unit, name in ((YEAR, "years"), (DAY, "days"), (HOUR, "hours"), (MINUTE, "min")):
        if seconds >= unit:
            many = seconds / unit
            return f"{many:,.0f} {name}" if many >= 10 else f"{many:.2g} {name}"  # noqa: PLR2004
    return f"{seconds:.0f} s"


def evidence_words(evidence: float) -> str:
    """Write evidence as a plain number, or as a power of ten where that is long.

    >>> evidence_words(0.034), evidence_words(1234.5), evidence_words(3.2e7)
    ('0.034', '1,234', '10^7.5')
    """
    if 100 <= evidence < _PLAIN:  # noqa: PLR2004  # from where two digits have an exponent
        return f"{evidence:,.0f}"
    return f"{evidence:.2g}" if evidence < _PLAIN else f"10^{log10(evidence):.1f}"
