"""How commands speak: exit codes, errors, tables on a terminal and plain lines elsewhere."""

from __future__ import annotations

import getpass
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

import click
from pydantic import BaseModel, RootModel
from rich.console import Console
from rich.table import Table

FINDING = 1
TROUBLE = 2
NOT_ENOUGH = 3


def fail(message: str, code: int = TROUBLE) -> NoReturn:
    """Say why the command ends, on stderr, and end it.

    Raises:
        click.exceptions.Exit: Always.
    """
    click.echo(f"fusewire: {printable(message, keep_lines=True)}", err=True)
    raise click.exceptions.Exit(code)


def printable(text: str, *, keep_lines: bool = False) -> str:
    """Return text without control characters, which could drive a terminal."""
    kept = "\n" if keep_lines else ""
    return "".join(letter if letter.isprintable() or letter in kept else " " for letter in text)


def show_json(value: BaseModel) -> None:
    """Print a model as JSON, the output for machines."""
    click.echo(value.model_dump_json(indent=2))


def show_json_list(values: Sequence[BaseModel]) -> None:
    """Print models as a JSON array."""
    click.echo(
        RootModel[list[BaseModel]](list(values)).model_dump_json(indent=2, serialize_as_any=True)
    )


def show_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows: a table on a terminal, else one line a row with its title and named values."""
    clean = [[printable(cell) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        for row in clean:
            pairs = (f"{name}={cell}" for name, cell in zip(columns, row, strict=True) if cell)
            click.echo(f"{title}: {'  '.join(pairs)}")
        return
    table = Table(title=title, title_justify="left", header_style="bold")
    for name in columns:
        table.add_column(name, overflow="fold")
    for row in clean:
        table.add_row(*(cell.replace("[", "\\[") for cell in row))
    Console().print(table)


def moment(at: datetime | None) -> str:
    """Return a moment as people read it, UTC; empty if there is none."""
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ") if at else ""


def utc_now() -> datetime:
    """The clock of the command line."""
    return datetime.now(UTC)  # noqa: TID251  # a command is a process: here the real clock enters


def actor_name() -> str:
    """Return who runs the command, for the audit."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def write_file(path: Path, text: str) -> None:
    """Write a file, making its folder, and say so on stderr."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        fail(f"{path}: cannot be written: {error.strerror}; name another place")
    click.echo(f"wrote {path}", err=True)
