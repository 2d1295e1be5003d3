"""`drift`: two files of features, compared once and plainly."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress

from collector.cli.options import json_option
from collector.cli.output import (
    FINDING,
    NOT_ENOUGH,
    fail,
    printable,
    show_json,
    show_table,
    utc_now,
    write_file,
)
from collector.reports import page, records
from collector.reports.comparing import Compared, compare
from collector.reports.extra import need
from collector.reports.judging import DEFAULT_GATE, Answer, Correction, Settings
from collector.reports.opening import open_table
from collector.reports.report import DriftReport, FeatureOut, SideOut, report_of
from detectors.sequential.band import Gate

_CODES = {Answer.INSIDE: 0, Answer.OUTSIDE: FINDING, Answer.UNSURE: NOT_ENOUGH}
_EXISTING = click.Path(path_type=Path, dir_okay=False)


@click.command()
@click.argument("reference", metavar="REF", type=_EXISTING)
@click.argument("current", metavar="CUR", type=_EXISTING)
@click.option("--feature", "only", multiple=True, help="Only this column; may be repeated.")
@click.option(
    "--gate-ks",
    type=click.FloatRange(0, 1, max_open=True),
    default=DEFAULT_GATE.distance,
    show_default=True,
    help="KS distance that is not worth telling.",
)
@click.option(
    "--gate-odds",
    type=click.FloatRange(1, 1e9),
    default=DEFAULT_GATE.odds,
    show_default=True,
    help="Odds ratio of any share that is not worth telling (tails, categories).",
)
@click.option(
    "--alpha",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.01,
    show_default=True,
    help="Level after the correction over features.",
)
@click.option(
    "--correction",
    type=click.Choice(["holm", "bh"]),
    default="holm",
    show_default=True,
    help="Holm: chance of any wrong finding; Benjamini-Hochberg: share of wrong findings.",
)
@click.option(
    "--must-see",
    type=click.FloatRange(0, 1),
    default=Settings().must_see,
    show_default=True,
    help="A feature with too few rows to show a KS distance of the gate plus this is unsure.",
)
@click.option("--html", "html_path", metavar="FILE", type=_EXISTING, help="Also write a page.")
@json_option
def drift(  # noqa: PLR0913  # one parameter an option: click's way
    reference: Path,
    current: Path,
    *,
    only: tuple[str, ...],
    gate_ks: float,
    gate_odds: float,
    alpha: float,
    correction: Correction,
    must_see: float,
    html_path: Path | None,
    as_json: bool,
) -> None:
    """Compare the features of CUR with those of REF, and say which have drifted.

    Both are Parquet, CSV or JSON lines (the last two plain or gzip): rows of features, or logged
    generations, whose request signals are then the features. A feature is outside only if it has
    surely moved by more than the gate, after correction over all features.

    Exit codes: 0 none outside, 1 some feature outside, 2 usage or unreadable file, 3 too little
    data to say.
    """
    settings = Settings(Gate(gate_ks, gate_odds), alpha, correction, must_see)
    try:
        if html_path is not None:
            need("matplotlib", "--html")
        with _progress() as tell:
            compared = _compared(reference, current, settings, only, tell)
            report = report_of(compared, settings)
            text = page.render(report, compared, progress=tell) if html_path else ""
    except records.TableError as error:
        fail(str(error))
    if html_path is not None:
        write_file(html_path, text)
    if as_json:
        show_json(report)
    else:
        _show(report)
    raise click.exceptions.Exit(_CODES[report.answer])


def _compared(
    reference: Path,
    current: Path,
    settings: Settings,
    only: tuple[str, ...],
    tell: records.Progress,
) -> Compared:
    bounds, now = records.Bounds(), utc_now()
    opened = partial(open_table, bounds=bounds, now=now, progress=tell)
    tables = [opened(path) for path in (reference, current)]
    return compare(tables[0], tables[1], settings, only=only, progress=tell)


@contextmanager
def _progress() -> Iterator[records.Progress]:
    """Show what is done as bars on a terminal, one a step."""
    console = Console(file=sys.stderr)
    with Progress(console=console, transient=True, disable=not sys.stderr.isatty()) as progress:
        bar = progress.add_task("", total=1.0)

        def tell(words: str, share: float) -> None:
            progress.update(bar, description=escape(printable(words)), completed=share)

        yield tell


def _show(report: DriftReport) -> None:
    columns = ("feature", "answer", "distance", "p_gate", "p_any", "why")
    show_table("drift", columns, [_row(one) for one in report.features])
    for name, side in (("REF", report.reference), ("CUR", report.current)):
        _notes(name, side)
    for one in report.features:
        for remark in one.remarks:
            click.echo(f"note: {printable(one.feature)}: {printable(remark)}")
    for left in report.skipped:
        click.echo(f"not compared: {printable(left.column)}: {left.reason}")
    click.echo(f"{report.answer}: {printable(report.reason)}")


def _notes(name: str, side: SideOut) -> None:
    for remark in side.remarks:
        click.echo(f"note: {name}: {printable(remark)}")


def _row(one: FeatureOut) -> tuple[str, ...]:
    return (
        one.feature,
        one.answer,
        f"{one.distance:.3f}",
        page.p_words(one.corrected_gate_p),
        page.p_words(one.corrected_ks_p),
        one.reason,
    )
