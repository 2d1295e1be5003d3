"""Options that several commands share, and how they become what the commands work with."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
from pydantic_core import PydanticCustomError

from alerts.breaker.records import Key
from collector.cli.output import actor_name, fail
from collector.config import Config, ConfigError, load
from collector.values import duration_seconds

CommandT = TypeVar("CommandT", bound=Callable[..., Any])
DEFAULT_CONFIG = "fusewire.yaml"


class Duration(click.ParamType[float]):
    """A duration like `15m`, as in the configuration, in seconds."""

    name = "duration"

    def convert(
        self, value: str | float, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        if isinstance(value, float):
            return value
        try:
            return duration_seconds(str(value))
        except PydanticCustomError:
            self.fail(f"{value!r} is not a duration; write for example 30s, 15m or 2h", param, ctx)


def config_option(command: CommandT) -> CommandT:
    """Add `--config`."""
    option = click.option(
        "--config",
        "-c",
        "config_path",
        type=click.Path(path_type=Path),
        default=DEFAULT_CONFIG,
        envvar="FUSEWIRE_CONFIG",
        show_default=True,
        help="The configuration file; also by FUSEWIRE_CONFIG.",
    )
    return option(command)


def json_option(command: CommandT) -> CommandT:
    """Add `--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Answer in JSON.")(command)


def token_option(command: CommandT) -> CommandT:
    """Add `--token-file`."""
    option = click.option(
        "--token-file",
        type=click.Path(path_type=Path, dir_okay=False),
        help="Bearer token for the service (first line); token_file of the configuration if none.",
    )
    return option(command)


def signed_options(command: CommandT) -> CommandT:
    """Add `--reason` and `--actor`, which the audit keeps."""
    return _signed(command, "the audit keeps it")


def promotion_options(command: CommandT) -> CommandT:
    """Add `--reason` and `--actor`, which are kept with a baseline."""
    return _signed(command, "it is kept with the baseline")


def _signed(command: CommandT, kept: str) -> CommandT:
    reason = click.option("--reason", required=True, callback=_some_text, help=f"Why; {kept}.")
    actor = click.option(
        "--actor", default=actor_name, show_default="the user", help=f"Who; {kept}."
    )
    return reason(actor(command))


def _some_text(ctx: click.Context, param: click.Parameter, value: str) -> str:
    if not value.strip():
        msg = "write a few words"
        raise click.BadParameter(msg, ctx, param)
    return value.strip()


def loaded(config_path: Path) -> Config:
    """Load the configuration, or end the command with every problem of it."""
    try:
        return load(config_path, os.environ)
    except ConfigError as error:
        fail(str(error))


def breaker_key(config: Config, text: str) -> Key:
    """Return the breaker that `TIER` or `TIER/TARGET` names; end the command if there is none."""
    tier, _, target = text.partition("/")
    known_tier(config, tier)
    targets = [one.id for one in config.tiers[tier].targets]
    if target and target not in targets:
        fail(f"tier {tier!r} has no target {target!r}; its targets: {', '.join(targets)}")
    return Key(tier, target)


def known_tier(config: Config, tier: str) -> str:
    """Return the tier; end the command if the configuration has no such tier."""
    if tier not in config.tiers:
        fail(f"there is no tier {tier!r}; the configuration has: {', '.join(config.tiers)}")
    return tier
