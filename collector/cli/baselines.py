"""`baseline create|list|show|promote`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC
from functools import partial
from pathlib import Path

import click
from sqlalchemy.orm import Session

from collector.api.shapes import baseline_out
from collector.cli import database
from collector.cli.baseline_lines import (
    BaselineDetail,
    BaselineLine,
    line_of,
    show_lines,
    signal_lines,
)
from collector.cli.history import refused_words, ticks_of_file
from collector.cli.options import (
    config_option,
    json_option,
    known_tier,
    loaded,
    promotion_options,
    token_option,
)
from collector.cli.output import (
    NOT_ENOUGH,
    fail,
    show_json,
    show_json_list,
    show_table,
    utc_now,
)
from collector.cli.service import RefusedError, SilentError, service_of
from collector.config import Config
from collector.state import Lane
from collector.store import baselines as stored
from collector.store import ticks as stored_ticks
from detectors.baseline import Baseline, make_baseline
from detectors.records import OTHER_SEGMENT, Tick

_NONE_YET = (
    "no baselines yet: the service makes one of each tier once enough generations have come in "
    "(POST /v1/ingest/generations; 'baseline.requests' says how many), or make one of a log: "
    "fusewire baseline create FILE --tier TIER"
)


@click.group()
def baseline() -> None:
    """Make, look at and promote baselines: the frozen references that drift is measured against.

    A candidate serves to inform; only a promoted baseline pages and trips.
    """


@baseline.command("create")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False), required=False)
@click.option("--from-ticks", is_flag=True, help="From the counts that the store keeps.")
@click.option("--tier", required=True, help="The tier that it is for.")
@click.option("--segment", default="", help="For the lines of FILE that do not say one.")
@click.option(
    "--requests", type=click.IntRange(1), help="Fewest requests; the tier's setting if not given."
)
@config_option
@json_option
def create_baseline(  # noqa: PLR0913  # one parameter an option: click's way
    file: Path | None,
    *,
    from_ticks: bool,
    tier: str,
    segment: str,
    requests: int | None,
    config_path: Path,
    as_json: bool,
) -> None:
    """Make candidates from FILE (generation lines, plain or gzip) or from stored counts.

    One for the tier and one for each segment that has enough requests. Exit code 3 if none has.
    They are kept in the database, beside the service or without it; a running service judges by
    one once it is promoted.
    """
    config = loaded(config_path)
    known_tier(config, tier)
    _check_segment(config, tier, segment)
    if from_ticks == (file is not None):
        fail("name one of FILE and --from-ticks")
    needed = requests or config.tiers[tier].baseline.requests
    if file is not None:
        found = ticks_of_file(file, config, tier=tier, segment=segment, now=utc_now())
        origin = _Origin(f"file {file.name}", refused_words(found.refused))
        made = _make(config, found.lanes, needed=needed, origin=origin)
    else:
        made = _make(config, _stored_lanes(config, tier), needed=needed, origin=_Origin())
    lines = [line_of(one) for one in made]
    if as_json:
        show_json_list(lines)
    else:
        show_lines(lines)


@dataclass(frozen=True, slots=True)
class _Origin:
    """Where the requests are from: provenance (that of the ticks if empty), what was refused."""

    provenance: str = ""
    refused: str = ""


def _check_segment(config: Config, tier: str, segment: str) -> None:
    """End the command if no such segment is configured: its lines would be counted as `other`."""
    known = (*config.tiers[tier].segments, OTHER_SEGMENT)
    if segment and segment not in known:
        fail(f"tier {tier!r} has no segment {segment!r}; its segments: {', '.join(known)}")


def _stored_lanes(config: Config, tier: str) -> dict[Lane, list[Tick]]:
    def work(session: Session) -> dict[Lane, list[Tick]]:
        counted = stored_ticks.count_requests(session)
        return {lane: list(stored_ticks.load(session, lane)) for lane in counted if lane[0] == tier}

    return database.read(config, work)


def _make(
    config: Config, lanes: dict[Lane, list[Tick]], *, needed: int, origin: _Origin
) -> list[Baseline]:
    """Make and keep a candidate of every lane with enough requests."""
    sizes = {lane: sum(tick.requests for tick in ticks) for lane, ticks in lanes.items()}
    enough = [lane for lane, size in sorted(sizes.items()) if size >= needed]
    if not enough:
        most = max(sizes.values(), default=0)
        refused = f"; refused: {origin.refused}" if origin.refused else ""
        fail(
            f"not enough evidence: {most:,} of {needed:,} requests{refused}; see --requests",
            NOT_ENOUGH,
        )
    now = utc_now()
    made = [
        make_baseline(lanes[lane], made_at=now, provenance=origin.provenance or _span(lanes[lane]))
        for lane in enough
    ]
    for one in made:
        database.write(config, partial(stored.add, baseline=one, now=now), may_make=True)
    return made


def _span(ticks: Sequence[Tick]) -> str:
    first, last = (ticks[place].start.astimezone(UTC) for place in (0, -1))
    return f"ticks {first:%Y-%m-%dT%H:%MZ} to {last:%Y-%m-%dT%H:%MZ}"


@baseline.command("list")
@click.option("--tier", default="", help="Only of this tier.")
@config_option
@json_option
def list_baselines(tier: str, config_path: Path, *, as_json: bool) -> None:
    """List the baselines that are kept, newest first, and who promoted which."""
    config = loaded(config_path)
    if tier:
        known_tier(config, tier)
    lines = _kept(config, tier)
    if as_json:
        show_json_list(lines)
    elif lines:
        show_lines(lines)
    else:
        click.echo(_NONE_YET)


def _kept(config: Config, tier: str) -> list[BaselineLine]:
    """Return what is kept, from the service if it answers, else from the database."""
    service = service_of(config)
    try:
        service.warn_if_other()
        return service.get("/v1/baselines", list[BaselineLine], tier=tier)
    except SilentError as error:
        click.echo(f"{error}; this is from the database", err=True)
    rows = database.read(config, partial(stored.listed, tier=tier))
    return [BaselineLine.model_validate(baseline_out(row).model_dump()) for row in rows]


@baseline.command("show")
@click.argument("identity", metavar="ID")
@config_option
@json_option
def show_baseline(identity: str, config_path: Path, *, as_json: bool) -> None:
    """Show the baseline ID of the database, signal by signal."""
    found = database.read(loaded(config_path), partial(stored.get, identity=identity))
    detail = BaselineDetail(baseline=line_of(found), signals=signal_lines(found))
    if as_json:
        show_json(detail)
        return
    show_lines([detail.baseline])
    rows = [
        [
            one.signal,
            f"{one.requests:,}",
            f"{one.median:g}",
            f"{one.p99:g}",
            f"{one.design_effect:.2f}",
        ]
        for one in detail.signals
    ]
    show_table("signal", ("name", "requests", "median", "p99", "design_effect"), rows)


@baseline.command("promote")
@click.argument("identity", metavar="ID")
@promotion_options
@token_option
@config_option
def promote_baseline(
    identity: str, *, reason: str, actor: str, token_file: Path | None, config_path: Path
) -> None:
    """Let the baseline ID page and trip.

    Every other baseline of its stream (tier, scope, variant) retires, the active one and all
    candidates. One that is active already is not promoted again.
    """
    config = loaded(config_path)
    body: dict[str, str | float | None] = {"author": actor, "reason": reason}
    try:
        path = f"/v1/baselines/{identity}/promote"
        line = service_of(config, token_file).post(path, BaselineLine, body)
        where = ""
    except RefusedError as error:
        fail(str(error))
    except SilentError as error:
        work = partial(
            stored.promote, identity=identity, author=actor, reason=reason, now=utc_now()
        )
        line = line_of(database.write(config, work))
        where = f" in the database ({error})"
    click.echo(f"{line.id}: {line.stage} for {line.tier}, {line.scope}{where}")
