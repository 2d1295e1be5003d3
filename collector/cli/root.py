"""The group of all commands. Each is imported when it is needed: some bring half a second along."""

from __future__ import annotations

from importlib import import_module

import click

_COMMANDS = {
    "serve": "serving:serve",
    "check-config": "serving:check_config",
    "doctor": "doctoring:doctor",
    "init": "doctoring:init",
    "status": "watching:status",
    "demo": "demonstration:demo",
    "baseline": "baselines:baseline",
    "breaker": "breakers:breaker",
    "release": "breakers:release",
    "drift": "drifting:drift",
    "shadow": "shadows:shadow",
    "audit": "audits:audit",
    "render": "rendering:render",
    "migrate": "serving:migrate",
}


class _Commands(click.Group):
    """Commands by name, in the order of the table."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx  # the same commands wherever it is asked
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in _COMMANDS:
            return None
        module, _, attribute = _COMMANDS[cmd_name].partition(":")
        found = getattr(import_module(f"collector.cli.{module}"), attribute)
        return found if isinstance(found, click.Command) else None


@click.group(
    cls=_Commands,
    context_settings={"max_content_width": 100},
)
@click.version_option(package_name="fusewire", message="fusewire %(version)s")
def fusewire() -> None:
    """Watch LLM inference tiers for saturation and drift, and trip their gateways.

    Exit codes: 0 ok, 1 finding, 2 usage or configuration error (or the command could not do its
    work), 3 not enough evidence.
    """
