"""`shadow compare`: a candidate model against production, on the same text."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from rich.console import Console
from rich.progress import Progress

from collector.cli.options import json_option
from collector.cli.output import FINDING, NOT_ENOUGH, fail, show_json, show_table
from collector.shadow.comparing import compare
from collector.shadow.files import lines_of
from collector.shadow.joining import Join
from collector.shadow.records import FileProblemError, RawLine, ReadLimits
from collector.shadow.report import EstimateOut, ShadowReport, report_of
from detectors.paired import LEAST_LIMIT_NATS, Answer, Gate, limit_of

_CODES = {Answer.PASS: 0, Answer.FAIL: FINDING, Answer.NOT_YET: NOT_ENOUGH}
_WORDS = {Answer.PASS: "pass", Answer.FAIL: "fail", Answer.NOT_YET: "not yet"}
FLOOR_REQUESTS = 30  # fewer production pairs tell no floor
_EXISTING = click.Path(path_type=Path, dir_okay=False)


@click.group()
def shadow() -> None:
    """Compare a shadow (a candidate to replace production) with production."""


@shadow.command("compare")
@click.argument("reference", metavar="REF", type=_EXISTING)
@click.argument("candidate", metavar="CAND", type=_EXISTING)
@click.option(
    "--floor",
    metavar="FILE|NUMBER",
    help="What two production runs differ: a second run's file, or nats a token. "
    "The limit is ten times that, at least 0.005.",
)
@click.option(
    "--limit",
    "limit_nats",
    type=click.FloatRange(0, min_open=True),
    help=f"Mean divergence that is still accepted, nats a token; {LEAST_LIMIT_NATS} if not given.",
)
@click.option(
    "--alpha",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.05,
    show_default=True,
    help="Chance of a wrong answer.",
)
@click.option(
    "--min-requests",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Fewest requests for a pass; a fail comes as soon as it is sure.",
)
@json_option
def compare_files(  # noqa: PLR0913  # one parameter an option: click's way
    reference: Path,
    candidate: Path,
    *,
    floor: str | None,
    limit_nats: float | None,
    alpha: float,
    min_requests: int,
    as_json: bool,
) -> None:
    """Judge the candidate of CAND by the text of production in REF.

    Both are files of JSON lines, plain or gzip: logged generations (`request`, `response` with
    logprobs or prompt_logprobs) or scored texts (`tokens`, `token_logprobs`). Lines are joined by
    `id` (or `i`), by `x-request-id`, `request_id` or `custom_id`, or by the request's text.

    Exit codes: 0 pass, 1 fail, 2 usage or unreadable file, 3 not enough evidence.
    """
    if floor is not None and limit_nats is not None:
        fail("give --floor or --limit, not both: the limit follows from the floor")
    try:
        measured = None if floor is None else _floor(floor, reference, alpha)
        limit = limit_nats or limit_of(measured or 0.0)
        gate = Gate(limit_nats=limit, alpha=alpha, min_requests=min_requests)
        report = _report(reference, candidate, gate, measured)
    except FileProblemError as error:
        fail(str(error))
    if as_json:
        show_json(report)
    else:
        _show(report)
    raise click.exceptions.Exit(_CODES[report.answer])


def _floor(text: str, reference: Path, alpha: float) -> float:
    """Return the floor: the number given, or what a second production run's file differs."""
    try:
        floor = float(text)
        limit_of(floor)
    except ValueError as error:
        if not Path(text).exists():
            fail(f"--floor {text!r}: neither a file nor a number of nats, 0 or more: {error}")
    else:
        return floor
    report = _report(reference, Path(text), Gate(alpha=alpha), None)
    found = report.paired_divergence
    blocked = next((one.text for one in report.remarks if one.forbids_pass), "")
    if found.mean_nats is None or found.requests < FLOOR_REQUESTS or blocked:
        why = blocked or f"{found.requests:,} requests, {FLOOR_REQUESTS} needed"
        fail(f"--floor {text}: not enough evidence for a floor: {why}", NOT_ENOUGH)
    return found.mean_nats


def _report(reference: Path, candidate: Path, gate: Gate, floor_nats: float | None) -> ShadowReport:
    with _progress() as progress:
        streams = [_lines(path, progress) for path in (reference, candidate)]
        compared = compare(Join(streams[0], streams[1], ReadLimits()), gate)
    for path, side in ((reference, compared.reference), (candidate, compared.candidate)):
        if side.refused.total() == side.lines:
            first = "; ".join(f"line {number}: {why}" for number, why in side.examples)
            msg = f"{path}: no line of {side.lines:,} can be compared ({first or 'it is empty'})"
            raise FileProblemError(msg)
    return report_of(compared, gate, floor_nats=floor_nats)


@contextmanager
def _progress() -> Iterator[Progress]:
    console = Console(file=sys.stderr)
    with Progress(console=console, transient=True, disable=not sys.stderr.isatty()) as progress:
        yield progress


def _lines(path: Path, progress: Progress) -> Iterator[RawLine]:
    size = path.stat().st_size if path.is_file() else 0
    bar = progress.add_task(f"reading {path.name}", total=size)
    return lines_of(
        path,
        line_bytes=ReadLimits().line_bytes,
        progress=lambda place: progress.update(bar, completed=place),
    )


def _show(report: ShadowReport) -> None:
    columns = ("figure", "mean", "from", "to", "requests", "remark")
    show_table("shadow", columns, list(_rows(report)))
    for one in report.remarks:
        click.echo(f"{'no pass' if one.forbids_pass else 'note'}: {one.text}")
    click.echo(f"{_WORDS[report.answer]}: {report.reason}")


def _rows(report: ShadowReport) -> Iterator[tuple[str, ...]]:
    found = report.paired_divergence
    visible = found.smallest_visible_nats
    seen = "none yet" if visible is None else f"{visible:.3g}"
    words = f"limit {report.limit_nats:.3g}, smallest visible {seen}, {found.clipped:,} clipped"
    yield _estimate_row("paired divergence, nats a token", found, words)
    if report.head_k3 is not None:
        yield _estimate_row("head + k3, nats a token", report.head_k3, report.direction)
    if report.kl_lower_nats is not None:
        words = f"no upper bound follows from top-k; {report.direction}"
        yield ("KL at least, nats a token", f"{report.kl_lower_nats:.3g}", "", "", "", words)
    for name, bounds in (("Jensen-Shannon, nats", report.js_nats), ("total variation", report.tv)):
        if bounds is not None:
            yield (name, "", f"{bounds.lower:.3g}", f"{bounds.upper:.3g}", "", "bounds from top-k")
    equal = report.equal_answers
    if equal is not None:
        yield (
            "equal answers",
            f"{equal.ratio:.3f}",
            f"{equal.lower:.3f}",
            f"{equal.upper:.3f}",
            f"{equal.answers:,}",
            "exact interval, for one look",
        )


def _estimate_row(name: str, found: EstimateOut, words: str) -> tuple[str, ...]:
    mean = "" if found.mean_nats is None else f"{found.mean_nats:.3g}"
    ends = (f"{found.lower_nats:.3g}", f"{found.upper_nats:.3g}")
    return (name, mean, *ends, f"{found.requests:,}", words)
