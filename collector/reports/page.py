"""The report as one HTML page: no scripts, nothing loaded from elsewhere, everything escaped."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined

from collector.reports.comparing import Compared
from collector.reports.features import number_words
from collector.reports.judging import Answer, ratio_words
from collector.reports.plots import picture
from collector.reports.records import Progress
from collector.reports.report import DriftReport

MOST_PLOTTED = 50  # features with plots; those outside the gate come first
_WORDS = {Answer.OUTSIDE: "outside the gate", Answer.INSIDE: "inside", Answer.UNSURE: "unsure"}


def render(report: DriftReport, compared: Compared, *, progress: Progress) -> str:
    """Return the page.

    Raises:
        TableError: If matplotlib is not installed.
    """
    pictures = pictures_of(report, compared, progress=progress)
    template = _environment().get_template("report.html")
    return template.render(report=report, pictures=pictures, most_plotted=MOST_PLOTTED)


def pictures_of(
    report: DriftReport, compared: Compared, *, progress: Progress
) -> Mapping[str, str]:
    """Return the plots of the first features, by name."""
    features = {one.feature.name: one.feature for one in compared.judged}
    shown = report.features[:MOST_PLOTTED]
    found: dict[str, str] = {}
    for place, one in enumerate(shown, start=1):
        found[one.feature] = picture(features[one.feature])
        progress(f"drawing {one.feature}", place / len(shown))
    return found


def figure_words(value: float | None) -> str:
    """Write a figure of the table; empty if there is none."""
    return "" if value is None else number_words(value)


def p_words(value: float | None) -> str:
    """Write a p-value.

    >>> p_words(0.0), p_words(3.2e-7), p_words(0.25), p_words(None)
    ('under 1e-300', '3.2e-07', '0.25', '')
    """
    if value is None:
        return ""
    return f"{value:.2g}" if value > 0 else "under 1e-300"


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("collector.reports", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        answer=_WORDS.__getitem__, figure=figure_words, p=p_words, share=ratio_words
    )
    return environment
