"""`demo`: the incident, told by the real service."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from collector.cli.options import json_option


@click.command()
@click.option("--stay", is_flag=True, help="Keep everything running after the summary.")
@click.option(
    "--pull", is_flag=True, help="The gateway asks for the state instead of being told by webhook."
)
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where its files go; a temporary folder if not given.",
)
@json_option
def demo(folder: Path | None, *, stay: bool, pull: bool, as_json: bool) -> None:
    """Play a recorded incident against the real service (about 75 seconds).

    A recorded tier of three targets, a client and a small gateway run as processes of their own.
    Exit code 0 when all of the incident was seen, 1 when not, 2 if it cannot start.
    """
    from collector.demo.command import DemoOptions, run

    options = DemoOptions(stay=stay, json=as_json, pull=pull, folder=folder)
    raise click.exceptions.Exit(asyncio.run(run(options)))
