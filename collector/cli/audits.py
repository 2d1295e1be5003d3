"""`audit show|verify|export`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import click
import msgspec

from alerts.breaker.records import Transition
from collector.api.shapes import transition_out
from collector.cli import database
from collector.cli.options import config_option, json_option, known_tier, loaded
from collector.cli.output import (
    FINDING,
    fail,
    moment,
    show_json_list,
    show_table,
    utc_now,
)
from collector.config import Config
from collector.store import audit as stored

_PAGE = 1000


class _Number(msgspec.Struct):
    number: int


@click.group()
def audit() -> None:
    """Read the audit: every transition of every breaker, in a chain of hashes."""


@audit.command("show")
@click.option("--tier", default="", help="Only of this tier and its targets.")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="Most rows."
)
@config_option
@json_option
def show_audit(tier: str, limit: int, config_path: Path, *, as_json: bool) -> None:
    """Show the newest transitions, newest first."""
    config = loaded(config_path)
    if tier:
        known_tier(config, tier)
    entries = database.read(config, partial(stored.history, tier=tier, limit=limit))
    found = [entry.transition for entry in entries]
    if as_json:
        show_json_list([transition_out(one) for one in found])
    else:
        show_transitions(found)


def show_transitions(found: list[Transition]) -> None:
    """Print transitions for people; under an override also what the machine did by itself."""
    rows = [
        [
            moment(one.at),
            str(one.key),
            one.kind,
            f"{one.before.shown_state} -> {one.after.shown_state}",
            f"{one.after.effective_ratio:g}",
            _by_itself(one),
            one.actor,
            one.reason,
        ]
        for one in found
    ]
    columns = ("at", "breaker", "kind", "state", "admits", "by_itself", "by", "why")
    show_table("transition", columns, rows)


def _by_itself(one: Transition) -> str:
    if one.before.override is None and one.after.override is None:
        return ""
    return f"{one.before.state} -> {one.after.state}, admits {one.after.admit_ratio:g}"


@audit.command("verify")
@config_option
def verify_audit(config_path: Path) -> None:
    """Check the whole chain: a changed, missing or added row is found, and is exit code 1."""
    report = database.read(loaded(config_path), stored.verify)
    if not report.holds:
        fail(f"the audit does not hold: {report.problem}", FINDING)
    click.echo(f"the audit holds: {report.rows:,} rows, {report.first} to {report.last}")


@audit.command("export")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="File; else stdout.")
@click.option(
    "--after",
    type=click.IntRange(0),
    help="Rows above this number; after the newest checkpoint if not given.",
)
@config_option
def export_audit(out: Path | None, after: int | None, config_path: Path) -> None:
    """Write transitions as JSON lines, with their hashes.

    With --out the store notes a checkpoint: retention may cut the chain up to there. Keep the file
    elsewhere; it is the proof against someone who can write the whole database.
    """
    config = loaded(config_path)
    start = _start(config) if after is None else after
    if out is None:
        for line in _lines(config, start):
            click.echo(line)
        return
    last = _write(out, _lines(config, start))
    if last is None:
        click.echo(f"nothing above row {start} to export", err=True)
        return
    made = partial(stored.checkpoint, number=last, place=str(out.resolve()), now=utc_now())
    database.write(config, made)
    click.echo(f"wrote {out}, rows {start + 1} to {last}", err=True)


def _start(config: Config) -> int:
    newest = database.read(config, stored.newest_checkpoint)
    return newest.number if newest else 0


def _lines(config: Config, after: int) -> Iterator[str]:
    while True:
        page = database.read(config, partial(stored.export, after=after, limit=_PAGE))
        yield from page
        if len(page) < _PAGE:
            return
        after = msgspec.json.decode(page[-1], type=_Number).number


def _write(out: Path, lines: Iterator[str]) -> int | None:
    """Write the lines to a new file; return the number of the last row, None if there is none."""
    last: int | None = None
    try:
        with out.open("x", encoding="utf-8") as file:
            for line in lines:
                file.write(line + "\n")
                last = msgspec.json.decode(line, type=_Number).number
    except OSError as error:
        fail(f"{out}: cannot be written: {error.strerror}; name a new file")
    if last is None:
        out.unlink()
    return last
