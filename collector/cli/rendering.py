"""`render rules|dashboards|reference|embed`: the files that are made from code."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import click

from alerts.render import RULES_PATH
from alerts.render import written_files as rule_files
from alerts.rules import RuleSettings
from collector.cli.embeds import EMBEDS
from collector.cli.options import loaded
from collector.cli.output import fail, write_file
from collector.config import Config
from detectors.limit import LimitConfig
from detectors.stalled import StalledConfig


@click.group()
def render() -> None:
    """Write what is made from the code: alert rules, boards, reference pages, embedded code."""


@render.command("rules")
@click.option("--write", is_flag=True, help="Write the repository's files, below this folder.")
@click.option(
    "--config",
    "-c",
    "config_path",
    type=click.Path(path_type=Path),
    help="Take thresholds from this configuration instead of the defaults.",
)
def render_rules_command(config_path: Path | None, *, write: bool) -> None:
    """Print the alert rules for Prometheus; with --write also the pages of runbooks and metrics."""
    settings = rule_settings(loaded(config_path)) if config_path else None
    _put(rule_files(settings), shown=RULES_PATH, write=write)


@render.command("dashboards")
@click.option("--write", is_flag=True, help="Write the repository's files, below this folder.")
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), help="Write the boards here."
)
def render_dashboards_command(out: Path | None, *, write: bool) -> None:
    """Print the Grafana boards as JSON, or write them."""
    from dashboards import render_dashboards, written_files

    if out is not None:
        for name, text in render_dashboards().items():
            write_file(out / name, text)
        return
    _put(written_files(), shown="", write=write)


@render.command("reference")
@click.option("--write", is_flag=True, help="Write the repository's files, below this folder.")
def render_reference(*, write: bool) -> None:
    """Print the reference pages: configuration keys, commands, detectors."""
    from collector.cli.reference import command_page
    from collector.config.detector_page import detectors_page
    from collector.config.reference import configuration_page

    pages = {
        "docs/configuration.md": configuration_page(),
        "docs/cli.md": command_page(),
        "docs/detectors.md": detectors_page(),
    }
    _put(pages, shown="", write=write)


@render.command("embed")
@click.argument("name", required=False)
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="Write it here.")
def render_embed(name: str | None, out: Path | None) -> None:
    """Print the single-file module NAME that runs in another process; without NAME list them.

    Such a file needs nothing but Python's standard library (the client kit: prometheus-client,
    too). What is a package of several files is written to a folder, with --out.
    """
    if name is None:
        for one in sorted(EMBEDS):
            click.echo(f"{one:<16} {EMBEDS[one].help}")
        return
    if name not in EMBEDS:
        fail(f"there is no {name!r} to embed; known: {', '.join(sorted(EMBEDS))}")
    embed = EMBEDS[name]
    if out is not None:
        for path, text in embed.texts().items():
            write_file(out / path, text)
    elif embed.alone:
        click.echo(embed.texts()[embed.alone], nl=False)
    else:
        fail(f"{name} is a package of {len(embed.files)} files; say where to: --out DIRECTORY")


def rule_settings(config: Config) -> RuleSettings:
    """Return the settings of the rules that agree with a configuration's detectors.

    One rule serves all tiers, so the lowest threshold of any of them counts.
    """
    detectors = [one for tier in config.tiers.values() for one in tier.detectors]
    trips = [
        one.trip
        for one in detectors
        if isinstance(one, LimitConfig) and one.cause == "kv_cache_saturated"
    ]
    stalled = {one.build().name for one in detectors if isinstance(one, StalledConfig)}
    standard = RuleSettings()
    return RuleSettings(
        kv_cache_trip_ratio=min(trips, default=standard.kv_cache_trip_ratio),
        stalled_detectors=tuple(sorted(stalled)) or standard.stalled_detectors,
        evaluation_stale_seconds=max(
            standard.evaluation_stale_seconds, math.ceil(12 * config.scrape_interval)
        ),
    )


def _put(pages: Mapping[str, str], *, shown: str, write: bool) -> None:
    """Write all pages, or print the one that is `shown` (all, if empty)."""
    for path, text in pages.items():
        if write:
            write_file(Path(path), text)
        elif shown in ("", path):
            click.echo(text, nl=not text.endswith("\n"))
