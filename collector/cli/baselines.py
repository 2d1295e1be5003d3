"""`baseline create|list|show|promote`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from pathlib import Path

import click
from pydantic import BaseModel, ConfigDict
from sqlalchemy.orm import Session

from collector.cli import database
from collector.cli.history import ticks_of_file
from collector.cli.options import (
    config_option,
    json_option,
    known_tier,
    loaded,
    signed_options,
    token_option,
)
from collector.cli.output import (
    NOT_ENOUGH,
    fail,
    moment,
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
from detectors.baseline import Baseline, SignalBaseline, make_baseline
from detectors.records import Tick
from detectors.signals import grid_of


class BaselineLine(BaseModel):
    """What a list shows of a baseline; the service may say more."""

    model_config = ConfigDict(frozen=True, from_attributes=True)

    id: str
    tier: str
    scope: str
    variant: str
    stage: str
    made_at: datetime
    requests: int
    provenance: str
    author: str
    reason: str


class SignalLine(BaseModel):
    """One signal of a baseline: what was counted, and its median on the grid."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    signal: str
    grid: str
    requests: int
    median: float
    p99: float
    thresholds: int
    design_effect: float


class BaselineDetail(BaseModel):
    """One baseline with its signals."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    baseline: BaselineLine
    signals: list[SignalLine]


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
    """
    config = loaded(config_path)
    known_tier(config, tier)
    if from_ticks == (file is not None):
        fail("name one of FILE and --from-ticks")
    needed = requests or config.tiers[tier].baseline.requests
    if file is not None:
        lanes = ticks_of_file(file, config, tier=tier, segment=segment, now=utc_now())
        provenance = f"file {file.name}"
    else:
        lanes, provenance = _stored_lanes(config, tier), ""
    made = _make(config, lanes, needed=needed, provenance=provenance)
    lines = [_line(one) for one in made]
    if as_json:
        show_json_list(lines)
    else:
        _show(lines)


def _stored_lanes(config: Config, tier: str) -> dict[Lane, list[Tick]]:
    def work(session: Session) -> dict[Lane, list[Tick]]:
        counted = stored_ticks.count_requests(session)
        return {lane: list(stored_ticks.load(session, lane)) for lane in counted if lane[0] == tier}

    return database.read(config, work)


def _make(
    config: Config, lanes: dict[Lane, list[Tick]], *, needed: int, provenance: str
) -> list[Baseline]:
    """Make and keep a candidate of every lane with enough requests."""
    sizes = {lane: sum(tick.requests for tick in ticks) for lane, ticks in lanes.items()}
    enough = [lane for lane, size in sorted(sizes.items()) if size >= needed]
    if not enough:
        most = max(sizes.values(), default=0)
        fail(f"not enough evidence: {most:,} of {needed:,} requests; see --requests", NOT_ENOUGH)
    now = utc_now()
    made = [
        make_baseline(lanes[lane], made_at=now, provenance=provenance or _span(lanes[lane]))
        for lane in enough
    ]
    for one in made:
        database.write(config, partial(stored.add, baseline=one, now=now), may_make=True)
    return made


def _span(ticks: Sequence[Tick]) -> str:
    return f"ticks {ticks[0].start.isoformat()} to {ticks[-1].start.isoformat()}"


@baseline.command("list")
@click.option("--tier", default="", help="Only of this tier.")
@config_option
@json_option
def list_baselines(tier: str, config_path: Path, *, as_json: bool) -> None:
    """List the baselines that are kept, newest first."""
    config = loaded(config_path)
    if tier:
        known_tier(config, tier)
    rows = database.read(config, partial(stored.listed, tier=tier))
    lines = [
        BaselineLine(
            id=row.id,
            tier=row.tier,
            scope=str(row.scope),
            variant=row.variant,
            stage=str(row.stage),
            made_at=row.made_at,
            requests=row.requests,
            provenance=row.provenance,
            author=row.author,
            reason=row.reason,
        )
        for row in rows
    ]
    if as_json:
        show_json_list(lines)
    else:
        _show(lines)


@baseline.command("show")
@click.argument("identity", metavar="ID")
@config_option
@json_option
def show_baseline(identity: str, config_path: Path, *, as_json: bool) -> None:
    """Show the baseline ID, signal by signal."""
    found = database.read(loaded(config_path), partial(stored.get, identity=identity))
    detail = BaselineDetail(baseline=_line(found), signals=_signals(found))
    if as_json:
        show_json(detail)
        return
    _show([detail.baseline])
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
@signed_options
@token_option
@config_option
def promote_baseline(
    identity: str, *, reason: str, actor: str, token_file: Path | None, config_path: Path
) -> None:
    """Let the baseline ID page and trip; the active one of its stream retires."""
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
        line = _line(database.write(config, work))
        where = f" in the database ({error})"
    click.echo(f"{line.id}: {line.stage} for {line.tier}, {line.scope}{where}")


def _line(found: Baseline) -> BaselineLine:
    return BaselineLine(
        id=found.id,
        tier=found.tier,
        scope=str(found.scope),
        variant=found.variant,
        stage=str(found.stage),
        made_at=found.made_at,
        requests=found.requests,
        provenance=found.provenance,
        author=found.author,
        reason=found.reason,
    )


def _signals(found: Baseline) -> list[SignalLine]:
    return [
        SignalLine(
            signal=name,
            grid=signal.grid,
            requests=signal.requests,
            median=_quantile(signal, 0.5),
            p99=_quantile(signal, 0.99),
            thresholds=len(signal.thresholds),
            design_effect=signal.design_effect,
        )
        for name, signal in found.signals.items()
    ]


def _quantile(signal: SignalBaseline, share: float) -> float:
    """Return the smallest grid edge with at least `share` of the requests at or below it."""
    edges = grid_of(signal.signal).edges
    below = signal.counts.cumsum() >= share * signal.requests
    return edges[min(int(below.argmax()), len(edges) - 1)]


def _show(lines: Sequence[BaselineLine]) -> None:
    rows = [
        [
            one.id,
            one.tier,
            one.scope,
            one.stage,
            f"{one.requests:,}",
            moment(one.made_at),
            one.provenance,
            f"{one.author}: {one.reason}" if one.author else "",
        ]
        for one in lines
    ]
    columns = ("id", "tier", "scope", "stage", "requests", "made", "from", "promoted")
    show_table("baseline", columns, rows)
