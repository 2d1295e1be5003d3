"""`serve`, `check-config` and `migrate`."""

from __future__ import annotations

import os
from pathlib import Path

import click
from pydantic import BaseModel, ConfigDict

from collector.cli.options import config_option, json_option, loaded
from collector.cli.output import TROUBLE, fail, printable, show_json
from collector.config import Config, ConfigError, Problem, load


class ProblemOut(BaseModel):
    """One problem, as JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str
    line: int | None
    got: str
    expected: str
    remedy: str


class CheckOut(BaseModel):
    """What `check-config --json` answers."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    file: str
    ok: bool
    problems: list[ProblemOut]


@click.command()
@config_option
def serve(config_path: Path) -> None:
    """Run the service: scrape, take in generations, judge, and act, until it is told to stop."""
    from collector.app import serve as run_service

    raise click.exceptions.Exit(run_service(config_path))


@click.command()
@click.argument("file", type=click.Path(path_type=Path), required=False)
@config_option
@json_option
def check_config(file: Path | None, config_path: Path, *, as_json: bool) -> None:
    """Check the configuration FILE (fusewire.yaml) without starting anything.

    Every problem is listed at once, with its line, what was expected and what to do.
    """
    file = file or config_path
    try:
        config = load(file, os.environ)
    except ConfigError as error:
        if as_json:
            show_json(_answer(file, error.problems))
        else:
            click.echo(printable(str(error), keep_lines=True), err=True)
        raise click.exceptions.Exit(TROUBLE) from error
    if as_json:
        show_json(_answer(file, ()))
    else:
        click.echo(f"{file}: good: {_summary(config)}")


def _answer(file: Path, problems: tuple[Problem, ...]) -> CheckOut:
    listed = [
        ProblemOut(
            path=problem.path,
            line=problem.line,
            got=problem.got,
            expected=problem.expected,
            remedy=problem.remedy,
        )
        for problem in problems
    ]
    return CheckOut(file=str(file), ok=not problems, problems=listed)


def _summary(config: Config) -> str:
    targets = sum(len(tier.targets) for tier in config.tiers.values())
    enforcing = [name for name in config.tiers if config.mode_of(name) == "enforce"]
    parts = [
        _count(len(config.tiers), "tier"),
        _count(targets, "target"),
        _count(len(config.webhooks), "webhook"),
        f"enforcing: {', '.join(enforcing)}" if enforcing else "observing only",
    ]
    return ", ".join(parts)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


@click.command()
@config_option
def migrate(config_path: Path) -> None:
    """Bring the database to the schema of this build. Stop the service and back it up first."""
    from collector.store.migration import migrate as bring_up
    from collector.store.session import StoreError

    config = loaded(config_path)
    try:
        version = bring_up(config.store)
    except StoreError as error:
        fail(str(error))
    click.echo(f"the store has schema {version}, the one of this build")
