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
from collector.api.shapes import BreakerOut, OverrideOut, breaker_out
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
from collector.cli.service import RefusedError, Service, SilentError, service_of
from collector.config import Config
from collector.store import breakers as stored_breakers
from collector.store import overrides
from collector.values import duration_text


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
    service = service_of(config)
    try:
        service.warn_if_other()
        return service.get("/v1/breakers", list[BreakerOut])
    except SilentError as error:
        click.echo(f"{error}; this is from the database", err=True)
        return [breaker_out(one) for one in database.read(config, stored_breakers.known)]


def show_breakers(found: list[BreakerOut]) -> None:
    """Print breakers for people: of an override in force who, since when and until when."""
    rows = [
        [
            str(Key(one.tier, one.target)),
            one.shown_state,
            f"{one.effective_ratio:g}",
            *(_of_machine(one) if one.override is None else _of_override(one, one.override)),
        ]
        for one in found
    ]
    columns = ("name", "state", "admits", "since", "until", "by", "why", "by_itself")
    show_table("breaker", columns, rows)


def _of_machine(one: BreakerOut) -> list[str]:
    calm = one.shown_state == "closed" and one.effective_ratio >= 1
    why = "" if calm or one.cause is None else one.cause.reason
    return [moment(one.changed_at), moment(one.open_until), "", why, ""]


def _of_override(one: BreakerOut, override: OverrideOut) -> list[str]:
    itself = f"{one.state}, admits {one.admit_ratio:g}"
    since, until = moment(override.since), moment(override.expires_at)
    return [since, until, override.actor, override.reason, itself]


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
    override = _override(
        config, key, forced="forced_open", seconds=seconds, actor=actor, reason=reason
    )
    with _refusal_ends():
        _force(config, service_of(config, token_file), key, override)


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
    override = _override(
        config, key, forced="forced_closed", seconds=seconds, actor=actor, reason=reason
    )
    with _refusal_ends():
        _force(config, service_of(config, token_file), key, override)


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
    service = service_of(config, token_file)
    before = _found(service, key)
    idle = before is not None and before.override is None
    if idle and before is not None and (before.state, before.admit_ratio) == ("closed", 1.0):
        click.echo(f"{key}: there was no override, and it admits everything")
        return  # asked for all the same, it would be audited as an override that ended
    body: dict[str, str | float | None] = {"forced": None, "reason": reason, "actor": actor}
    leave = partial(overrides.leave_release, key=key, actor=actor, reason=reason, now=utc_now())
    with _refusal_ends():
        _ask(config, service, key, body, leave, note="there was no override; " if idle else "")


def _found(service: Service, key: Key) -> BreakerOut | None:
    """Return the breaker as the service of the configuration has it; None if it is silent."""
    try:
        service.stop_if_other()
        found = service.get("/v1/breakers", list[BreakerOut])
    except SilentError:
        return None
    return next((one for one in found if (one.tier, one.target) == (key.tier, key.target)), None)


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
    signed = partial(
        _override,
        config,
        forced="forced_closed",
        seconds=seconds,
        actor=actor_name(),
        reason=reason,
    )
    service = service_of(config, token_file)
    observing = _observing(service)
    refused = 0
    for name in tiers:
        if name in observing:
            click.echo(f"{name}: observe, nothing is withheld")
            continue
        for target in ("", *(one.id for one in config.tiers[name].targets)):
            key = Key(name, target)
            try:
                _force(config, service, key, signed(key))
            except RefusedError as error:  # go on: the others need it no less
                click.echo(f"fusewire: {error}", err=True)
                refused += 1
    if refused:
        fail("not everything was released")


def _observing(service: Service) -> frozenset[str]:
    """Return the tiers that the running service only observes; none if it is silent.

    The file may say observe while what runs enforces: what runs decides.
    """
    try:
        service.stop_if_other()
        return frozenset(one.id for one in service.identity().tiers if one.mode == "observe")
    except SilentError:
        return frozenset()


@contextmanager
def _refusal_ends() -> Iterator[None]:
    """End the command with the service's reason if it refuses."""
    try:
        yield
    except RefusedError as error:
        fail(str(error))


def _override(
    config: Config, key: Key, *, forced: Forced, seconds: float, actor: str, reason: str
) -> Override:
    longest = config.tiers[key.tier].breaker.override_max_seconds
    if not 0 < seconds <= longest:
        given, most = duration_text(seconds) if seconds else "0s", duration_text(longest)
        fail(
            f"--for {given}: expected more than 0 and at most {most}, the longest override of tier "
            f"{key.tier!r}"
        )
    now = utc_now()
    return Override(forced, actor, reason, now, now + timedelta(seconds=seconds))


def _force(config: Config, service: Service, key: Key, override: Override) -> None:
    seconds = (override.expires_at - override.since).total_seconds()
    body: dict[str, str | float | None] = {
        "forced": override.forced,
        "reason": override.reason,
        "seconds": seconds,
        "actor": override.actor,
    }
    leave = partial(overrides.leave, key=key, override=override)
    _ask(config, service, key, body, leave)


def _ask(
    config: Config,
    service: Service,
    key: Key,
    body: dict[str, str | float | None],
    leave: partial[None],
    *,
    note: str = "",
) -> None:
    parts = [key.tier, key.target] if key.target else [key.tier]
    path = "/v1/breakers/" + "/".join(quote(part, safe="") for part in parts) + "/override"
    try:
        answer = service.post(path, BreakerOut, body)
    except SilentError as error:
        database.write(config, leave)
        click.echo(f"{key}: left in the database, the service takes it over when it runs ({error})")
        return
    click.echo(f"{key}: {note}{answer.shown_state}, admits {answer.effective_ratio:g}")
