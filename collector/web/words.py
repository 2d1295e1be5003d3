"""Numbers, ages and levels as people read them. Filters of the templates."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from datetime import datetime

from collector.web.view import BaselineView, BreakerView, SignalView, TierView, VerdictView

NOTHING = "-"
COLLECTING = "collecting"  # of a tier of which only baselines are missing
_BASELINE_MISSING = "baseline_missing"
_LEVELS = ("critical", "warning", "unknown", "ok")
_MOODS = ("critical", "warning", "unknown", COLLECTING, "ok")
_SYMBOLS = {"critical": "✖", "warning": "▲", "unknown": "?", COLLECTING: "…", "ok": "✔"}
_GIB = 2.0**30
_DAY_SECONDS = 86_400
_TENTHS_BELOW_SECONDS = 10
_AGE_UNITS = (("s", 1, 120), ("min", 60, 7_200), ("h", 3_600, 2 * _DAY_SECONDS))
_EXACT_BELOW = 1e15  # whole numbers are shown in full up to here
_SMALLEST_SHOWN, _LARGEST_SHOWN = 0.005, 0.995  # what two digits would round to 0 or to 1


def age(seconds: float | None) -> str:
    """Return an age such as `0.8 s`, `42 s`, `3 min` or `5 h`."""
    if seconds is None or not math.isfinite(seconds):
        return NOTHING
    if seconds < _TENTHS_BELOW_SECONDS:
        return f"{max(seconds, 0.0):.1f} s"
    for unit, length_seconds, below_seconds in _AGE_UNITS:
        if seconds < below_seconds:
            return f"{seconds / length_seconds:.0f} {unit}"
    return f"{seconds / _DAY_SECONDS:.0f} d"


def value(signal: SignalView) -> str:
    """Return the value with its unit where the name does not say it, or a dash."""
    if signal.value is None or not math.isfinite(signal.value):
        return NOTHING
    if signal.unit == "bytes":
        return f"{signal.value / _GIB:.2f} GiB"
    if signal.unit == "ratio":
        return f"{signal.value:.3f}"
    number = number_of(signal.value)
    return f"{number} {signal.unit}" if signal.unit not in signal.name else number


def bucket(signal: SignalView) -> str:
    """Return where a quantile surely lies, such as `0.1 to 0.25`; empty for other signals."""
    if signal.between is None:
        return ""
    lower, upper = signal.between
    if upper is None:
        return f"{number_of(lower)} or more"
    return f"{number_of(lower)} to {number_of(upper)}"


def absence(signal: SignalView) -> str:
    """Return why there is no value, without the name of the signal in front."""
    return signal.absent.removeprefix(f"{signal.name}: ") or "no reason given"


def number_of(number: float) -> str:
    """Return a number short enough for a table, whole ones with separators."""
    if float(number).is_integer() and abs(number) < _EXACT_BELOW:
        return f"{int(number):,}"
    return f"{number:.4g}"


def ratio(number: float) -> str:
    """Return a share of 0 to 1 with two digits; what is not quite 0 or 1 never looks like it."""
    if 0 < number < _SMALLEST_SHOWN:
        return "under 0.01"
    return "0.99" if _LARGEST_SHOWN < number < 1 else f"{number:.2f}"


def clock(moment: datetime | None) -> str:
    """Return the time of day in UTC."""
    return NOTHING if moment is None else moment.strftime("%H:%M:%S")


def stamp(moment: datetime | None) -> str:
    """Return date and time in UTC."""
    return NOTHING if moment is None else moment.strftime("%Y-%m-%d %H:%M:%S UTC")


def symbol(level: str) -> str:
    """Return the sign that stands beside a level's word, so that colour is never alone."""
    return _SYMBOLS.get(level, "?")


def worst(verdicts: Iterable[VerdictView]) -> str:
    """Return the worst of what verdicts say of a tier; unknown if they say nothing.

    The order is critical, warning, unknown, collecting, ok. An unknown one whose baseline is
    missing counts as collecting, one without a cause not at all: a signal that an engine has only
    with some option would keep a healthy tier unknown for good.
    """
    found = {_weight(verdict) for verdict in verdicts}
    return next((level for level in _MOODS if level in found), "unknown")


def _weight(verdict: VerdictView) -> str:
    if verdict.level != "unknown":
        return verdict.level
    if verdict.cause == _BASELINE_MISSING:
        return COLLECTING
    return "unknown" if verdict.cause else ""


def by_level(verdicts: Iterable[VerdictView]) -> list[VerdictView]:
    """Return the verdicts, worst first, then by scope and signal."""
    return sorted(verdicts, key=_severity)


def _severity(verdict: VerdictView) -> tuple[int, str, str]:
    place = _LEVELS.index(verdict.level) if verdict.level in _LEVELS else 0
    return place, verdict.scope, verdict.signal


def withheld(breakers: Iterable[BreakerView]) -> list[BreakerView]:
    """Return the breakers that keep traffic out, or are under a person's hand."""
    return [row for row in breakers if row.effective_ratio < 1 or row.override is not None]


def state(breaker: BreakerView) -> str:
    """Return the state to show: a tier that lets a part in sheds, whatever its machine calls it."""
    by_itself = breaker.override is None and not breaker.target
    if by_itself and 0 < breaker.effective_ratio < 1 and breaker.shown_state != "half_open":
        return "sheds"
    return breaker.shown_state


def several_variants(tier: TierView) -> frozenset[str]:
    """Return the scopes of which the tier has more than one variant."""
    lanes = {(row.scope, row.variant) for row in tier.verdicts if row.variant}
    lanes |= {(row.scope, row.variant) for row in tier.baselines if row.variant}
    counted = Counter(scope for scope, _ in lanes)
    return frozenset(scope for scope, variants in counted.items() if variants > 1)


def scope(row: VerdictView | BaselineView, several: frozenset[str]) -> str:
    """Return the scope of a row, with its variant if the scope is one of `several` variants."""
    named = row.variant and row.scope in several
    return f"{row.scope}, variant {row.variant}" if named else row.scope


def mood(tier: TierView) -> str:
    """Return the level that a tier's heading shows: its worst verdict, critical if it sheds."""
    return "critical" if withheld(tier.breakers) else worst(tier.verdicts)
