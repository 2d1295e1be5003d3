"""`docs/cli.md`, made from the commands' own help."""

from __future__ import annotations

from collections.abc import Iterator

import click

from collector.cli.root import fusewire

_HEAD = """\
# Commands

This page is made from the code (`fusewire render reference`): do not edit it.

`status`, `breaker`, `release`, `baseline list` and `baseline promote` ask the service at the
configuration's `listen` address; if it does not answer they work on the database, and what they
leave there the service takes over. If another service answers there (another `controller`, other
tiers), they warn and change nothing. `baseline create`, `baseline show` and `audit` work on the
database. Long commands show progress on a terminal and plain lines
elsewhere; `--json` answers for machines.
"""
_WIDTH = 96


def command_page() -> str:
    """Return the Markdown page of every command."""
    helps = (
        f"## `{context.command_path}`\n\n```\n{context.get_help()}\n```\n" for context in contexts()
    )
    return "\n".join((_HEAD, *helps))


def contexts() -> Iterator[click.Context]:
    """Yield every command with its full name, groups before their commands."""
    yield from _below(fusewire, None)


def _below(command: click.Command, parent: click.Context | None) -> Iterator[click.Context]:
    name = command.name if parent else "fusewire"
    context = click.Context(
        command, parent=parent, info_name=name, terminal_width=_WIDTH, max_content_width=_WIDTH
    )
    yield context
    if isinstance(command, click.Group):
        for known in command.list_commands(context):
            inner = command.get_command(context, known)
            if inner is not None:
                yield from _below(inner, context)
