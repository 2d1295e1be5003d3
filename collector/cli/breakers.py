"""`breaker list|open|close|release` and the break-glass command `release`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from urllib.parse import quote

import click

from alerts.breaker.records import Forced, Key, Override
from collector.api.shapes import BreakerOut, breaker_out
from collector.cli import database
from collector.cli.options import (
    Duration,
    breaker_key,
    config_option,
    json_option,
    known_tier,
    loaded,
    signed_options,
    token_option,
)
from collector.cli.output import actor_name, fail, moment, show_json_list, show_table, utc_now
from collector.cli.service import RefusedError, SilentError, service_of
from collector.config import Config
from collector.store import breakers as stored_breakers
from collector.store import overrides

_FREE_SECONDS = 900.0


@click.group()
def breaker() -> None:
    """Look at breakers, and override them by hand.

    A breaker is named TIER (it sheds) or TIER/TARGET (it ejects). If the service does not answer,
    requests are left in the database and it takes them over when it runs.
    """


@breaker.command("list")
@config_option
@json_option
def list_breakers(config_path: Path, *, as_json: bool) -> None:
    """List every breaker: its state, what it admits, and why."""
    config = loaded(config_path)
    found = known_breakers(config)
    if as_json:
        show_json_list(found)
    else:
        show_breakers(found)


def known_breakers(config: Config) -> list[BreakerOut]:
    """Return every breaker, from the service if it answers, else from the database."""
    try:
        return service_of(config).get("/v1/breakers", list[BreakerOut])
    except SilentError as error:
        click.echo(f"{error}; this is from the database", err=True)
        return [breaker_out(one) for one in database.read(config, stored_breakers.known)]


def show_breakers(found: list[BreakerOut]) -> None:
    """Print breakers for people."""
    rows = [
        [
            str(Key(one.tier, one.target)),
            one.shown_state,
            f"{one.effective_ratio:g}",
            moment(one.changed_at),
            _why(one),
        ]
        for one in found
    ]
    show_table("breaker", ("name", "state", "admits", "since", "why"), rows)


def _why(one: BreakerOut) -> str:
    if one.override is not None:
        until = moment(one.override.expires_at)
        return f"{one.override.actor}, until {until}: {one.override.reason}"
    if one.shown_state == "closed" and one.effective_ratio >= 1:
        return ""
    return one.cause.reason if one.cause else ""


@breaker.command("open")
@click.argument("name")
@click.option(
    "--for", "seconds", type=Duration(), default="15m", show_default=True, help="Then it ends."
)
@signed_options
@token_option
@config_option
def open_breaker(  # one parameter an option: click's way
    name: str,
    *,
    seconds: float,
    reason: str,
    actor: str,
    token_file: Path | None,
    config_path: Path,
) -> None:
    """Force the breaker NAME open: nothing is admitted."""
    config = loaded(config_path)
    key = breaker_key(config, name)
    override = _override(config, key, "forced_open", seconds=seconds, actor=actor, reason=reason)
    with _refusal_ends():
        _force(config, key, override, token_file)


@breaker.command("close")
@click.argument("name")
@click.option(
    "--for", "seconds", type=Duration(), default="15m", show_default=True, help="Then it ends."
)
@signed_options
@token_option
@config_option
def close_breaker(  # one parameter an option: click's way
    name: str,
    *,
    seconds: float,
    reason: str,
    actor: str,
    token_file: Path | None,
    config_path: Path,
) -> None:
    """Force the breaker NAME closed: everything is admitted, whatever the detectors say."""
    config = loaded(config_path)
    key = breaker_key(config, name)
    override = _override(config, key, "forced_closed", seconds=seconds, actor=actor, reason=reason)
    with _refusal_ends():
        _force(config, key, override, token_file)


@breaker.command("release")
@click.argument("name")
@signed_options
@token_option
@config_option
def release_breaker(
    name: str, *, reason: str, actor: str, token_file: Path | None, config_path: Path
) -> None:
    """End the override (and any latch) of the breaker NAME: the machine decides again."""
    config = loaded(config_path)
    key = breaker_key(config, name)
    body: dict[str, str | float | None] = {"forced": None, "reason": reason, "actor": actor}
    leave = partial(overrides.leave_release, key=key, actor=actor, reason=reason, now=utc_now())
    with _refusal_ends():
        _ask(config, key, body, leave, token_file=token_file)


@click.command()
@click.option("--tier", help="The tier to let traffic into.")
@click.option("--all", "every", is_flag=True, help="Every tier.")
@click.option(
    "--for", "seconds", type=Duration(), default="15m", show_default=True, help="Then it ends."
)
@click.option("--reason", default="released by hand", show_default=True, help="For the audit.")
@token_option
@config_option
def release(  # one parameter an option: click's way
    *,
    tier: str | None,
    every: bool,
    seconds: float,
    reason: str,
    token_file: Path | None,
    config_path: Path,
) -> None:
    """Break the glass: let all traffic into a tier, or into all, at once.

    Forces the tier's breaker and each of its targets closed for a while. Needs the service or,
    if that does not answer, the database alone. 'fusewire breaker release' takes it back.
    """
    config = loaded(config_path)
    if every == (tier is not None):
        fail("name one of --tier and --all")
    tiers = list(config.tiers) if tier is None else [known_tier(config, tier)]
    refused = False
    for name in tiers:
        for target in ("", *(one.id for one in config.tiers[name].targets)):
            key = Key(name, target)
            override = _override(
                config, key, "forced_closed", seconds=seconds, actor=actor_name(), reason=reason
            )
            try:
                _force(config, key, override, token_file)
            except RefusedError as error:  # go on: the others need it no less
                click.echo(f"fusewire: {error}", err=True)
                refused = refused or config.mode_of(name) == "enforce"
    if refused:
        fail("not everything was released")


@contextmanager
def _refusal_ends() -> Iterator[None]:
    """End the command with the service's reason if it refuses."""
    try:
        yield
    except RefusedError as error:
        fail(str(error))


def _override(
    config: Config, key: Key, forced: Forced, *, seconds: float, actor: str, reason: str
) -> Override:
    longest = config.tiers[key.tier].breaker.override_max_seconds
    if seconds > longest:
        fail(f"--for {seconds:g}s: the longest override of tier {key.tier!r} is {longest:g}s")
    now = utc_now()
    return Override(forced, actor, reason, now, now + timedelta(seconds=seconds))


def _force(config: Config, key: Key, override: Override, token_file: Path | None) -> None:
    seconds = (override.expires_at - override.since).total_seconds()
    body: dict[str, str | float | None] = {
        "forced": override.forced,
        "reason": override.reason,
        "seconds": seconds,
        "actor": override.actor,
    }
    leave = partial(overrides.leave, key=key, override=override)
    _ask(config, key, body, leave, token_file=token_file)


def _ask(
    config: Config,
    key: Key,
    body: dict[str, str | float | None],
    leave: partial[None],
    *,
    token_file: Path | None,
) -> None:
    parts = [key.tier, key.target] if key.target else [key.tier]
    path = "/v1/breakers/" + "/".join(quote(part, safe="") for part in parts) + "/override"
    try:
        answer = service_of(config, token_file).post(path, BreakerOut, body)
    except SilentError as error:
        database.write(config, leave)
        click.echo(f"{key}: left in the database, the service takes it over when it runs ({error})")
        return
    click.echo(f"{key}: {answer.shown_state}, admits {answer.effective_ratio:g}")
