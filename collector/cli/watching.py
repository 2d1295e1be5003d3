"""`status`: how the tiers are, once or over and over."""

from __future__ import annotations

import sys
import time
from collections import Counter
from datetime import timedelta
from pathlib import Path

import click
from pydantic import BaseModel, ConfigDict

from collector.api.shapes import (
    BreakerOut,
    SignalOut,
    TierOut,
    VerdictOut,
    breaker_out,
    verdict_out,
)
from collector.cli import database
from collector.cli.breakers import show_breakers
from collector.cli.options import Duration, config_option, json_option, loaded
from collector.cli.output import FINDING, NOT_ENOUGH, moment, show_json, show_table, utc_now
from collector.cli.service import SilentError, service_of
from collector.config import Config
from collector.store import breakers as stored_breakers
from collector.store import verdicts as stored_verdicts

_RAISED = ("warning", "critical")
_SHOWN = ("kv_cache_usage_ratio", "requests_running", "requests_waiting")
_SHORT = ("kv_cache", "running", "waiting")  # as columns
_MOST_VERDICTS = 50


class StatusOut(BaseModel):
    """What `status --json` answers; `problem` says why the service did not."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    service: str
    problem: str
    tiers: list[TierOut]
    breakers: list[BreakerOut]
    verdicts: list[VerdictOut]


@click.command()
@click.option("--watch", is_flag=True, help="Look again and again, until interrupted.")
@click.option("--every", type=Duration(), default="2s", show_default=True, help="With --watch.")
@config_option
@json_option
def status(config_path: Path, *, watch: bool, every: float, as_json: bool) -> None:
    """Show tiers, breakers, and every verdict that is a warning or worse.

    Exit code 1 if something is raised or withheld, 3 if the service does not answer: then only
    what the database remembers is shown.
    """
    config = loaded(config_path)
    while True:
        found = look(config)
        if watch and sys.stdout.isatty():
            click.clear()
        if as_json:
            show_json(found)
        else:
            _show(found)
        if not watch:
            raise click.exceptions.Exit(verdict_of(found))
        try:
            time.sleep(every)
        except KeyboardInterrupt:
            return


def look(config: Config) -> StatusOut:
    """Ask the service, or else the database."""
    service = service_of(config)
    try:
        service.warn_if_other()
        return StatusOut(
            service=service.url,
            problem="",
            tiers=service.get("/v1/tiers", list[TierOut]),
            breakers=service.get("/v1/breakers", list[BreakerOut]),
            verdicts=service.get(
                "/v1/verdicts", list[VerdictOut], at_least="warning", limit=_MOST_VERDICTS
            ),
        )
    except SilentError as error:
        return _remembered(config, service.url, str(error))


def _remembered(config: Config, url: str, problem: str) -> StatusOut:
    breakers = database.read(config, stored_breakers.known)
    chosen = stored_verdicts.Chosen(since=utc_now() - timedelta(days=1))
    kept = database.read(
        config, lambda session: stored_verdicts.latest(session, chosen, limit=_MOST_VERDICTS)
    )
    return StatusOut(
        service=url,
        problem=problem,
        tiers=[],
        breakers=[breaker_out(one) for one in breakers],
        verdicts=[verdict_out(one.verdict) for one in kept if str(one.verdict.level) in _RAISED],
    )


def verdict_of(found: StatusOut) -> int:
    """Return the exit code for what was found."""
    if found.problem:
        return NOT_ENOUGH
    withheld = any(one.effective_ratio < 1 for one in found.breakers)
    raised = any(one.level in _RAISED for one in found.verdicts)
    return FINDING if withheld or raised else 0


def _signal(signal: SignalOut | None) -> str:
    return "" if signal is None or signal.value is None else f"{signal.value:.3g}"


def _show(found: StatusOut) -> None:
    if found.problem:
        click.echo(f"{found.problem}; this is what the database remembers", err=True)
    rows = [
        [
            f"{tier.tier}/{target.id}",
            tier.mode,
            {True: "up", False: "down", None: "not scraped yet"}[target.up],
            " ".join(filter(None, (target.engine, target.version))),
            target.model,
            *(_signal(target.signals.get(name)) for name in _SHOWN),
            target.problem,
        ]
        for tier in found.tiers
        for target in tier.targets
    ]
    columns = ("name", "mode", "state", "engine", "model", *_SHORT, "problem")
    show_table("target", columns, rows)
    show_breakers(found.breakers)
    several = _of_several_variants(found)
    verdicts = [
        [
            moment(one.at),
            one.level,
            one.tier,
            one.scope,
            one.variant if (one.tier, one.scope) in several else "",
            one.signal,
            one.reason,
        ]
        for one in found.verdicts
    ]
    named = ("at", "level", "tier", "scope", "variant", "signal", "why")
    show_table("verdict", named, verdicts)


def _of_several_variants(found: StatusOut) -> set[tuple[str, str]]:
    """Return the scopes, with their tiers, that have more than one variant."""
    lanes = {(one.tier, one.scope, one.variant) for one in found.verdicts if one.variant}
    lanes |= {
        (tier.tier, one.scope, one.variant)
        for tier in found.tiers
        for one in tier.baselines
        if one.variant
    }
    counted = Counter((tier, scope) for tier, scope, _ in lanes)
    return {place for place, variants in counted.items() if variants > 1}
