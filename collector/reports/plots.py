"""Pictures of a feature as SVG: both distributions with band and gate, and the quantile shifts.

Nothing of the files' text is drawn: names stand on the page around the picture.
"""

from __future__ import annotations

import base64
import math
from io import StringIO
from typing import TYPE_CHECKING

import numpy as np

from collector.reports.extra import need
from collector.reports.features import Curve, Feature
from detectors.records import FloatArray
from detectors.two_sample import QuantileShift

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_INCHES = (4.6, 3.0)
_REFERENCE, _CURRENT, _GATE, _BAND = "#1f5a96", "#c4501b", "#d9d9d9", "#9dbbd8"
_SKEWED = 50.0  # 99 % quantile over the median, from where a logarithmic axis shows more


def picture(feature: Feature) -> str:
    """Return a feature's plots as the address of an image (`data:` URL); empty without numbers.

    Raises:
        TableError: If matplotlib is not installed.
    """
    need("matplotlib", "plots")
    if feature.curve is None or not feature.quantiles:
        return ""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "fusewire", "font.size": 8.0}):
        figure = Figure(figsize=(2 * _INCHES[0], _INCHES[1]), layout="constrained")
        left, right = figure.subplots(1, 2)
        _draw_distributions(left, feature.curve)
        _draw_quantiles(right, feature.quantiles)
        return _address(figure)


def _draw_distributions(axes: Axes, curve: Curve) -> None:
    x = curve.points
    axes.fill_between(x, curve.low, curve.high, step="post", color=_GATE, label="gate")
    axes.fill_between(x, curve.lower, curve.upper, step="post", color=_BAND, label="REF, 99 % band")
    axes.step(x, curve.reference, where="post", color=_REFERENCE, linewidth=1.2, label="REF")
    axes.step(x, curve.current, where="post", color=_CURRENT, linewidth=1.2, label="CUR")
    if _is_skewed(curve):
        axes.set_xscale("log")
    axes.set_ylim(-0.02, 1.02)
    axes.set_xlabel("value")
    axes.set_ylabel("share at or below")
    axes.legend(loc="lower right", frameon=False)


def _is_skewed(curve: Curve) -> bool:
    if curve.points[0] <= 0:
        return False
    places = np.searchsorted(curve.reference, [0.5, 0.99])
    middle, far = curve.points[np.minimum(places, len(curve.points) - 1)]
    return bool(far > _SKEWED * middle)


def _draw_quantiles(axes: Axes, shifts: tuple[QuantileShift, ...]) -> None:
    """Draw by how much each quantile has moved, with the interval that both sides' leave."""
    known = [shift for shift in shifts if math.isfinite(shift.reference + shift.current)]
    places = np.arange(len(known), dtype=np.float64)
    moved = np.asarray([shift.current - shift.reference for shift in known])
    lower = np.asarray([s.current_interval[0] - s.reference_interval[1] for s in known])
    upper = np.asarray([s.current_interval[1] - s.reference_interval[0] for s in known])
    axes.axhline(0.0, color=_REFERENCE, linewidth=0.8)
    axes.errorbar(
        places, moved, yerr=_bars(moved, lower, upper), fmt="o", color=_CURRENT, capsize=3
    )
    axes.set_xticks(places, [f"{100 * shift.level:g} %" for shift in known])
    axes.set_xlabel("quantile")
    axes.set_ylabel("CUR minus REF, with 95 % intervals")


def _bars(moved: FloatArray, lower: FloatArray, upper: FloatArray) -> FloatArray:
    """Return lengths of error bars, shape (2, q); none where an end is not known."""
    bars = np.stack([moved - lower, upper - moved])
    return np.where(np.isfinite(bars), np.maximum(bars, 0.0), 0.0)


def _address(figure: Figure) -> str:
    text = StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    packed = base64.b64encode(text.getvalue().encode()).decode("ascii")
    return f"data:image/svg+xml;base64,{packed}"
